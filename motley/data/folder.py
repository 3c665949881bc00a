"""Source `folder:PATH`: class folders, with or without split folders, and Tiny-ImageNet (cases A4, A5, A10)."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from motley.data.notes import Notes
from motley.data.raw import Pictures, RawSource, RawSplit
from motley.data.wording import counted
from motley.errors import InvalidData
from motley.options import DataOptions

SPLIT_FOLDERS = {
    "train": ("train", "training"),
    "test": ("test", "testing"),
    "validation": ("validation", "valid", "val"),
}
SYSTEM_NAMES = {"thumbs.db", "desktop.ini", "__macosx"}
SUFFIXES = {
    ".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp",
}  # fmt: skip


@dataclass
class Found:
    """Pictures of one split with the class folder of each, and the files that are no pictures."""

    files: list[Path] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    others: list[Path] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)


def read_folder(path: Path, options: DataOptions, notes: Notes) -> RawSource:  # noqa: ARG001  the readers' common form
    """Find the pictures of a folder; none is opened.

    Raises:
        InvalidData: There are no class folders, or the folder is one without labels.
    """
    if not path.is_dir():
        raise InvalidData(f"{path} is not a folder; folder:PATH wants class folders or split folders in it")
    if _is_tiny_imagenet(path):
        return _read_tiny_imagenet(path, notes)
    if path.name == "test" and _is_tiny_imagenet(path.parent):
        raise InvalidData(f"{path} has no labels; give {path.parent}, whose train and val are read")
    folders = {split: _first_folder(path, names) for split, names in SPLIT_FOLDERS.items()}
    if folders["train"] is None:
        folders = {"train": path}
    found = {split: _class_folders(folder) for split, folder in folders.items() if folder is not None}
    if not found["train"].files:
        raise InvalidData(f"{folders['train']} has no pictures in class folders; each class needs a folder of its own")
    empty = [f"{split}/{name}" for split, part in found.items() for name in part.empty]
    if empty:
        notes.warn(f"{counted(len(empty), 'folder')} without a picture ignored, being no class, for example {empty[0]}")
    ignored = [_shown(file, path) for part in found.values() for file in part.others]
    splits = {split: _raw_split(part, path) for split, part in found.items() if part.files}
    return RawSource(path.resolve().name, splits, ignored=ignored, by_folder=True)


def _first_folder(path: Path, names: Sequence[str]) -> Path | None:
    return next((path / name for name in names if (path / name).is_dir()), None)


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() in SYSTEM_NAMES


def _is_picture(file: Path) -> bool:
    return file.suffix.lower() in SUFFIXES


def _shown(file: Path, root: Path) -> str:
    return file.relative_to(root).as_posix()


def _class_folders(folder: Path) -> Found:
    """Return all pictures below the class folders of a folder, in sorted order."""
    found = Found()
    for entry in sorted(folder.iterdir()):
        if _is_hidden(entry.name):
            continue
        if not entry.is_dir():
            found.others.append(entry)
            continue
        before = len(found.files)
        for file in _files_below(entry):
            if _is_picture(file):
                found.files.append(file)
                found.classes.append(entry.name)
            else:
                found.others.append(file)
        if len(found.files) == before:
            found.empty.append(entry.name)
    return found


def _files_below(folder: Path) -> list[Path]:
    files = []
    for parent, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not _is_hidden(name))
        files += [Path(parent, name) for name in sorted(names) if not _is_hidden(name)]
    return files


def _raw_split(found: Found, root: Path) -> RawSplit:
    files = found.files
    names = [_shown(file, root) for file in files]
    return RawSplit(Pictures(names, lambda row: files[row].read_bytes()), np.array(found.classes, dtype=str))


def _is_tiny_imagenet(path: Path) -> bool:
    return (path / "wnids.txt").is_file() and (path / "val" / "val_annotations.txt").is_file()


def _read_tiny_imagenet(path: Path, notes: Notes) -> RawSource:
    """Read the archive as distributed: `val` with its table is the test split; `test` has no labels and is not read."""
    ids = sorted({line.strip() for line in _lines(path / "wnids.txt") if line.strip()})
    numbers = {name: number for number, name in enumerate(ids)}
    train = Found()
    for name in ids:
        own = sorted(file for file in (path / "train" / name / "images").glob("*") if _is_wanted(file))
        train.files += own
        train.classes += [name] * len(own)
    test = Found()
    for line in _lines(path / "val" / "val_annotations.txt"):
        file, _, rest = line.partition("\t")
        name = rest.partition("\t")[0]
        if name not in numbers:
            raise InvalidData(f"{path / 'val' / 'val_annotations.txt'}: {file} has class '{name}', not in wnids.txt")
        test.files.append(path / "val" / "images" / file)
        test.classes.append(name)
    notes.add("Tiny-ImageNet's layout: val is the test split, and its test pictures have no labels and are not read")
    splits = {}
    for split, part in (("train", train), ("test", test)):
        raw = _raw_split(part, path)
        splits[split] = RawSplit(raw.inputs, np.array([numbers[name] for name in part.classes], np.int64))
    return RawSource(path.resolve().name, splits, _readable_names(path, ids), by_folder=True)


def _is_wanted(file: Path) -> bool:
    return _is_picture(file) and not _is_hidden(file.name)


def _readable_names(path: Path, ids: Sequence[str]) -> tuple[str, ...]:
    """Return the words of each id; an id without words keeps its id, and words that occur twice get it in front."""
    table = path / "words.txt"
    words = dict(line.split("\t", 1) for line in _lines(table) if "\t" in line) if table.is_file() else {}
    names = [words.get(name, name) for name in ids]
    return tuple(f"{name} {own}" if names.count(own) > 1 else own for name, own in zip(ids, names, strict=True))


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InvalidData(f"{file} is not UTF-8 (byte {error.start})") from error
