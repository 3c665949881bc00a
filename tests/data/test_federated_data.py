import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.data.dataset import DataReport, Dataset, Split
from motley.data.federated import FederatedData, build_federated_data, heterogeneity
from motley.data.partition import Partition
from motley.data.shards import normalization_of
from motley.data.sources import load_dataset
from motley.errors import InvalidPartition, MotleyWarning
from motley.options import DataOptions, PartitionOptions


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return load_dataset(DataOptions())


def synthetic(train: int, test: int = 0, validation: int = 0, classes: int = 4) -> Dataset:
    """Return a data set whose samples hold their number, so that they can be followed."""

    def split(first: int, number: int) -> Split | None:
        if not number:
            return None
        x = torch.arange(first, first + number, dtype=torch.float32).reshape(-1, 1, 1)
        return Split(x, torch.arange(number) % classes, {"user": np.arange(number) % 3})

    names = tuple("abcdefgh"[:classes])
    report = DataReport("synthetic", (1, 1), names, {})
    filled = split(0, train)
    assert filled is not None
    return Dataset("synthetic", names, filled, split(train, test), split(train + test, validation), report)


def build(dataset: Dataset, run_seed: int = 0, **options) -> FederatedData:
    return build_federated_data(dataset, PartitionOptions(**options), DataOptions(), run_seed)


def all_samples(data: FederatedData) -> list[float]:
    parts = [part for shard in data.shards for part in (shard.train, shard.validation, shard.test)]
    if data.common_test is not None:
        parts.append(data.common_test)
    return sorted(torch.cat([part.x.reshape(-1) for part in parts]).tolist())


@pytest.mark.filterwarnings("ignore:no test data")
@settings(max_examples=60, deadline=None)
@given(
    test=st.sampled_from([0, 40]),
    validation=st.sampled_from([0, 20]),
    protocol=st.sampled_from(["local", "global"]),
    split=st.sampled_from(["per-class", "random"]),
    share=st.sampled_from([None, 0.1, 0.5]),
    scheme=st.sampled_from(["iid", "dirichlet:1", "pathological:2", "pathological-random:3", "column:user"]),
)
def test_every_sample_has_one_place(test, validation, protocol, split, share, scheme):
    held = {} if protocol == "global" else {"validation_fraction": 0.2}
    data = build(
        synthetic(200, test, validation),
        protocol=protocol, split=split, test_fraction=share, scheme=scheme, clients=6, **held,
    )  # fmt: skip
    unused = validation if protocol == "global" else 0
    assert all_samples(data) == list(range(200 + test + validation - unused))
    for shard in data.shards:
        assert shard.counts.tolist() == torch.bincount(shard.train.y, minlength=4).tolist()
        assert shard.validation_counts.tolist() == torch.bincount(shard.validation.y, minlength=4).tolist()
        if split == "per-class":
            assert set(torch.cat([shard.validation.y, shard.test.y]).tolist()) <= set(shard.train.y.tolist())


def test_local_merges_the_splits_of_the_source_and_says_so():
    data = build(synthetic(100, 40, 20), scheme="iid", clients=4)
    assert data.common_test is None
    assert any("train + test + validation merged (train 100, test 40, validation 20)" in note for note in data.notes)


def test_global_keeps_the_test_split_and_halves_what_is_held_out():
    data = build(synthetic(400, 40), scheme="iid", clients=4, protocol="global")
    assert data.common_test is not None
    assert data.common_test.x.reshape(-1).tolist() == list(range(400, 440))
    for shard in data.shards:  # 100 samples, 20 % held out per class and halved
        assert abs(len(shard.validation) - len(shard.test)) <= 1
        assert 18 <= len(shard.validation) + len(shard.test) <= 22


def test_global_without_a_test_split_holds_out_a_fifth_of_every_class(digits):
    data = build(digits, protocol="global")
    assert data.common_test is not None
    held = torch.bincount(data.common_test.y, minlength=10)
    whole = torch.bincount(digits.train.y, minlength=10)
    assert (held - 0.2 * whole).abs().max() <= 0.5
    assert any("common test set" in note for note in data.notes)
    given_out = np.concatenate([*data.partition.indices, data.common_test_indices])
    assert np.array_equal(np.sort(given_out), np.arange(1797))


def test_the_defaults_work_on_digits(digits):
    data = build(digits)
    assert len(data.shards) == 20
    assert min(len(index) for index in data.partition.indices) >= 10
    assert data.num_classes == 10
    assert data.input_shape == (1, 8, 8)
    assert 1 <= data.heterogeneity.mean_effective_classes < 5
    assert data.partition.tries == 1 or any("acceptance rate" in note for note in data.notes)


def test_a2_a_client_without_test_data_keeps_its_training_data():
    labels = torch.tensor([0, 1, 2, 3, 0, 0, 0, 0, 1, 1, 1, 1])
    users = np.array([0] * 4 + [1] * 8)
    report = DataReport("few", (1, 1), ("a", "b", "c", "d"), {})
    split = Split(torch.zeros(12, 1, 1), labels, {"user": users})
    dataset = Dataset("few", ("a", "b", "c", "d"), split, None, None, report)
    with pytest.warns(MotleyWarning, match=r"no test data at 1 of 2 clients \(0\)"):
        data = build(dataset, scheme="column:user", validation_fraction=0.25)
    first, second = data.shards
    assert (len(first.train), len(first.validation), len(first.test)) == (4, 0, 0)
    assert first.test.x.shape == (0, 1, 1)
    assert len(second.test) == 2
    assert any("no test data" in note for note in data.notes)


