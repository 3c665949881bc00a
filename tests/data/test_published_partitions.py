import numpy as np
import pytest
import torch
from partition_numbers import (
    DIR_C10,
    DIR_C10_TRAIN,
    DIR_C10_TRAIN_SIZES,
    PAT_C10,
    PAT_C10_TRAIN_SIZES,
    PAT_C100_SIZES,
)

from motley.data.dataset import DataReport, Dataset, Split
from motley.data.federated import FederatedData, build_federated_data
from motley.data.partition import make_partition
from motley.options import DataOptions, PartitionOptions

TEN = np.repeat(np.arange(10), 6000)


def federate(scheme: str, labels: np.ndarray = TEN) -> FederatedData:
    """Partition and split labels as the sheet's preset does; the samples hold nothing."""
    names = tuple(str(label) for label in range(int(labels.max()) + 1))
    train = Split(torch.zeros(len(labels), 1, 1, 1, dtype=torch.uint8), torch.from_numpy(labels))
    report = DataReport("synthetic", (1, 1, 1), names, {})
    dataset = Dataset("synthetic", names, train, None, None, report)
    return build_federated_data(dataset, PartitionOptions(scheme=scheme, split="random"), DataOptions(), run_seed=0)


def test_v13_capped_dirichlet_gives_the_published_table():
    partition = make_partition(TEN, "dirichlet-capped:0.1", clients=20, num_classes=10, seed=1)
    assert partition.counts(TEN, 10).tolist() == DIR_C10


@pytest.mark.filterwarnings("ignore:no test data")
def test_v13_random_split_reads_on_from_the_partition_s_generator():
    data = federate("dirichlet-capped:0.1")
    assert [shard.counts.tolist() for shard in data.shards] == DIR_C10_TRAIN
    assert [len(shard.train) for shard in data.shards] == DIR_C10_TRAIN_SIZES
    # Not stratified: the only sample of class 4 at client 19 is a test sample.
    assert data.shards[19].counts[4] == 0
    assert (data.shards[19].test.y == 4).sum() == 1


def test_v13_pathological_gives_the_published_pieces():
    partition = make_partition(TEN, "pathological:2", clients=20, num_classes=10, seed=1)
    held = [[(c, int(n)) for c, n in enumerate(row) if n] for row in partition.counts(TEN, 10)]
    assert held == PAT_C10


def test_v13_pathological_training_sizes():
    assert [len(shard.train) for shard in federate("pathological:2").shards] == PAT_C10_TRAIN_SIZES


def test_v13_pathological_of_a_hundred_classes():
    labels = np.repeat(np.arange(100), 600)
    partition = make_partition(labels, "pathological:10", clients=20, num_classes=100, seed=1)
    assert [len(index) for index in partition.indices] == PAT_C100_SIZES


def test_v13_holds_for_any_order_of_the_pool():
    shuffled = np.random.default_rng(3).permutation(TEN)
    partition = make_partition(shuffled, "dirichlet-capped:0.1", clients=20, num_classes=10, seed=1)
    assert partition.counts(shuffled, 10).tolist() == DIR_C10
