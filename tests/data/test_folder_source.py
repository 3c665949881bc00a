import shutil

import pytest
from case_inputs import class_sets, foreign_paths, numbered_folders, put, tiny_imagenet

from motley.data.dataset import Dataset
from motley.data.sources import load_dataset
from motley.errors import InvalidData, MotleyWarning
from motley.options import DataOptions


def load(path, **options) -> Dataset:
    return load_dataset(DataOptions(source=f"folder:{path}", **options))


def test_a4_folders_with_numbers_are_ordered_by_value(tmp_path):
    with pytest.warns(MotleyWarning, match=r"1 file ignored, being no pictures, for example notes.txt"):
        dataset = load(numbered_folders(tmp_path))
    assert dataset.class_names == tuple(str(label) for label in range(12))
    assert len(dataset.train) == 24
    assert dataset.train.x[:, 0, 0, 0].tolist() == (20 * dataset.train.y).tolist()
    assert dataset.report.ignored_files == 1
    assert dataset.report.ignored_examples == ("notes.txt",)


def test_a4_other_names_are_ordered_by_code_point(tmp_path):
    base = numbered_folders(tmp_path)
    shutil.copytree(base / "0", base / "b")
    (base / "0").rename(base / "B")
    with pytest.warns(MotleyWarning, match="notes.txt"):
        dataset = load(base)
    assert dataset.class_names == ("1", "10", "11", "2", "3", "4", "5", "6", "7", "8", "9", "B", "b")


def test_a4_an_empty_folder_is_no_class(tmp_path):
    base = numbered_folders(tmp_path)
    (base / "notes.txt").unlink()
    (base / "99").mkdir()
    with pytest.warns(MotleyWarning, match="1 folder without a picture ignored.* train/99"):
        assert load(base).num_classes == 12


def test_a5_tiny_imagenet_as_distributed(tmp_path):
    dataset = load(tiny_imagenet(tmp_path))
    assert dataset.class_names == ("red thing, red object", "green thing", "blue thing")
    assert dataset.report.counts == {"train": (2, 2, 2), "test": (2, 2, 2)}
    assert dataset.test.y.tolist() == [1, 1, 0, 2, 0, 2]
    assert dataset.train.x.shape == (6, 3, 16, 16)
    assert dataset.report.modes == {"L": 1, "RGB": 11}
    gray = dataset.train.x[3]
    assert (gray == 120).all()
    assert any("val is the test split" in note for note in dataset.report.notes)


def test_a5_the_test_folder_of_tiny_imagenet_has_no_labels(tmp_path):
    with pytest.raises(InvalidData, match="test has no labels"):
        load(tiny_imagenet(tmp_path) / "test")


def test_a5_an_unknown_class_in_the_table_is_named(tmp_path):
    base = tiny_imagenet(tmp_path)
    put(base / "val" / "val_annotations.txt", "val_0.JPEG\tn00000009\t0\t0\t1\t1\n")
    with pytest.raises(InvalidData, match=r"val_0.JPEG has class 'n00000009', not in wnids.txt"):
        load(base)


def test_a5_a_split_with_a_single_class_asks_for_the_layout(tmp_path):
    base = tiny_imagenet(tmp_path)
    (base / "wnids.txt").unlink()
    shutil.rmtree(base / "test")
    for folder in (base / "train").iterdir():
        next(folder.glob("*.txt")).unlink()
    (base / "val" / "val_annotations.txt").unlink()
    (base / "train" / "n00000001").rename(base / "train" / "images")
    with pytest.raises(InvalidData, match=r"split validation has a single class and another split has 3; check"):
        load(base)


def test_a10_a_class_in_test_alone_is_an_error_that_names_the_option(tmp_path):
    with pytest.raises(InvalidData, match=r"split test has 2 samples .* zebra; data.skip_unknown_classes = true"):
        load(class_sets(tmp_path))


def test_a10_all_splits_share_one_class_list(tmp_path):
    with pytest.warns(MotleyWarning, match=r"split test: 2 samples of unknown classes left out \(zebra\)"):
        dataset = load(class_sets(tmp_path), skip_unknown_classes=True)
    assert dataset.class_names == ("cat", "dog", "owl")
    assert dataset.train.y.tolist() == [0, 0, 1, 1, 2, 2]
    assert dataset.test.y.tolist() == [0, 0, 2, 2]
    assert dataset.report.counts["test"] == (2, 0, 2)


def test_the_user_s_class_list_fixes_the_order(tmp_path):
    base = class_sets(tmp_path)
    shutil.rmtree(base / "test" / "zebra")
    assert load(base, class_names=("owl", "dog", "cat")).train.y.tolist() == [2, 2, 1, 1, 0, 0]


def test_f6_names_in_any_script(tmp_path):
    dataset = load(foreign_paths(tmp_path))
    assert dataset.class_names == ("собака", "猫")
    assert dataset.train.x[:, 0, 0, 0].tolist() == [200, 200, 10, 10]


def test_folders_without_classes_are_refused(tmp_path):
    put(tmp_path / "file.png", b"")
    with pytest.raises(InvalidData, match="no pictures in class folders"):
        load(tmp_path)
    with pytest.raises(InvalidData, match="is not a folder"):
        load(tmp_path / "file.png")
