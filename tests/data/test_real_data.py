import time

import numpy as np
import pytest

from motley.data.dataset import Dataset
from motley.data.federated import build_federated_data
from motley.data.shards import normalization_of
from motley.data.sources import load_dataset
from motley.options import DataOptions, PartitionOptions

# Facts and channel statistics of the training files, from the read-me of the data. Its means miss those of a float64 sum
# over all pixels by up to 0.0053 (blood cells); its deviations agree.
SETS = {
    "cifar10": ((3, 32, 32), 10, 12_000, 3_000),
    "cifar100": ((3, 32, 32), 100, 10_000, 2_000),
    "tiny-imagenet": ((3, 64, 64), 200, 4_000, 1_000),
    "bloodcells": ((3, 28, 28), 8, 4_800, 1_200),
    "har": ((9, 128), 6, 7_646, 2_547),
    "iwildcam": ((3, 64, 64), 16, 1_864, 629),
}
STATISTICS = {
    "cifar10": ((0.4902, 0.4808, 0.4462), (0.2471, 0.2430, 0.2607)),
    "cifar100": ((0.5075, 0.4849, 0.4385), (0.2677, 0.2568, 0.2761)),
    "tiny-imagenet": ((0.4771, 0.4417, 0.3909), (0.2765, 0.2696, 0.2811)),
    "bloodcells": ((0.7961, 0.6620, 0.6915), (0.2245, 0.2535, 0.0951)),
    "iwildcam": ((0.3858, 0.3900, 0.3713), (0.2561, 0.2576, 0.2581)),
}


def load(real_data, name: str) -> Dataset:
    return load_dataset(DataOptions(source=f"parquet:{real_data / name}"))


@pytest.mark.parametrize("name", SETS)
def test_real_sets_are_read_whole(real_data, name):
    shape, classes, train, test = SETS[name]
    dataset = load(real_data, name)
    assert (dataset.input_shape, dataset.num_classes) == (shape, classes)
    assert dataset.test is not None
    assert (len(dataset.train), len(dataset.test)) == (train, test)
    assert sum(dataset.report.duplicates.values()) == 0
    if name in STATISTICS:
        normalization = normalization_of(dataset.train.x, "channel")
        mean, std = STATISTICS[name]
        assert normalization.mean == pytest.approx(mean, abs=6e-3)
        assert normalization.std == pytest.approx(std, abs=1e-4)


def test_gray_pictures_of_tiny_imagenet_are_counted(real_data):
    assert load(real_data, "tiny-imagenet").report.modes == {"L": 101, "RGB": 4_899}


def test_signals_of_har_are_scaled(real_data):
    dataset = load(real_data, "har")
    assert dataset.train.x.dtype.is_floating_point
    assert dataset.train.x[:, 6].mean().item() == pytest.approx(0.81, abs=0.01)  # total_acc_x, in g
    assert dataset.report.counts["train"] == (1296, 1126, 1024, 1328, 1423, 1449)
    assert dataset.report.counts["test"] == (422, 388, 353, 437, 469, 478)
    assert len(np.unique(dataset.train.columns["subject"])) == 30


@pytest.mark.parametrize(("name", "column", "clients"), [("har", "subject", 30), ("iwildcam", "user", 24)])
def test_natural_clients(real_data, name, column, clients):
    data = build_federated_data(
        load(real_data, name), PartitionOptions(scheme=f"column:{column}"), DataOptions(), run_seed=0
    )
    assert len(data.shards) == clients


def test_cifar10_loads_within_seconds(real_data):
    start = time.monotonic()
    load(real_data, "cifar10")
    assert time.monotonic() - start < 15  # 15,000 pictures take 2 to 3 s on two cores
