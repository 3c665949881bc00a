import pickle
import random
import re
import sys

import numpy as np
import pytest
import torch
from torch import nn

from motley.draws import Draws
from motley.errors import InvalidModel
from motley.models.assign import ModelPlan, check_models, initial_model, plan_models
from motley.models.registry import POOLS
from motley.models.split import SplitModel
from motley.options import ModelOptions


def plan(pool="small4", *, clients=6, shape=(1, 8, 8), classes=10, width=None, factory=None) -> ModelPlan:
    options = ModelOptions(pool=pool, width=width)
    return plan_models(options, clients=clients, input_shape=shape, num_classes=classes, factory=factory)


def two_layers(client_id, input_shape, num_classes):
    return nn.Sequential(
        nn.Flatten(), nn.Linear(torch.Size(input_shape).numel(), 4 + client_id), nn.Linear(4 + client_id, num_classes)
    )


def scores_alone(client_id, input_shape, num_classes):
    return nn.Sequential(nn.Conv2d(1, num_classes, input_shape[1:]), nn.Flatten())


def global_state():
    legacy = np.random.get_state()  # noqa: NPY002 - the one that must not move
    return random.getstate()[1], legacy[1].tolist(), torch.get_rng_state().tolist()


def test_architectures_go_round():
    names = plan(clients=6).names
    assert names == (*POOLS["small4"].members, "small-linear", "small-cnn")
    assert plan("fedtopo8", clients=20).names.count("resnet18") == 3
    assert plan("fedtopo8", clients=20).names.count("resnet34") == 2
    assert plan().architecture(5) == "small-cnn"
    assert plan().clients_of("small-cnn") == (1, 5)


def test_a_pool_can_be_a_list_or_one_architecture():
    assert plan("small-mlp, small-bn", clients=3).names == ("small-mlp", "small-bn", "small-mlp")
    assert plan("cnn6", clients=2).names == ("cnn6", "cnn6")
    assert plan("mild").names[:2] == ("cnn", "resnet18")


@pytest.mark.parametrize(
    ("pool", "width", "expected"),
    [
        ("small4", None, 64), ("small4", 16, 16), ("fedtopo8", None, 512), ("fedtopo8", "own", None), ("crad3", None, None),
        ("crad3", 128, 128), ("resnet50,cnn", None, 512), ("cnn6", None, None), ("cnn6,resnet18", None, None), ("signal3", None, 64),
    ],
)  # fmt: skip
def test_the_feature_width_is_the_pools_unless_it_is_given(pool, width, expected):
    assert plan(pool, width=width).width == expected


def test_a_width_below_one_is_refused():
    with pytest.raises(InvalidModel, match="width is 0; it must be at least 1 or 'own'"):
        plan(width=0)


