import pickle

import numpy as np
import pytest
from case_inputs import column, medical_arrays, save_arrays

from motley.data.dataset import Dataset
from motley.data.sources import load_dataset
from motley.errors import InvalidData, MotleyWarning
from motley.options import DataOptions

WHOLE = column(0, 1, 2, 0, 1, 2)


def load(path, **options) -> Dataset:
    return load_dataset(DataOptions(source=f"npz:{path}", **options))


def test_a7_a_column_of_labels(tmp_path):
    dataset = load(medical_arrays(tmp_path / "a.npz", train=WHOLE, val=column(0, 1, 2), test=column(2, 1, 0)))
    assert dataset.num_classes == 3
    assert dataset.class_names == ("0", "1", "2")
    assert dataset.train.y.tolist() == [0, 1, 2, 0, 1, 2]
    assert dataset.test.y.tolist() == [2, 1, 0]
    assert dataset.validation.y.tolist() == [0, 1, 2]
    assert dataset.input_shape == (1, 8, 8)


def test_a7_several_labels_for_a_sample(tmp_path):
    path = medical_arrays(tmp_path / "a.npz", train=np.zeros((6, 14), np.uint8))
    with pytest.raises(
        InvalidData, match=r"train: the labels have shape \(6, 14\); multi-label sets are not supported"
    ):
        load(path)


def test_a7_labels_that_count_from_one(tmp_path):
    one_based = {"train": WHOLE + 1, "val": column(1, 2, 3), "test": column(3, 2, 1)}
    path = medical_arrays(tmp_path / "a.npz", **one_based)
    with pytest.warns(MotleyWarning, match="numbered anew: 1 -> 0, 2 -> 1, 3 -> 2"):
        dataset = load(path)
    assert dataset.train.y.tolist() == [0, 1, 2, 0, 1, 2]
    assert dataset.test.y.tolist() == [2, 1, 0]
    assert dataset.class_names == ("1", "2", "3")
    named = load(path, class_names=("none", "a", "b", "c"))
    assert named.train.y.tolist() == [1, 2, 3, 1, 2, 3]
    assert named.report.counts["train"] == (0, 2, 2, 2)


def test_a7_rows_without_a_label(tmp_path):
    path = medical_arrays(tmp_path / "a.npz", train=WHOLE, test=column(-1, -1, -1, kind=np.int64))
    with pytest.raises(InvalidData, match=r"split test .* 3 of 3 rows are -1"):
        load(path)


def test_a7_another_number_of_labels(tmp_path):
    path = save_arrays(tmp_path / "a.npz", {"train_images": np.zeros((6, 8, 8), np.uint8), "train_labels": WHOLE[:5]})
    with pytest.raises(InvalidData, match="split train has 6 samples and 5 labels"):
        load(path)


def test_a7_labels_that_are_numbers_of_rows(tmp_path):
    path = medical_arrays(tmp_path / "a.npz", train=np.arange(200))
    with pytest.raises(InvalidData, match="200 different values in 200 rows"):
        load(path)
    assert load(path, class_names=tuple(f"c{number}" for number in range(200))).num_classes == 200


def test_a7_memory_does_not_follow_the_largest_label(tmp_path):
    with pytest.warns(MotleyWarning, match="0 -> 0, 4000000000000 -> 1"):
        dataset = load(medical_arrays(tmp_path / "a.npz", train=np.array([0, 4 * 10**12, 0, 4 * 10**12])))
    assert dataset.num_classes == 2


@pytest.mark.parametrize("bad", [[0.5, 1, 0], [np.nan, 1, 0], [np.inf, 1, 0], [2**63, 1, 0]])
def test_a7_labels_that_are_no_whole_numbers(tmp_path, bad):
    with pytest.raises(InvalidData, match="not whole numbers"):
        load(medical_arrays(tmp_path / "a.npz", train=np.array(bad)))


def test_a_label_beyond_the_given_names_is_an_error(tmp_path):
    path = medical_arrays(tmp_path / "a.npz", train=WHOLE)
    with pytest.raises(
        InvalidData, match=r"split train has 2 samples of classes .* 2 known ones: 2; check data.class_names"
    ):
        load(path, class_names=("a", "b"))
    with pytest.raises(InvalidData, match="split train has 2 samples"):
        load(path, class_names=("a", "b"), skip_unknown_classes=True)


