"""The proxy set: taken out of the pool before the partition, held by nobody."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import motley
from motley.data.dataset import DataReport, Dataset, Split
from motley.data.federated import FederatedData, build_federated_data
from motley.data.notes import Notes
from motley.data.proxy import proxy_positions
from motley.draws import Draws
from motley.engine.comparison import plan_comparison
from motley.engine.config import ConfigFile, resolve
from motley.engine.setup import build_federation
from motley.errors import InvalidConfig
from motley.options import DataOptions, PartitionOptions
from motley.training.inputs import Normalizer


def numbered(train: int, test: int = 0, classes: int = 4) -> Dataset:
    """Return a data set whose samples hold their number, so that they can be followed."""

    def split(first: int, number: int) -> Split | None:
        x = torch.arange(first, first + number, dtype=torch.float32).reshape(-1, 1, 1)
        return Split(x, torch.arange(number) % classes, {}) if number else None

    filled = split(0, train)
    assert filled is not None
    report = DataReport("numbered", (1, 1), tuple("abcd"[:classes]), {})
    return Dataset("numbered", tuple("abcd"[:classes]), filled, split(train, test), None, report)


def build(dataset: Dataset, proxy: int | None, run_seed: int = 0, **options) -> FederatedData:
    return build_federated_data(
        dataset, PartitionOptions(scheme="iid", clients=5, **options), DataOptions(proxy=proxy), run_seed
    )


def owned(data: FederatedData) -> list[float]:
    parts = [part for shard in data.shards for part in (shard.train, shard.validation, shard.test)]
    parts += [data.common_test] if data.common_test is not None else []
    return torch.cat([part.x.flatten() for part in parts]).tolist()


@pytest.mark.parametrize("protocol", ["local", "global"])
@pytest.mark.parametrize("test", [0, 40])
def test_no_client_and_no_test_set_has_a_sample_of_the_proxy(protocol, test):
    data = build(numbered(200, test), 30, protocol=protocol)
    taken = data.proxy.x.flatten().tolist()
    assert len(taken) == len(set(taken)) == len(data.proxy) == 30
    assert sorted(owned(data) + taken) == list(range(200 + test))
    assert torch.bincount(data.proxy.y).tolist() == [8, 8, 7, 7]
    assert any(note.startswith(f"proxy: 30 of the {len(owned(data)) + 30 - (test or 40) * (protocol == 'global')}")
               for note in data.notes)  # fmt: skip
    arrays = data.partition_arrays()
    assert arrays["proxy"].tolist() == data.proxy_indices.tolist() == sorted(data.proxy_indices.tolist())
    if protocol == "global":  # the common test set is where it is without a proxy
        assert torch.equal(data.common_test.x, build(numbered(200, test), None, protocol=protocol).common_test.x)


def test_without_a_proxy_nothing_is_drawn_stored_or_said():
    data = build(numbered(200), None)
    assert data.proxy is None
    assert "proxy" not in data.partition_arrays()
    assert not any("proxy" in note for note in data.notes)
    # What the partition of these samples was before there was a proxy set.
    assert data.partition.digest() == "a6d223aa88cc21dd7c07b6a7dc9084ee44f1c0afb99a92c7cf83f2c58ea20f52"


def test_the_seed_of_the_partition_decides_alone():
    sets = [build(numbered(200), 20, run_seed, seed=3).proxy_indices.tolist() for run_seed in (0, 1)]
    assert sets[0] == sets[1]
    assert sets[0] != build(numbered(200), 20, seed=4).proxy_indices.tolist()
    assert (
        build(numbered(200), 20, 4, seed="run").proxy_indices.tolist()
        == build(numbered(200), 20, seed=4).proxy_indices.tolist()
    )


@given(labels=st.lists(st.integers(0, 4), min_size=2, max_size=80), data=st.data())
def test_every_class_gives_its_share_to_within_one_sample(labels, data):
    number = data.draw(st.integers(1, len(labels) - 1))
    held = np.array(labels)
    chosen = proxy_positions(held, np.arange(len(held)), number, Draws(5), Notes())
    assert len(np.unique(chosen)) == number
    for label in set(labels):
        share = number * (held == label).sum() / len(held)
        assert abs((held[chosen] == label).sum() - share) < 1


def test_a_pool_that_is_too_small_is_refused():
    with pytest.raises(
        InvalidConfig, match=r"data.proxy takes 80 samples out of the pool .* the pool has 80; set --proxy"
    ):
        build(numbered(80), 80)


def test_methods_that_need_a_proxy_get_one_and_others_do_not():
    assert resolve("fedmd", ConfigFile(), {}, {}).settings.data.proxy == 500
    assert resolve("fedmd", ConfigFile(), {"proxy": 40}, {}).settings.data.proxy == 40
    assert resolve("local", ConfigFile(), {}, {}).settings.data.proxy is None
    assert resolve("local", ConfigFile(), {"proxy": 40}, {}).settings.data.proxy == 40


def test_all_methods_of_a_comparison_have_the_same_pool():
    plan = plan_comparison(ConfigFile(), {}, {}, methods=["local", "fedmd"])
    assert [row.config.settings.data.proxy for row in plan.rows] == [500, 500]
    alone = plan_comparison(ConfigFile(), {}, {}, methods=["local"])
    assert [row.config.settings.data.proxy for row in alone.rows] == [None]


def test_a_run_stores_the_size_of_the_proxy_and_its_positions(tiny, tmp_path):
    tiny.play("fedmd", tmp_path / "run", rounds=1)
    assert "proxy = 6" in (tmp_path / "run" / "config.toml").read_text(encoding="utf-8")
    with np.load(tmp_path / "run" / "partition.npz") as stored:
        assert len(stored["proxy"]) == 6
    assert motley.load_run(tmp_path / "run").finished


@pytest.mark.parametrize("normalize", ["half", "channel"])
def test_the_task_holds_the_proxy_as_models_see_it(tiny, normalize):
    flags = {"proxy": 6, "partition": "column:owner", "device": "cpu", "normalize": normalize}
    config = resolve("local", ConfigFile(), flags, {})
    federation = build_federation(config, dataset=tiny.dataset(), factory=tiny.model)
    held, proxy = federation.data.proxy, federation.task.proxy
    expected = Normalizer.of(federation.data.normalization, held.x)(held.x)
    assert torch.equal(proxy.x, expected)
    assert proxy.x.dtype == torch.float32
    assert all(client.task.proxy is proxy for client in federation.clients)


@pytest.mark.parametrize("method", ["local", "feddf", "msfkd", "fedmd"])
def test_labels_of_the_proxy_are_kept_away_from_all_methods_but_that_whose_sheet_gives_them(tiny, method):
    config = resolve(method, ConfigFile(), {"proxy": 6, "partition": "column:owner", "device": "cpu"}, {})
    federation = build_federation(config, dataset=tiny.dataset(), factory=tiny.models_for(method))
    labels = federation.task.proxy.y
    if method == "fedmd":  # for its pretraining
        assert torch.equal(labels, federation.data.proxy.y)
    else:
        assert labels is None
