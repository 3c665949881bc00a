"""Tiny federations in memory: data whose owners are chosen class by class, and networks that take milliseconds."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings
from torch import Tensor, nn

import motley
from motley.data.dataset import DataReport, Dataset, Split
from motley.data.shards import Normalization, Samples, Shard
from motley.draws import Draws
from motley.federation import Client, Proxy, Task
from motley.methods.registry import find_method
from motley.models.split import SplitModel
from motley.options import EvalOptions, TrainOptions
from motley.record.checkpoints import read_checkpoint
from motley.record.load import RunRecord

sys.path.insert(0, str(Path(__file__).resolve().parent))  # for functional.fedtopo_numbers, case_inputs, tiny_models

import tiny_models

settings.register_profile("shared", deadline=None)  # shared machines are too noisy for a deadline
settings.load_profile("shared")

SIDE = 4
PROXY = 6  # samples of the proxy set where a method needs one: there are 80 in all
SIGNAL = (2, 8)  # channels, length
UNCHANGED = Normalization(1.0, (0.0,), (1.0,))
SAMPLES = ((12, 9, 0, 0), (0, 10, 8, 0), (6, 0, 11, 0), (7, 8, 9, 0))  # of each client and class; nobody has class 3


def _dataset(
    samples: Sequence[Sequence[int]] = SAMPLES, *, names: Sequence[str] = (), seed: int = 7, channels: int = 1
) -> Dataset:
    """Return pictures of 4 x 4 pixels; `samples` says how many of each class each owner has."""
    rng = np.random.default_rng(seed)
    table = np.array(samples)
    owner = np.repeat(np.arange(len(table)), table.sum(axis=1))
    label = np.concatenate([np.repeat(np.arange(table.shape[1]), row) for row in table])
    pattern = rng.integers(40, 216, (table.shape[1], channels, SIDE, SIDE))
    pixels = (pattern[label] + rng.integers(-40, 40, (len(label), channels, SIDE, SIDE))).astype(np.uint8)
    class_names = tuple(names) or tuple(f"class-{one}" for one in range(table.shape[1]))
    report = DataReport("memory", (channels, SIDE, SIDE), class_names, {"train": tuple(table.sum(axis=0).tolist())})
    split = Split(torch.from_numpy(pixels), torch.from_numpy(label), {"owner": owner})
    return Dataset("tiny", class_names, split, None, None, report)


def _signals() -> Dataset:
    """Return the same as signals of 2 channels and 8 numbers."""
    whole = _dataset()
    x = whole.train.x.float().div(255).reshape(-1, *SIGNAL)
    report = replace(whole.report, shape=SIGNAL)
    return replace(whole, train=replace(whole.train, x=x), report=report)


def _models_for(method: str) -> Callable[[int, tuple[int, ...], int], nn.Module]:
    """Return the tiny networks that differ as much as a method's needs allow."""
    needs = find_method(method).needs
    if "one-architecture" in needs:
        return tiny_models.one_architecture
    return tiny_models.equal_heads if needs & {"equal-width", "equal-head"} else tiny_models.two_widths


def _play(method: str, out: Path, **options: Any) -> RunRecord:
    """Run a method on the tiny federation."""
    usual = {
        "data": _dataset(),
        "models": _models_for(method),
        "partition": "column:owner",
        "rounds": 4,
        "batch_size": 8,
        "lr": 0.1,
        "device": "cpu",
        "checkpoint_every": 2,
    }
    if "proxy" in find_method(method).needs:
        usual["proxy"] = PROXY
    return motley.run(method, out=out, **(usual | options))


def _rows_without_time(record: RunRecord) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name != "seconds"} for row in record.rows]


def _final_weights(record: RunRecord) -> dict[str, Tensor]:
    checkpoint = read_checkpoint(record.path / "checkpoints")
    assert checkpoint is not None
    assert checkpoint.round == record.summary["rounds"]
    return dict(checkpoint.tensors)


def _assert_same_tensors(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert tensor.dtype == other[name].dtype, name
        assert torch.equal(torch.nan_to_num(tensor), torch.nan_to_num(other[name])), name


def _no_auxiliary(name: str, width: int | None = None) -> SplitModel:
    raise AssertionError(f"this client was made without an auxiliary model, but {name} was asked for")


def _client(
    x: Tensor,
    y: Sequence[int],
    model: nn.Module,
    *,
    num_classes: int,
    client_id: int = 0,
    validation: tuple[Tensor, Sequence[int]] | None = None,
    template: Callable[[int], Any] | None = None,
    auxiliary: Callable[[str, int | None], SplitModel] = _no_auxiliary,
    proxy: Proxy | None = None,
    normalization: Normalization = UNCHANGED,
    eval_batch_size: int = 512,
    **training: Any,
) -> Client:
    """Return a client that holds these samples, without an engine around it."""
    labels = torch.tensor(y, dtype=torch.int64)
    held = Samples(*((validation[0], torch.tensor(validation[1])) if validation else (x[:0], labels[:0])))
    empty = Samples(x[:0], labels[:0])
    shard = Shard(
        train=Samples(x, labels),
        validation=held,
        test=empty,
        counts=torch.bincount(labels, minlength=num_classes),
        validation_counts=torch.bincount(held.y, minlength=num_classes),
        normalization=normalization,
    )
    names = tuple(str(one) for one in range(num_classes))
    split = model if isinstance(model, SplitModel) else SplitModel.from_module(model, num_classes=num_classes)
    task = Task(names, tuple(x.shape[1:]), 4, template or (lambda _: split), auxiliary, proxy)
    return Client(client_id, task, split, shard, TrainOptions(**training), EvalOptions(batch_size=eval_batch_size))


@pytest.fixture(scope="session")
def tiny() -> SimpleNamespace:
    """What tests of the rooms above the mathematics need."""
    return SimpleNamespace(
        samples=SAMPLES,
        dataset=_dataset,
        signals=_signals,
        model=tiny_models.two_widths,
        models_for=_models_for,
        play=_play,
        client=_client,
        rows=_rows_without_time,
        weights=_final_weights,
        assert_same_tensors=_assert_same_tensors,
        draws=Draws(3),
    )