@pytest.mark.parametrize(
    ("pool", "near"),
    [
        ("restnet18", "resnet18"),
        ("smal4", "small4"),
        ("small-linear,smallcn", "small-cnn"),
        ("fedtopo", "fedtopo8"),
        ("moderat", "moderate"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(pool, near):
    with pytest.raises(InvalidModel, match=f"is not a known model; did you mean .*'{near}'.*'motley list models'"):
        plan(pool)


def test_a_name_like_no_other_and_an_empty_entry_are_refused():
    for pool in ("qqqq", "cnn,,cnn6", "", ","):
        with pytest.raises(InvalidModel, match=r"is not a known model \('motley list models' shows all\)"):
            plan(pool)


def test_initial_weights_belong_to_seed_and_client_and_leave_the_global_generators_alone():
    for number, pool in ((6, "small4"), (3, "crad3")):
        models = plan(pool, clients=number, shape=(1, 8, 8))
        before = global_state()
        for client in range(number):
            one, two = (initial_model(models, client, Draws(7)).state_dict() for _ in range(2))
            assert all(torch.equal(one[key], two[key]) for key in one)
        assert global_state() == before


def test_clients_of_one_architecture_and_other_seeds_start_differently():
    models = plan("small-cnn", clients=3)
    states = [initial_model(models, client, Draws(seed)).state_dict() for seed in (0, 1) for client in range(3)]
    for index, one in enumerate(states):
        for two in states[:index]:
            assert not any(torch.equal(one[key], two[key]) for key in one)


def test_clients_of_one_architecture_start_alike_only_if_asked():
    options = ModelOptions(pool="small4", same_start=True)
    models = plan_models(options, clients=8, input_shape=(1, 8, 8), num_classes=10)
    states = [initial_model(models, client, Draws(3)).state_dict() for client in range(8)]
    own = [
        initial_model(plan("small4", clients=8, shape=(1, 8, 8)), client, Draws(3)).state_dict() for client in (0, 4)
    ]
    for client in range(4):
        one, two = states[client], states[client + 4]
        assert all(torch.equal(one[key], two[key]) for key in one)
        assert all(one[key].data_ptr() != two[key].data_ptr() for key in one)  # alike, not the same (case C8)
    assert all(torch.equal(states[0][key], own[0][key]) for key in own[0])  # client 0 is where it was
    assert not all(torch.equal(states[4][key], own[1][key]) for key in own[1])


def test_case_c8_no_two_clients_share_storage():
    for pool, shape in (("small4", (1, 8, 8)), ("signal3", (2, 16)), ("cnn6", (1, 8, 8))):
        models = plan(pool, clients=6, shape=shape)
        built = [initial_model(models, client, Draws(0)) for client in range(6)]
        pointers = [entry.untyped_storage().data_ptr() for model in built for entry in model.state_dict().values()]
        assert len(pointers) == len(set(pointers))


def test_a_plan_can_be_pickled():
    for models in (plan(), plan(factory=two_layers), plan("signal3", shape=(9, 32))):
        again = pickle.loads(pickle.dumps(models))
        assert again == models
        one, two = (initial_model(some, 1, Draws(0)).state_dict() for some in (models, again))
        assert all(torch.equal(one[key], two[key]) for key in one)


@pytest.mark.parametrize(
    ("pool", "shape", "width"),
    [
        ("small4", (1, 8, 8), None), ("small4", (3, 28, 28), None), ("small4", (1, 32, 32), "own"), ("small4", (3, 9, 13), 20),
        ("signal3", (9, 128), None), ("crad3", (3, 32, 32), 64), ("cnn,resnet18", (1, 28, 28), None), ("fedtopo8-moderate", (3, 8, 8), None),
    ],
)  # fmt: skip
def test_case_b3_pools_pass_the_trial_and_it_leaves_no_trace(pool, shape, width):
    models = plan(pool, shape=shape, width=width, clients=5)
    before = global_state()
    check_models(models, Draws(0))
    assert global_state() == before


def test_case_b3_a_picture_that_is_too_small_is_named_with_architecture_shape_size_and_clients():
    expected = "model cnn6 does not work on inputs of shape (1, 3, 3) with 10 classes; its smallest size is 4; it is the model of clients 0, 2, 4:"
    with pytest.raises(InvalidModel, match=re.escape(expected)):
        check_models(plan("cnn6,small-mlp", clients=6, shape=(1, 3, 3)), Draws(0))


def test_case_b3_at_most_ten_clients_are_shown():
    with pytest.raises(InvalidModel, match=r"clients 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 15 more: .*pool signal3"):
        check_models(plan("small-cnn", clients=25, shape=(9, 128)), Draws(0))


def test_case_b3_a_factory_is_tried_for_every_client():
    def factory(client_id, input_shape, num_classes):
        return two_layers(client_id, input_shape if client_id != 3 else (1, 4, 4), num_classes)

    with pytest.raises(
        InvalidModel,
        match=r"factory does not work on inputs of shape \(1, 8, 8\) .*the model of client 3: mat1 and mat2",
    ):
        check_models(plan(factory=factory), Draws(0))


def test_a_factory_makes_the_models():
    models = plan(factory=two_layers)
    assert models.names == (f"{__name__}:two_layers",) * 6
    assert [initial_model(models, client, Draws(0)).feature_width for client in range(3)] == [4, 5, 6]
    check_models(models, Draws(0))
    with pytest.raises(
        InvalidModel, match=r"gives client 1 a Sequential with features of width 5, but the common width is 4"
    ):
        check_models(plan(factory=two_layers, width=4), Draws(0))


def test_a_factory_may_return_a_split_model_and_nothing_but_modules():
    models = plan(factory=lambda client, shape, classes: SplitModel(nn.Flatten(), nn.Linear(64, classes)))
    check_models(models, Draws(0))
    with pytest.raises(
        InvalidModel, match=r"returned an object of type int for client 0; expected a torch\.nn\.Module"
    ):
        check_models(plan(factory=lambda client, shape, classes: 3), Draws(0))


def test_case_b2_a_factory_without_a_head_runs_where_scores_are_enough():
    models = plan(factory=scores_alone)
    check_models(models, Draws(0), needs_features=False)
    with pytest.raises(InvalidModel, match=r"scores_alone .*client 0: Sequential has no recognisable head"):
        check_models(models, Draws(0))


def test_a_factory_is_found_by_its_address_from_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "my_models_of_a_test.py").write_text(
        "from torch import nn\n\n\ndef make(client_id, input_shape, num_classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    models = plan("my_models_of_a_test:make")
    check_models(models, Draws(0))
    assert models.architecture(0) == "my_models_of_a_test:make"
    assert pickle.loads(pickle.dumps(models)) == models
    for pool, words in (
        ("no_such_module_here:make", "cannot be imported"),
        ("my_models_of_a_test:nothing", "has no function 'nothing'"),
    ):
        with pytest.raises(InvalidModel, match=words):
            initial_model(plan(pool), 0, Draws(0))
    monkeypatch.delitem(sys.modules, "my_models_of_a_test")