def test_a_given_class_that_only_the_test_split_has_is_told(tmp_path):
    path = medical_arrays(tmp_path / "a.npz", train=column(0, 1, 0, 1), test=column(0, 2))
    names = ("a", "b", "c")
    with pytest.warns(MotleyWarning, match="split test has classes of which split train has no sample: c"):
        assert load(path, class_names=names).test.y.tolist() == [0, 2]
    with pytest.warns(MotleyWarning, match="these samples were left out"):
        assert load(path, class_names=names, skip_unknown_classes=True).test.y.tolist() == [0]


def test_columns_keep_to_their_samples_when_others_are_left_out(tmp_path):
    images = np.arange(6, dtype=np.uint8).reshape(6, 1, 1)
    arrays = {"train_images": images[:4], "train_labels": np.array([0, 1, 0, 1])}
    arrays |= {"test_images": images, "test_labels": np.array([0, 2, 1, 2, 0, 1]), "test_user": np.arange(6) * 10}
    path = save_arrays(tmp_path / "a.npz", arrays)
    with pytest.warns(MotleyWarning, match=r"2 samples of unknown classes left out \(2\)"):
        dataset = load(path, skip_unknown_classes=True, limit=2)
    assert sorted(dataset.test.y.tolist()) == [0, 1]
    assert (10 * dataset.test.x.reshape(-1)).tolist() == dataset.test.columns["user"].tolist()


def test_colour_signals_and_columns(tmp_path):
    rng = np.random.default_rng(0)
    colour = rng.integers(0, 256, (4, 8, 6, 3), dtype=np.uint8)
    labels = np.array([0, 1, 0, 1])
    dataset = load(
        save_arrays(
            tmp_path / "a.npz",
            {
                "train_images": colour,
                "train_labels": labels,
                "train_user": np.array([7, 7, 9, 9]),
                "extra": np.zeros(2),
            },
        )
    )
    assert np.array_equal(dataset.train.x.numpy(), colour.transpose(0, 3, 1, 2))
    assert dataset.train.columns["user"].tolist() == [7, 7, 9, 9]
    signals = rng.normal(size=(4, 9, 20))
    signal_set = load(save_arrays(tmp_path / "b.npz", {"train_images": signals, "train_labels": labels}))
    assert np.array_equal(signal_set.train.x.numpy(), signals.astype(np.float32))
    signals[2, 3, 4] = np.nan
    with pytest.raises(InvalidData, match="nan"):
        load(save_arrays(tmp_path / "c.npz", {"train_images": signals, "train_labels": labels}))
    with pytest.raises(InvalidData, match=r"data.size resizes pictures"):
        load(tmp_path / "b.npz", size=8)
    assert load(tmp_path / "a.npz", size=5).train.x.shape == (4, 3, 5, 5)


@pytest.mark.parametrize(
    ("images", "words"),
    [
        (np.zeros((4, 8)), "has shape"),
        (np.zeros((4, 8, 8, 3), np.float32), "has shape"),
        (np.zeros((4, 3, 8, 8), np.uint8), "has shape"),
        (np.full((4, 8, 8), 256, np.int32), "outside of 0..255"),
        (np.full((4, 8, 8), -1, np.int32), "outside of 0..255"),
    ],
)
def test_arrays_that_are_no_pictures(tmp_path, images, words):
    with pytest.raises(InvalidData, match=words):
        load(save_arrays(tmp_path / "a.npz", {"train_images": images, "train_labels": np.zeros(4, int)}))


def test_python_objects_are_never_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("an object was unpickled",))

    trap = np.array([Trap()], dtype=object)
    np.savez(tmp_path / "a.npz", train_images=np.zeros((1, 8, 8), np.uint8), train_labels=trap)
    with pytest.raises(InvalidData, match="train_labels is not read, since it holds Python objects"):
        load(tmp_path / "a.npz")
    np.save(tmp_path / "b.npz.npy", trap)
    (tmp_path / "b.npz.npy").rename(tmp_path / "b.npz")
    (tmp_path / "c.npz").write_bytes(pickle.dumps({"x": 1}))
    (tmp_path / "d.npz").write_bytes(b"")
    for name in "bcd":
        with pytest.raises(InvalidData, match=f"{name}.npz is not an npz file"):
            load(tmp_path / f"{name}.npz")


def test_a_file_without_training_arrays_names_those_that_it_has(tmp_path):
    with pytest.raises(InvalidData, match="no array train_images; its arrays are x, y"):
        load(save_arrays(tmp_path / "a.npz", {"x": np.zeros(2), "y": np.zeros(2)}))
    with pytest.raises(InvalidData, match="train_images and no train_labels"):
        load(save_arrays(tmp_path / "b.npz", {"train_images": np.zeros((2, 8, 8), np.uint8)}))
