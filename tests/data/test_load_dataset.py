import json

import numpy as np
import pytest
import torch
from case_inputs import class_sets
from sklearn.datasets import load_digits

from motley.data.sources import load_dataset
from motley.errors import InvalidData
from motley.options import DataOptions


def test_digits_are_scaled_to_eight_bits():
    dataset = load_dataset(DataOptions())
    assert dataset.input_shape == (1, 8, 8)
    assert (len(dataset.train), dataset.test, dataset.validation) == (1797, None, None)
    values, labels = load_digits(return_X_y=True)
    # 16 becomes 255, 8 becomes 127.5, rounded to the even 128.
    assert np.array_equal(dataset.train.x.numpy().reshape(1797, 64), np.round(values * 255 / 16).astype(np.uint8))
    assert np.array_equal(dataset.train.y.numpy(), labels)


def test_the_report_is_plain_json():
    report = load_dataset(DataOptions()).report
    assert json.loads(json.dumps(report.as_dict())) == report.as_dict()
    assert sum(report.counts["train"]) == 1797


def test_a_limit_draws_the_same_number_of_every_class():
    dataset = load_dataset(DataOptions(limit=55))
    assert sorted(dataset.report.counts["train"]) == [5] * 5 + [6] * 5
    assert np.array_equal(dataset.train.x, load_dataset(DataOptions(limit=55)).train.x)


def test_kept_classes_are_numbered_in_the_order_of_their_names():
    whole, kept = load_dataset(DataOptions()), load_dataset(DataOptions(keep_classes=("7", "2")))
    assert kept.class_names == ("7", "2")
    for number, name in enumerate(kept.class_names):
        assert torch.equal(kept.train.x[kept.train.y == number], whole.train.x[whole.train.y == int(name)])
    limited = load_dataset(DataOptions(keep_classes=("7", "2"), limit=10))
    assert torch.bincount(limited.train.y).tolist() == [5, 5]


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (("2", "ten"), "names ten, and there is no such class; the classes are 0, 1, 2"),
        (("2", "2"), "names a class twice"),
    ],
)
def test_classes_to_keep_that_are_not_there_are_named(names, told):
    with pytest.raises(InvalidData, match=told):
        load_dataset(DataOptions(keep_classes=names))


def test_a_limit_holds_for_every_split(tmp_path):
    base = class_sets(tmp_path)
    (base / "test" / "zebra").rename(base / "test" / "dog")
    dataset = load_dataset(DataOptions(source=f"folder:{base}", limit=3))
    assert dataset.report.counts == {"train": (1, 1, 1), "test": (1, 1, 1)}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("digit", "did you mean 'digits'"),
        ("parqet:x", "did you mean 'parquet:PATH'"),
        ("parquet", "did you mean 'parquet:PATH'"),
        ("digits:x", "is not one of digits, parquet:PATH, npz:PATH, folder:PATH"),
        ("cifar10", "is not one of digits, parquet:PATH, npz:PATH, folder:PATH"),
        ("folder:no/such/place", "no/such/place does not exist; check the path behind folder:"),
        ("npz:no.npz", "no.npz does not exist"),
    ],
)
def test_a_source_that_is_not_there_is_answered_with_the_kinds(source, words):
    with pytest.raises(InvalidData) as caught:
        load_dataset(DataOptions(source=source))
    assert words in str(caught.value)


def test_columns_are_for_parquet_alone():
    with pytest.raises(InvalidData, match="are for parquet:PATH, not for digits"):
        load_dataset(DataOptions(image_column="image"))