def test_the_partition_follows_its_own_seed_or_that_of_the_run(digits):
    own = {build(digits, run, scheme="iid").partition.digest() for run in range(3)}
    following = {build(digits, run, scheme="iid", seed="run").partition.digest() for run in range(3)}
    assert len(own) == 1
    assert len(following) == 3


def test_same_seed_same_splits(digits):
    first, second = build(digits), build(digits)
    for one, other in zip(first.shards, second.shards, strict=True):
        assert torch.equal(one.train.x, other.train.x)
        assert torch.equal(one.test.y, other.test.y)


def test_partition_and_splits_are_stored_together(digits, tmp_path):
    data = build(digits, validation_fraction=0.1)
    data.save_partition(tmp_path / "partition.npz")
    assert Partition.load(tmp_path / "partition.npz").digest() == data.partition.digest()
    arrays = np.load(tmp_path / "partition.npz", allow_pickle=False)
    for name in ("train", "validation", "test"):
        stored = np.split(arrays[name], np.cumsum(arrays[f"{name}_sizes"])[:-1])
        for index, shard in zip(stored, data.shards, strict=True):
            assert np.array_equal(digits.train.y.numpy()[index], getattr(shard, name).y.numpy())


def test_clients_by_column_are_counted_and_told():
    data = build(synthetic(90), scheme="column:user")
    assert len(data.shards) == 3
    assert any("column:user gives 3 clients" in note for note in data.notes)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"protocol": "global", "validation_fraction": 0.1}, "validation_fraction is for protocol local"),
        ({"balance": True}, "balance is for pathological:K"),
    ],
)
def test_an_option_that_would_not_be_looked_at_is_refused(digits, options, words):
    with pytest.raises(InvalidPartition, match=words):
        build(digits, **options)


def test_heterogeneity_by_hand():
    # Pool 4, 4. Client 0 has (4, 0): one class, distance (|1 - .5| + |0 - .5|) / 2 = .5. Client 1 has (2, 2): 2 and 0.
    figures = heterogeneity(np.array([[4, 0], [2, 2], [0, 4]]))
    np.testing.assert_allclose(figures.effective_classes, [1, 2, 1])
    np.testing.assert_allclose(figures.distances, [0.5, 0, 0.5])
    assert figures.mean_distance == pytest.approx(1 / 3)


def test_a_smaller_alpha_is_more_skewed(digits):
    few, many = (build(digits, scheme=f"dirichlet:{alpha}", min_samples=1).heterogeneity for alpha in (0.1, 10))
    assert few.mean_effective_classes < many.mean_effective_classes
    assert few.mean_distance > many.mean_distance


def test_normalization_kinds():
    x = torch.tensor([[0, 255], [51, 204]], dtype=torch.uint8).reshape(2, 2, 1, 1)
    assert normalization_of(x, "half").mean == (0.5, 0.5)
    assert normalization_of(x, "half").scale == 1 / 255
    assert normalization_of(x, "none").std == (1.0, 1.0)
    channel = normalization_of(x, "channel")  # 0, 0.2 and 1, 0.8
    assert channel.mean == pytest.approx((0.1, 0.9))
    assert channel.std == pytest.approx((0.1, 0.1))
    signals = torch.tensor([[1.0, 3.0], [1.0, 3.0]]).reshape(2, 1, 2)
    assert normalization_of(signals, "channel").mean == (2.0,)
    assert normalization_of(signals, "channel").std == (1.0,)
    assert normalization_of(signals, "half").mean == (0.0,)
    assert normalization_of(torch.full((3, 1, 2), 4.0), "channel").std == (1.0,)


def test_channel_normalization_reads_training_samples_only():
    data = build_federated_data(
        synthetic(100), PartitionOptions(scheme="iid", clients=2), DataOptions(normalize="channel"), 0
    )
    trained = torch.cat([shard.train.x for shard in data.shards])
    assert data.normalization.mean[0] == pytest.approx(trained.mean().item())
    assert data.normalization.std[0] == pytest.approx(trained.std(unbiased=False).item())


def test_shards_move_as_a_whole(digits):
    shard = build(digits).shards[0].to("meta")
    assert {shard.train.x.device.type, shard.test.y.device.type, shard.counts.device.type} == {"meta"}


@pytest.mark.parametrize("split", ["per-class", "random"])
def test_with_shared_every_client_has_all_samples_in_the_same_parts(split):
    data = build(synthetic(40, test=8), scheme="shared", clients=3, split=split, validation_fraction=0.2)
    alone = build(synthetic(40, test=8), scheme="shared", clients=1, split=split, validation_fraction=0.2)
    assert len(data.shards) == 3
    for shard in data.shards:
        parts = [part.x.flatten().tolist() for part in (shard.train, shard.validation, shard.test)]
        assert sorted(x for part in parts for x in part) == list(range(48))
        first = alone.shards[0]
        assert parts == [part.x.flatten().tolist() for part in (first.train, first.validation, first.test)]
    assert data.normalization == alone.normalization
    assert data.partition.counts(np.arange(48) % 4, 4).tolist() == [[12] * 4] * 3
    assert "shared: every client has the same samples" in " ".join(data.notes)


def test_shared_takes_no_value_and_leaves_the_common_test_set_alone():
    with pytest.raises(InvalidPartition, match="'shared:2', but this one is written shared"):
        build(synthetic(40), scheme="shared:2")
    data = build(synthetic(40), scheme="shared", clients=2, protocol="global")
    held = set(data.shards[0].train.x.flatten().tolist()) | set(data.shards[0].test.x.flatten().tolist())
    assert not held & set(data.common_test.x.flatten().tolist())
