"""Source `npz:PATH`: arrays in one file under the names of MedMNIST (case A7). Nothing is ever unpickled."""

import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from motley.data.notes import Notes
from motley.data.raw import RawSource, RawSplit
from motley.errors import InvalidData
from motley.options import DataOptions

PREFIXES = {"train": "train_", "test": "test_", "validation": "val_"}


def read_npz(path: Path, options: DataOptions, notes: Notes) -> RawSource:  # noqa: ARG001  the readers' common form
    """Read `train_images`, `train_labels` and, where they are, the same of `val_` and `test_`.

    Other arrays under a split's prefix with one value a sample, for example `train_subject`, become its columns.

    Raises:
        InvalidData: Arrays are missing, hold pickled objects, or are no pictures and no signals.
    """
    arrays = _load(path)
    splits = {
        split: _split(arrays, split, prefix, path) for split, prefix in PREFIXES.items() if f"{prefix}images" in arrays
    }
    if "train" not in splits:
        raise InvalidData(f"{path} has no array train_images; its arrays are {', '.join(arrays) or 'none'}")
    return RawSource(path.stem, splits)


def _load(path: Path) -> dict[str, np.ndarray]:
    try:
        with zipfile.ZipFile(path):
            pass
        with np.load(path, allow_pickle=False) as file:
            return {name: _read(file, name, path) for name in file.files}
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise InvalidData(f"{path} is not an npz file that can be read: {error}") from error


def _read(file: Mapping[str, np.ndarray], name: str, path: Path) -> np.ndarray:
    try:
        return file[name]
    except ValueError as error:
        raise InvalidData(
            f"{path}: array {name} is not read, since it holds Python objects, which can run code, or is damaged; "
            "store it as numbers"
        ) from error


def _split(arrays: Mapping[str, np.ndarray], split: str, prefix: str, path: Path) -> RawSplit:
    if f"{prefix}labels" not in arrays:
        raise InvalidData(f"{path} has {prefix}images and no {prefix}labels")
    images = arrays[f"{prefix}images"]
    known = (f"{prefix}images", f"{prefix}labels")
    columns = {
        name.removeprefix(prefix): values
        for name, values in arrays.items()
        if name.startswith(prefix) and name not in known and values.shape == (len(images),)
    }
    return RawSplit(_samples(images, f"{path}: {prefix}images ({split})"), arrays[f"{prefix}labels"], columns)


def _samples(images: np.ndarray, place: str) -> np.ndarray:
    """Return uint8 (n, channels, H, W) from (n, H, W[, channels]), or float32 signals from (n, channels, length)."""
    if images.dtype.kind == "f" and images.ndim == 3:
        if not np.isfinite(images).all():
            raise InvalidData(f"{place} has values that are nan or infinite; signals must be finite")
        return images.astype(np.float32)
    is_picture = images.ndim == 3 or (images.ndim == 4 and images.shape[3] in (1, 3))
    if not is_picture or images.dtype.kind not in "iub":
        raise InvalidData(
            f"{place} has shape {images.shape} and kind {images.dtype}; pictures are (n, height, width) or "
            "(n, height, width, 3) of whole numbers 0..255, signals (n, channels, length) of fractions"
        )
    if images.size and (images.min() < 0 or images.max() > 255):
        raise InvalidData(f"{place} has values outside of 0..255; bring them to 8 bits first")
    pixels = images.astype(np.uint8)
    return pixels[:, None] if images.ndim == 3 else np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))
