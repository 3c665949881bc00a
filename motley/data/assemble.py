"""From what a source has found to a data set: labels, limit, decoding and the data report, the same for all sources."""

from collections.abc import Callable, Mapping

import numpy as np
import torch

from motley.data.dataset import DataReport, Dataset, Split
from motley.data.labels import Labels, check_not_row_numbers, keep_classes, resolve_labels
from motley.data.notes import Notes
from motley.data.pictures import Decoded, decode_all
from motley.data.raw import Pictures, RawSource
from motley.data.report import class_counts, duplicates
from motley.data.splits import stratified_positions
from motley.data.wording import counted
from motley.draws import Draws
from motley.errors import InvalidData
from motley.options import DataOptions

LIMIT_SEED = 0  # the limit is a property of the data, not of a run


def assemble(raw: RawSource, options: DataOptions, notes: Notes) -> Dataset:
    """Return the data set that a source's findings and the options make.

    Raises:
        InvalidData: Labels or pictures are not as they should be; the message names the place and the remedy.
    """
    if raw.ignored:
        notes.warn(f"{counted(len(raw.ignored), 'file')} ignored, being no pictures, for example {raw.ignored[0]}")
    declared = options.class_names or raw.class_names
    labels = resolve_labels(
        {split: part.labels for split, part in raw.splits.items()},
        {split: len(part.inputs) for split, part in raw.splits.items()},
        declared,
        skip_unknown=options.skip_unknown_classes,
        notes=notes,
    )
    if raw.by_folder:
        _check_layout(labels)
    elif not declared:
        check_not_row_numbers(labels.numbers["train"])
    if options.keep_classes:
        labels = keep_classes(labels, options.keep_classes)
    rows = {split: _limited(labels, split, options.limit) for split in raw.splits}
    decoded = _decode(raw, labels, rows, options, notes)
    splits = {split: _split(raw, labels, rows[split], decoded, split) for split in raw.splits}
    if not len(splits["train"]):
        raise InvalidData(f"{raw.name} has no sample in split train")
    filled = {split: part for split, part in splits.items() if len(part)}
    report = DataReport(
        source=options.source,
        shape=tuple(splits["train"].x.shape[1:]),
        class_names=labels.class_names,
        counts={split: class_counts(part, len(labels.class_names)) for split, part in splits.items()},
        modes=decoded.modes,
        duplicates=duplicates(filled),
        ignored_files=len(raw.ignored),
        ignored_examples=tuple(raw.ignored[:10]),
        damaged=decoded.damaged,
        notes=notes.all(),
    )
    return Dataset(raw.name, labels.class_names, splits["train"], filled.get("test"), filled.get("validation"), report)


def _check_layout(labels: Labels) -> None:
    """Refuse a split with one class where another has several: its pictures most likely lie in the wrong folders."""
    held = {split: len(np.unique(numbers)) for split, numbers in labels.numbers.items() if len(numbers)}
    single = [split for split, classes in held.items() if classes == 1]
    if single and max(held.values()) > 1:
        raise InvalidData(
            f"split {single[0]} has a single class and another split has {max(held.values())}; check that its pictures "
            "lie in one folder a class"
        )


def _limited(labels: Labels, split: str, limit: int | None) -> np.ndarray:
    """Return the positions, among the rows with a class, that the limit keeps."""
    numbers = labels.numbers[split]
    if limit is None or limit >= len(numbers):
        return np.arange(len(numbers))
    return stratified_positions(numbers, limit, Draws(LIMIT_SEED).numpy(f"limit {split}"))


def _decode(
    raw: RawSource, labels: Labels, rows: Mapping[str, np.ndarray], options: DataOptions, notes: Notes
) -> Decoded:
    """Decode the pictures that are used; inputs that are arrays already are only cut to the rows that are used."""
    pictures, arrays = {}, {}
    for split, part in raw.splits.items():
        kept = labels.rows[split][rows[split]]
        if isinstance(part.inputs, Pictures):
            pictures[split] = _subset(part.inputs, kept)
        else:
            arrays[split] = part.inputs[kept]
    if pictures and not arrays:
        return decode_all(pictures, options.size, skip_damaged=options.skip_damaged, notes=notes)
    assert not pictures
    if len({array.shape[1:] for array in arrays.values()}) > 1:
        shapes = ", ".join(f"{split} {array.shape[1:]}" for split, array in arrays.items())
        raise InvalidData(f"the splits of {raw.name} have samples of different shapes: {shapes}")
    if options.size is not None and any(array.dtype != np.uint8 for array in arrays.values()):
        raise InvalidData(f"data.size resizes pictures, and {raw.name} has signals; leave it out")
    if options.size is not None:
        return _resized(arrays, options.size, notes)
    whole = {split: np.arange(len(array)) for split, array in arrays.items()}
    return Decoded(arrays, whole, {}, ())


def _resized(arrays: Mapping[str, np.ndarray], size: int, notes: Notes) -> Decoded:
    """Resize arrays of pixels, (n, channels, H, W), in the way in which files are resized."""
    pictures = {
        split: Pictures([str(row) for row in range(len(array))], _reader(array)) for split, array in arrays.items()
    }
    return decode_all(pictures, size, skip_damaged=False, notes=notes)


def _reader(array: np.ndarray) -> Callable[[int], np.ndarray]:
    def read(row: int) -> np.ndarray:
        return np.ascontiguousarray(array[row, 0] if array.shape[1] == 1 else array[row].transpose(1, 2, 0))

    return read


def _subset(pictures: Pictures, rows: np.ndarray) -> Pictures:
    return Pictures([pictures.names[row] for row in rows], lambda position: pictures.read(int(rows[position])))


def _split(raw: RawSource, labels: Labels, rows: np.ndarray, decoded: Decoded, split: str) -> Split:
    whole = rows[decoded.rows[split]]
    positions = labels.rows[split][whole]
    columns = {name: values[positions] for name, values in raw.splits[split].columns.items()}
    x = torch.from_numpy(np.ascontiguousarray(decoded.arrays[split]))
    return Split(x, torch.from_numpy(labels.numbers[split][whole]), columns)
