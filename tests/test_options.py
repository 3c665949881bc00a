from dataclasses import fields, is_dataclass
from typing import get_args, get_type_hints

import pytest
from pydantic import ValidationError

from motley.methods.registry import find_method, method_names
from motley.options import (
    DataOptions,
    EvalOptions,
    ModelOptions,
    PartitionOptions,
    RunOptions,
    Settings,
    TrainOptions,
)

CLASSES = [*get_type_hints(Settings).values(), *(find_method(name).options for name in method_names())]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_defaults_are_accepted_and_an_options_object_cannot_be_changed(kind):
    made = kind()
    assert is_dataclass(made)
    for one in fields(kind):
        with pytest.raises((AttributeError, TypeError)):
            setattr(made, one.name, getattr(made, one.name))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_option_says_what_it_is(kind):
    for name, hint in get_type_hints(kind, include_extras=True).items():
        described = [getattr(one, "description", None) for one in get_args(hint)[1:]]
        if name in {one.name for one in fields(kind)}:
            assert any(described), f"{kind.__name__}.{name}"


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_f1_an_unknown_option_is_refused(kind):
    with pytest.raises((ValidationError, TypeError)):
        kind(lerning_rate=0.05)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (TrainOptions, "lr", True),
        (TrainOptions, "lr", float("nan")),
        (TrainOptions, "lr", float("inf")),
        (TrainOptions, "lr", 0.0),
        (TrainOptions, "lr", "0.05"),
        (TrainOptions, "momentum", 1.0),
        (TrainOptions, "lr_decay", 1.5),
        (TrainOptions, "clip_norm", 0.0),
        (TrainOptions, "batch_size", 0),
        (TrainOptions, "batch_size", 2.0),
        (TrainOptions, "optimizer", "rmsprop"),
        (TrainOptions, "keep_optimizer", "False"),
        (TrainOptions, "keep_optimizer", 0),
        (TrainOptions, "shuffle", "no"),
        (TrainOptions, "last_batch", "skip"),
        (ModelOptions, "init_seed", -1),
        (ModelOptions, "init_seed", "same"),
        (EvalOptions, "every", 0),
        (RunOptions, "rounds", "three"),
        (RunOptions, "rounds", True),
        (RunOptions, "rounds", 0),
        (RunOptions, "seed", -1),
        (RunOptions, "participation", 0),
        (RunOptions, "participation", -0.5),
        (RunOptions, "participation", True),
        (RunOptions, "checkpoint_every", -1),
        (PartitionOptions, "clients", 0),
        (PartitionOptions, "test_fraction", 1.0),
        (DataOptions, "size", 0),
    ],
)
def test_f1_a_value_of_another_kind_or_range_is_refused(kind, name, value):
    with pytest.raises(ValidationError):
        kind(**{name: value})


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        ("fedtopo", "negatives", 0),  # case C6: q < 1 is an Error; lambda = 0 is the way to switch guidance off
        ("fedtopo", "negatives", -1),
        ("fedtopo", "negatives", True),
        ("fedtopo", "negatives", "some"),
        ("fedtopo", "loss_weight", -0.1),
        ("fedtopo", "smoothing", 1.0),
        ("fedtopo", "count_noise", -1.0),
        ("fedtopo", "wire", "half"),
        ("crad", "temperature", 0.0),
        ("crad", "loss_weight", 1.1),
        ("crad", "min_support", -1),
        ("uniform-kd", "temperature", 0.0),
        ("local-scaled", "loss_weight", -1.0),
        ("local", "loss_weight", 1.0),
    ],
)
def test_f1_a_method_refuses_values_outside_of_its_range(method, name, value):
    with pytest.raises((ValidationError, TypeError)):
        find_method(method).options(**{name: value})


def test_the_defaults_are_those_of_the_sheets():
    fedtopo = find_method("fedtopo").options()
    assert (fedtopo.loss_weight, fedtopo.strength, fedtopo.negatives, fedtopo.smoothing) == (1.0, 1.0, 3, 0.7)
    assert (fedtopo.warmup_rounds, fedtopo.s_norm, fedtopo.s_state, fedtopo.ema_init) == (3, "all", "round", "identity")
    crad = find_method("crad").options()
    assert (crad.temperature, crad.loss_weight, crad.min_support) == (3.0, 0.7, 2)
    assert (crad.unsupported, crad.warmup_rounds) == ("uniform", 0)
    uniform = find_method("uniform-kd").options()
    assert (uniform.temperature, uniform.loss_weight) == (3.0, 0.7)
