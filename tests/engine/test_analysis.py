"""`analyse` against what the run itself sent and kept."""

import json

import numpy as np
import pytest
import torch

from motley.engine.analyse import analyse
from motley.engine.runs import stored_config
from motley.engine.setup import build_federation
from motley.errors import InvalidInput, InvalidRunFolder, MotleyWarning
from motley.functional.topology import relations
from motley.record.analysis import DIFFERENT, SAME
from motley.record.checkpoints import read_checkpoint
from motley.record.folder import RunFolder
from motley.report.analysis import plain


@pytest.fixture
def study(tiny):
    def run(method, path, models=None, **options):
        models = models or tiny.models_for(method)
        record = tiny.play(method, path, models=models, **options)
        return record, analyse(path, draws=9, dataset=options.get("data", tiny.dataset()), factory=models)

    return run


def equal_width(client_id, shape, num_classes):
    torch.manual_seed(client_id)
    inputs = int(np.prod(shape))
    return torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(inputs, 6), torch.nn.ReLU(), torch.nn.Linear(6, num_classes)
    )


@pytest.mark.parametrize("exchange", ["server", "replicated"])
def test_the_relations_are_those_that_the_clients_sent_in_the_last_round(study, tmp_path, exchange):
    record, found = study("fedtopo", tmp_path / "run", rounds=4, checkpoint_every=1, exchange=exchange)
    prefix = "state/" if exchange == "server" else "replica/0/"
    last = read_checkpoint(record.path / "checkpoints").tensors
    with pytest.warns(MotleyWarning, match="the rows end with round 3"):
        before = read_checkpoint(record.path / "checkpoints", last_round=3)
    made = 0.7 * before.tensors[f"{prefix}relations"] + 0.3 * found.mechanism.current  # Eq. 8 with what was recomputed
    seen = last[f"{prefix}times"] > 0
    torch.testing.assert_close(made[seen], last[f"{prefix}relations"][seen], rtol=0, atol=1e-6)
    assert torch.equal(found.mechanism.relations, last[f"{prefix}relations"])
    assert torch.equal(found.mechanism.reliability, last[f"{prefix}reliability"])
    assert found.from_server
    assert (found.round, found.rounds) == (4, 4)


def test_the_options_of_the_run_decide_what_its_relations_are(study, tmp_path):
    control, found = study("fedtopo", tmp_path / "control", relation_control="constant", ema_init="debias")
    state = read_checkpoint(control.path / "checkpoints").tensors
    assert not torch.equal(found.mechanism.relations, state["state/relations"])  # freed of the start
    assert not torch.equal(found.mechanism.relations, state["state/guide"])  # and not the control
    observed = state["state/times"] > 0
    assert float((found.mechanism.relations - found.mechanism.current)[observed].abs().max()) < 0.2


def test_without_a_server_of_relations_they_are_made_of_the_final_models(study, tiny, tmp_path):
    record, found = study("local", tmp_path / "run", models=equal_width)
    weights = tiny.weights(record)
    assert not found.from_server
    assert torch.equal(found.mechanism.relations, found.mechanism.current)
    # Client 1 by hand: features of its training part with the weights of the checkpoint.
    assert found.mechanism.prototypes is not None
    layer = {name: weights[f"client/1/model/backbone.module.1.{name}"] for name in ("weight", "bias")}
    config = stored_config(RunFolder.open(record.path))
    shard = build_federation(config, dataset=tiny.dataset(), factory=equal_width).clients[1].shard
    inputs = (shard.train.x.float() / 255 - 0.5) / 0.5
    features = torch.relu(inputs.flatten(1) @ layer["weight"].T + layer["bias"])
    points = torch.stack([features[shard.train.y == label].mean(dim=0).double() for label in range(4)])
    expected = relations(points, shard.counts)
    torch.testing.assert_close(found.mechanism.local[1], expected, rtol=0, atol=1e-6, equal_nan=True)


def test_shared_data_compare_models_on_the_same_samples(study, tiny, tmp_path):
    data = tiny.dataset([[9, 8, 7, 8, 9]])
    _, found = study("local", tmp_path / "run", models=None, data=data, partition="shared", clients=4, rounds=6, lr=0.2)
    assert (found.mechanism.counts == found.mechanism.counts[0]).all()
    assert found.architectures == ("Sequential", "Sequential-2") * 2  # the factory's two networks
    assert {name: one.pairs for name, one in found.consistency["pooled"].groups.items()} == {DIFFERENT: 4, SAME: 2}
    assert found.mechanism.prototypes is None  # widths 8 and 12


def test_clients_without_pairs_are_named_and_everything_is_plain(study, tiny, tmp_path):
    data = tiny.dataset([[9, 0, 0], [4, 6, 0], [5, 4, 6]])
    _, found = study("fedtopo", tmp_path / "run", models=equal_width, data=data)
    assert found.mechanism.left_out == (0,)
    told = plain(found)
    assert told["left_out"] == [0]
    assert told["clients"]["D_r"][0] is None
    assert set(told["means"]) == {"D_p", "D_r", "D_rs", "D_rs_norm"}
    json.dumps(told["controls"])
    counts, points = found.mechanism.counts, found.projection
    assert torch.equal(points.local.isfinite().all(dim=2), counts > 0)
    assert points.overall.isfinite().all()


@pytest.mark.parametrize("method", ["crad", "fedproto", "fedkd", "fedmrl", "fedgh"])
def test_other_methods_can_be_studied_too(study, tmp_path, method):
    small = {"auxiliary": "small-mlp"} if method in {"fedkd", "fedmrl"} else {}
    split = {"test_fraction": 0.4, "validation_fraction": 0.3} if method == "crad" else {}
    _, found = study(method, tmp_path / "run", rounds=1, **small, **split)
    assert found.method == method
    assert not found.from_server
    assert found.mechanism.means.means[-2] is not None


def test_late_clients_and_single_rounds_are_studied(study, tmp_path):
    _, found = study("fedtopo", tmp_path / "run", rounds=2, participation=1)
    assert found.mechanism.means.means[-1] is not None


def test_what_cannot_be_studied_is_refused(study, tiny, tmp_path):
    record, _ = study("local", tmp_path / "run", rounds=1)
    usual = {"draws": 9, "dataset": tiny.dataset(), "factory": tiny.models_for("local")}
    with pytest.raises(InvalidInput, match="--permutations is 0"):
        analyse(record.path, **(usual | {"draws": 0}))
    with pytest.raises(InvalidRunFolder, match="is no run folder"):
        analyse(tmp_path, **usual)
    other = [list(row) for row in tiny.samples]
    other[0][0] += 3
    with pytest.raises(
        InvalidRunFolder, match=r"partition.npz does not fit the data as they are now; analyse the run with"
    ):
        analyse(record.path, **(usual | {"dataset": tiny.dataset(other)}))
    bare = tiny.play("local", tmp_path / "bare", rounds=1, checkpoint_every=0)
    with pytest.raises(InvalidRunFolder, match="no checkpoint, and so no models to analyse"):
        analyse(bare.path, **usual)


class Scores(torch.nn.Module):
    """A network without a linear layer at its end."""

    def __init__(self, inputs, num_classes):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(inputs, num_classes))

    def forward(self, x):
        return x.flatten(1) @ self.weight


def test_models_of_scores_alone_have_no_prototypes(study, tmp_path):
    with pytest.raises(InvalidRunFolder, match="gives scores alone; prototypes need its features"):
        study("local", tmp_path / "run", models=lambda _, shape, num: Scores(int(np.prod(shape)), num), rounds=1)
