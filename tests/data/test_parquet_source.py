import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from case_inputs import RED_LABELS, file_bytes, picture_table, plain, put

from motley.data.dataset import Dataset
from motley.data.sources import load_dataset
from motley.errors import InvalidData
from motley.options import DataOptions

FORMS = {"struct": ("cat", "dog", "owl"), "struct-without-names": None, "bytes": None, "pixels": None}


def load(path, **options) -> Dataset:
    return load_dataset(DataOptions(source=f"parquet:{path}", **options))


@pytest.mark.parametrize(("form", "names"), FORMS.items())
def test_a8_the_storage_forms_give_the_same_arrays(tmp_path, form, names):
    dataset = load(picture_table(tmp_path / "a.parquet", form))
    expected = np.zeros((6, 3, 8, 8), np.uint8)
    expected[:, 0] = 40 * np.arange(6).reshape(-1, 1, 1)
    assert np.array_equal(dataset.train.x.numpy(), expected)
    assert dataset.train.y.tolist() == list(RED_LABELS)
    assert dataset.class_names == (names or ("0", "1", "2"))


def test_a8_other_column_names_are_listed_and_can_be_named(tmp_path):
    path = picture_table(tmp_path / "a.parquet", "other-names")
    with pytest.raises(InvalidData, match=r"columns are img, fine_label; name it with data.label_column"):
        load(path)
    dataset = load(path, image_column="img", label_column="fine_label")
    assert dataset.train.y.tolist() == list(RED_LABELS)
    with pytest.raises(InvalidData, match=r"no column 'picture'; the columns are img, fine_label"):
        load(path, image_column="picture", label_column="fine_label")


def test_a8_a_path_without_bytes_names_row_and_file(tmp_path):
    path = picture_table(tmp_path / "a.parquet", "path-only")
    with pytest.raises(InvalidData, match=r"row 0 has no bytes and its file .*missing/0.png does not exist"):
        load(path)
    for row in range(6):
        put(tmp_path / "missing" / f"{row}.png", file_bytes(plain((40 * row, 0, 0))))
    assert load(path).train.x[:, 0, 0, 0].tolist() == [0, 40, 80, 120, 160, 200]


def test_a8_a_missing_label_names_its_row(tmp_path):
    with pytest.raises(InvalidData, match="row 2 has no label"):
        load(picture_table(tmp_path / "a.parquet", "null-label"))


@pytest.mark.parametrize(
    ("train", "test"),
    [
        ("train.parquet", "test.parquet"),
        ("train-00000-of-00001.parquet", "test-00000-of-00001.parquet"),
        ("data/train-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"),
        ("train/0.parquet", "test/0.parquet"),
    ],
)
def test_folders_of_tables(tmp_path, train, test):
    picture_table(tmp_path / "set" / train)
    picture_table(tmp_path / "set" / test)
    dataset = load(tmp_path / "set")
    assert (len(dataset.train), len(dataset.test), dataset.validation) == (6, 6, None)
    assert dataset.name == "set"
    assert dataset.report.duplicates == {"train": 0, "test": 0, "train and test": 6}


def test_parts_of_a_split_are_joined_in_order(tmp_path):
    for part in range(2):
        picture_table(tmp_path / f"train-0000{part}-of-00002.parquet")
    picture_table(tmp_path / "valid.parquet")
    dataset = load(tmp_path)
    assert dataset.train.y.tolist() == list(RED_LABELS) * 2
    assert len(dataset.validation) == 6
    picture_table(tmp_path / "train-00001-of-00002.parquet", "bytes")
    with pytest.raises(InvalidData, match=r"train-00001-of-00002.parquet has other columns"):
        load(tmp_path)


def test_a_folder_without_a_training_table_names_what_it_has(tmp_path):
    with pytest.raises(InvalidData, match="no Parquet file at all"):
        load(tmp_path)
    picture_table(tmp_path / "one.parquet")
    assert len(load(tmp_path).train) == 6
    picture_table(tmp_path / "two.parquet")
    with pytest.raises(InvalidData, match=r"no train.parquet .*one.parquet, two.parquet"):
        load(tmp_path)


def test_a_file_that_is_no_table(tmp_path):
    put(tmp_path / "a.parquet", "id,label\n")
    with pytest.raises(InvalidData, match=r"a.parquet cannot be read as Parquet"):
        load(tmp_path / "a.parquet")


def write(path, metadata=None, **columns):
    pq.write_table(pa.table(columns).replace_schema_metadata(metadata), path)
    return path


def test_signals_take_shape_and_scale_from_the_metadata(tmp_path):
    values = np.arange(2 * 6, dtype=np.int16).reshape(2, 6)
    signal = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 6)
    metadata = {"signal": json.dumps({"shape": [2, 3], "scale": 0.5})}
    arguments = {"label": pa.array([0, 1]), "subject": pa.array([5, 6]), "session": pa.array([1, None])}
    dataset = load(write(tmp_path / "a.parquet", metadata, signal=signal, **arguments))
    assert dataset.train.x.numpy().tolist() == (values.reshape(2, 2, 3) * 0.5).tolist()
    assert str(dataset.train.x.dtype) == "torch.float32"
    assert dataset.train.columns["subject"].tolist() == [5, 6]
    assert "session" not in dataset.train.columns
    assert any("column session has empty rows" in note for note in dataset.report.notes)
    wrong = {"signal": json.dumps({"shape": [2, 4], "scale": 0.5})}
    with pytest.raises(InvalidData, match=r"do not all have the shape \(2, 4\)"):
        load(write(tmp_path / "b.parquet", wrong, signal=signal, **arguments))
    with pytest.raises(InvalidData, match="row 0 of column signal is a list of shape"):
        load(write(tmp_path / "c.parquet", None, signal=signal, **arguments))


def test_text_labels_are_names_of_classes(tmp_path):
    pixels = pa.array([[[1, 2], [3, 4]]] * 3, pa.list_(pa.list_(pa.uint8())))
    dataset = load(write(tmp_path / "a.parquet", None, image=pixels, label=pa.array(["dog", "cat", "dog"])))
    assert dataset.class_names == ("cat", "dog")
    assert dataset.train.y.tolist() == [1, 0, 1]
    assert dataset.train.x.shape == (3, 1, 2, 2)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[[1, 2], [3]]], "row 0 of column image"),
        ([[[1, 2]], None], "row 1 of column image"),
        ([[[1, 2]], [[1, 300]]], "row 1 of column image has values outside"),
        ([[[1, 2]], [[1, 2], [3, 4]]], "pictures differ in size"),
    ],
)
def test_pixel_lists_that_are_no_pictures(tmp_path, rows, words):
    image = pa.array(rows, pa.list_(pa.list_(pa.int64())))
    with pytest.raises(InvalidData, match=words):
        load(write(tmp_path / "a.parquet", None, image=image, label=pa.array([0] * len(rows))))
