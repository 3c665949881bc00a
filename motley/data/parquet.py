"""Source `parquet:PATH`: tables in the way of Hugging Face, with pictures or signals (case A8)."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from motley.data.notes import Notes
from motley.data.raw import Pictures, RawSource, RawSplit
from motley.errors import InvalidData
from motley.options import DataOptions

SPLIT_FILES = {"train": ("train",), "test": ("test",), "validation": ("validation", "valid", "val")}
INPUT_COLUMNS = ("image", "img", "signal")
LABEL_COLUMNS = ("label",)


def read_parquet(path: Path, options: DataOptions, notes: Notes) -> RawSource:
    """Find the splits of a file or folder and read their columns; pictures stay encoded.

    Raises:
        InvalidData: Files or columns are missing, or a column is stored in a form that is not known.
    """
    files = _find_splits(path)
    tables = {split: _read_table(parts) for split, parts in files.items()}
    splits = {split: _read_split(table, files[split][0], options, notes) for split, table in tables.items()}
    label = _column_name(tables["train"], options.label_column, LABEL_COLUMNS, "label_column")
    return RawSource(path.stem if path.is_file() else path.resolve().name, splits, _class_names(tables["train"], label))


def _find_splits(path: Path) -> dict[str, list[Path]]:
    if path.is_file():
        return {"train": [path]}
    for folder in (path, path / "data"):
        found = {split: _files_of(folder, names) for split, names in SPLIT_FILES.items()}
        if found["train"]:
            return {split: parts for split, parts in found.items() if parts}
    every = sorted(path.glob("*.parquet"))
    if len(every) == 1:
        return {"train": every}
    names = ", ".join(file.name for file in every[:10]) or "no Parquet file at all"
    raise InvalidData(f"{path} has no train.parquet and no train-*.parquet; it has {names}")


def _files_of(folder: Path, names: tuple[str, ...]) -> list[Path]:
    for name in names:
        for pattern in (f"{name}.parquet", f"{name}-*.parquet", f"{name}/*.parquet"):
            parts = sorted(folder.glob(pattern))
            if parts:
                return parts
    return []


def _read_table(files: list[Path]) -> pa.Table:
    tables = []
    for file in files:
        try:
            tables.append(pq.ParquetFile(file).read())
        except (pa.ArrowException, OSError) as error:
            raise InvalidData(f"{file} cannot be read as Parquet: {error}") from error
        if tables[-1].schema != tables[0].schema:
            raise InvalidData(f"{file} has other columns than {files[0].name}; the parts of a split must agree")
    return pa.concat_tables(tables)


def _read_split(table: pa.Table, file: Path, options: DataOptions, notes: Notes) -> RawSplit:
    image = _column_name(table, options.image_column, INPUT_COLUMNS, "image_column")
    label = _column_name(table, options.label_column, LABEL_COLUMNS, "label_column")
    labels = table[label].combine_chunks()
    if labels.null_count:
        row = int(np.flatnonzero(labels.is_null().to_numpy(zero_copy_only=False))[0])
        raise InvalidData(f"{file}: row {row} has no label (column {label}); {labels.null_count} rows are empty")
    columns = {}
    for name in table.column_names:
        values = table[name]
        if name in (image, label) or not _is_plain(values.type):
            continue
        if values.null_count:
            notes.add(f"{file.name}: column {name} has empty rows and cannot be used for a partition")
            continue
        columns[name] = np.array(values.to_pylist())
    return RawSplit(_inputs(table, image, file), _labels(labels, label, file), columns)


def _column_name(table: pa.Table, asked: str | None, guesses: tuple[str, ...], option: str) -> str:
    candidates = (asked,) if asked else guesses
    for name in candidates:
        if name in table.column_names:
            return name
    raise InvalidData(
        f"there is no column {' or '.join(repr(name) for name in candidates)}; the columns are "
        f"{', '.join(table.column_names)}; name it with data.{option}"
    )


def _labels(column: pa.Array, name: str, file: Path) -> np.ndarray:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if _is_list(column.type):
        return np.array(column.to_pylist())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return np.array(column.to_pylist(), dtype=str)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type) or pa.types.is_boolean(column.type):
        return np.asarray(column.to_numpy(zero_copy_only=False))
    raise InvalidData(f"{file}: column {name} is {column.type}, not whole numbers or names of classes")


def _class_names(table: pa.Table, label: str) -> tuple[str, ...] | None:
    """Return the names that the metadata give for the label column, or None."""
    features = _metadata(table, "huggingface").get("info", {}).get("features", {})
    names = features.get(label, {}).get("names") if isinstance(features.get(label), dict) else None
    return tuple(str(name) for name in names) if names else None


def _metadata(table: pa.Table, key: str) -> dict[str, Any]:
    text = (table.schema.metadata or {}).get(key.encode())
    try:
        value = json.loads(text) if text else {}
    except ValueError as error:
        raise InvalidData(f"the metadata key '{key}' of the table is not JSON: {error}") from error
    return value if isinstance(value, dict) else {}


def _inputs(table: pa.Table, name: str, file: Path) -> Pictures | np.ndarray:
    column = table[name]
    kind = column.type
    names = [f"{file.name} row {row}" for row in range(len(column))]
    if pa.types.is_struct(kind) and {"bytes", "path"} & {field.name for field in kind}:
        rows = [row or {} for row in column.to_pylist()]
        paths = [row.get("path") for row in rows]
        names = [f"{name} ({path})" if path else name for name, path in zip(names, paths, strict=True)]
        return _encoded([row.get("bytes") for row in rows], paths, names, file)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _encoded(column.to_pylist(), [None] * len(column), names, file)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _encoded([None] * len(column), column.to_pylist(), names, file)
    if _is_list(kind):
        signal = _metadata(table, "signal")
        if signal:
            return _signals(column, signal, name, file)
        return _nested(column, name, names, file)
    raise InvalidData(f"{file}: column {name} is {kind}; inputs are pictures as bytes, as paths or as lists of pixels")


def _encoded(data: list[bytes | None], paths: list[str | None], names: list[str], file: Path) -> Pictures:
    """Return pictures from their bytes, or where there are none from files beside the table."""
    for row, (content, path) in enumerate(zip(data, paths, strict=True)):
        if content is None and path is None:
            raise InvalidData(f"{file}: row {row} has no picture, neither bytes nor a path")
        if content is None and path is not None and not (file.parent / path).is_file():
            raise InvalidData(
                f"{file}: row {row} has no bytes and its file {file.parent / path} does not exist; store the pictures "
                "in the table, or put the files there"
            )

    def read(row: int) -> bytes:
        content = data[row]
        return content if content is not None else (file.parent / str(paths[row])).read_bytes()

    return Pictures(names, read)


def _is_plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_boolean(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _signals(column: pa.ChunkedArray, signal: Mapping[str, Any], name: str, file: Path) -> np.ndarray:
    """Return float32 (n, channels, length) from flat lists, by shape and scale of the metadata key `signal`."""
    shape = tuple(int(size) for size in signal.get("shape", ()))
    values = _uniform(column)
    if values is None or len(shape) != 2 or values.size != len(column) * shape[0] * shape[1]:
        raise InvalidData(f"{file}: the rows of column {name} do not all have the shape {shape} of the key 'signal'")
    return (values.reshape(-1, *shape) * float(signal.get("scale", 1.0))).astype(np.float32)


def _nested(column: pa.ChunkedArray, name: str, names: list[str], file: Path) -> Pictures | np.ndarray:
    """Return pictures from lists (H, W) or (H, W, channels) of 0..255, or signals from lists of fractions."""
    values = _uniform(column)
    if values is not None and values.ndim == 3 and values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise InvalidData(f"{file}: column {name} has values that are nan or infinite; signals must be finite")
        return values.astype(np.float32)
    rows = list(values) if values is not None else [_row_array(row) for row in column.to_pylist()]
    for row, pixels in enumerate(rows):
        is_picture = pixels.ndim == 2 or (pixels.ndim == 3 and pixels.shape[2] in (1, 3))
        if not is_picture or pixels.dtype.kind not in "iu" or not pixels.size:
            raise InvalidData(
                f"{file}: row {row} of column {name} is a list of shape {pixels.shape} and kind {pixels.dtype}; "
                "pictures are (height, width) or (height, width, 3) of whole numbers 0..255"
            )
        if pixels.min() < 0 or pixels.max() > 255:
            raise InvalidData(f"{file}: row {row} of column {name} has values outside of 0..255")
    eight_bits = [pixels.astype(np.uint8) for pixels in rows]
    plain = [pixels[:, :, 0] if pixels.ndim == 3 and pixels.shape[2] == 1 else pixels for pixels in eight_bits]
    return Pictures(names, plain.__getitem__)


def _row_array(row: Any) -> np.ndarray:
    """Return one row's nested lists as an array; a missing or ragged row becomes an empty one, which is refused."""
    try:
        return np.array(row) if row is not None else np.zeros(0)
    except ValueError:
        return np.zeros(0)


def _uniform(column: pa.ChunkedArray) -> np.ndarray | None:
    """Return nested lists as one array, or None if rows are missing or differ in shape."""
    level = column.combine_chunks()
    shape = [len(level)]
    while _is_list(level.type):
        if level.null_count:
            return None
        inner = level.flatten()
        width = len(inner) // max(1, len(level))
        if not pa.types.is_fixed_size_list(level.type):
            lengths = np.asarray(level.value_lengths().to_numpy(zero_copy_only=False))
            if (lengths != width).any():
                return None
        shape.append(width)
        level = inner
    if level.null_count:
        return None
    return np.asarray(level.to_numpy(zero_copy_only=False)).reshape(shape)
