"""From labels as sources store them to class numbers 0..C-1 that all splits share (cases A4, A7, A10)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from motley.data.notes import Notes
from motley.data.wording import counted, listed
from motley.errors import InvalidData


@dataclass(frozen=True)
class Labels:
    """Class numbers of every split, and which rows of the split they belong to."""

    class_names: tuple[str, ...]
    numbers: Mapping[str, np.ndarray]  # split -> int64 (n,)
    rows: Mapping[str, np.ndarray]  # split -> positions of the kept rows


def resolve_labels(
    raw: Mapping[str, np.ndarray],
    sizes: Mapping[str, int],
    declared: Sequence[str] | None,
    *,
    skip_unknown: bool,
    notes: Notes,
) -> Labels:
    """Return class numbers for all splits.

    With declared names, integer labels are positions in them and text labels are names among them. Without, the classes
    are the distinct values of the training split: whole numbers by value, other names by code point.

    Args:
        raw: Labels of each split, (n,) or (n, 1), integers or text.
        sizes: Number of inputs of each split.
        declared: Names of the classes in label order, from the user or the source.
        skip_unknown: Leave out samples of classes that the training split does not have, instead of an error.
        notes: Takes warnings.

    Raises:
        InvalidData: Labels are missing, no class numbers, or of a class that is not known.
    """
    flat = {split: _flat(split, labels, sizes[split]) for split, labels in raw.items()}
    for split, stored in flat.items():
        _check_not_negative(split, stored)
    if declared is not None and len(set(declared)) < len(declared):
        raise InvalidData("a class name occurs twice; give every class its own with data.class_names")
    values = _class_values(flat["train"], declared)
    names = tuple(declared) if declared is not None else tuple(str(value) for value in values)
    known = {value: number for number, value in enumerate(values)}
    numbers = {
        split: np.array([known.get(value, -1) for value in stored.tolist()], np.int64) for split, stored in flat.items()
    }
    trained = np.unique(numbers["train"])
    rows = {}
    for split, own in numbers.items():
        if (own < 0).any():
            _refuse_or_skip(split, flat[split][own < 0], len(names), skip=skip_unknown, notes=notes)
        if not np.isin(own[own >= 0], trained).all():
            untrained = np.setdiff1d(own[own >= 0], trained)
            _tell_untrained(split, [names[label] for label in untrained], skip=skip_unknown, notes=notes)
        rows[split] = np.flatnonzero(np.isin(own, trained[trained >= 0]) if skip_unknown else own >= 0)
    if declared is None:
        _tell_mapping(values, notes)
    return Labels(names, {split: own[rows[split]] for split, own in numbers.items()}, rows)


def keep_classes(labels: Labels, wanted: Sequence[str]) -> Labels:
    """Return the labels of some classes alone, numbered in the order of their names here.

    Raises:
        InvalidData: A name is not that of a class, or occurs twice.
    """
    unknown = [name for name in wanted if name not in labels.class_names]
    if unknown:
        raise InvalidData(
            f"data.keep_classes names {listed(unknown)}, and there is no such class; the classes are "
            f"{listed(labels.class_names)}"
        )
    if len(set(wanted)) < len(wanted):
        raise InvalidData("data.keep_classes names a class twice; name every class once")
    renumbered = np.full(len(labels.class_names), -1)
    renumbered[[labels.class_names.index(name) for name in wanted]] = np.arange(len(wanted))
    numbers = {split: renumbered[own] for split, own in labels.numbers.items()}
    return Labels(
        tuple(wanted),
        {split: own[own >= 0] for split, own in numbers.items()},
        {split: labels.rows[split][own >= 0] for split, own in numbers.items()},
    )


def check_not_row_numbers(labels: np.ndarray) -> None:
    """Refuse labels that have so many different values that they are most likely not classes."""
    distinct = len(np.unique(labels))
    if distinct > 100 and distinct > len(labels) / 2:
        raise InvalidData(
            f"split train: the labels have {distinct} different values in {len(labels)} rows, like numbers of rows; "
            "is this the right label column? (data.label_column; data.class_names says that it is)"
        )


def class_order(names: set[str]) -> list[str]:
    """Return class names in the order of their numbers: by value if all are whole numbers, else by code point."""
    if all(name.isascii() and name.isdigit() for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    return sorted(names)


def _flat(split: str, labels: np.ndarray, size: int) -> np.ndarray:
    """Return the labels as (n,), int64 or text."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise InvalidData(
            f"split {split}: the labels have shape {labels.shape}; multi-label sets are not supported, each sample "
            "needs one class"
        )
    if len(labels) != size:
        raise InvalidData(f"split {split} has {size} samples and {len(labels)} labels; each sample needs one label")
    if labels.dtype.kind == "U":
        return labels
    whole = labels.dtype.kind in "iub" or (labels.dtype.kind == "f" and bool(np.all(labels == np.floor(labels))))
    if not whole or (labels.size and abs(float(labels.max())) >= 2**62):
        raise InvalidData(f"split {split}: the labels are {labels.dtype}, not whole numbers or names of classes")
    return labels.astype(np.int64)


def _check_not_negative(split: str, stored: np.ndarray) -> None:
    if stored.dtype.kind == "i" and (stored < 0).any():
        lowest = int(stored.min())
        raise InvalidData(
            f"split {split} has rows without a class: {int((stored == lowest).sum())} of {len(stored)} rows are "
            f"{lowest}; take these rows or this split out of the source"
        )


def _class_values(train: np.ndarray, declared: Sequence[str] | None) -> list[int] | list[str]:
    """Return the stored value of each class, in class order."""
    if train.dtype.kind == "U":
        return list(declared) if declared is not None else class_order(set(train.tolist()))
    if declared is not None:
        return list(range(len(declared)))
    return [int(value) for value in np.unique(train)]


def _refuse_or_skip(split: str, unknown: np.ndarray, num_classes: int, *, skip: bool, notes: Notes) -> None:
    names = listed([str(value) for value in np.unique(unknown).tolist()])
    if skip and split != "train":
        notes.warn(f"split {split}: {counted(len(unknown), 'sample')} of unknown classes left out ({names})")
        return
    remedy = "check data.class_names" if split == "train" else "data.skip_unknown_classes = true leaves them out"
    raise InvalidData(
        f"split {split} has {counted(len(unknown), 'sample')} of classes that are not among the {num_classes} known "
        f"ones: {names}; {remedy}"
    )


def _tell_untrained(split: str, names: Sequence[str], *, skip: bool, notes: Notes) -> None:
    """Warn of declared classes that a split other than train alone has."""
    consequence = "these samples were left out" if skip else "data.skip_unknown_classes = true leaves them out"
    notes.warn(f"split {split} has classes of which split train has no sample: {listed(names)}; {consequence}")


def _tell_mapping(values: Sequence[int] | Sequence[str], notes: Notes) -> None:
    if values and isinstance(values[0], int) and list(values) != list(range(len(values))):
        shown = listed([f"{value} -> {number}" for number, value in enumerate(values)])
        notes.warn(f"labels do not count from 0 without gaps; they were numbered anew: {shown}")
