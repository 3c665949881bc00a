"""What a source gives: samples and labels in memory, one `Split` for each of train, test and validation."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from torch import Tensor


@dataclass(frozen=True)
class Split:
    """One split of a source, on the CPU."""

    x: Tensor  # uint8 (n, channels, H, W), or float32 (n, channels, length) for signals
    y: Tensor  # int64 (n,)
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)  # other values of each sample, (n,)

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class DataReport:
    """What `motley data SOURCE` shows: plain numbers and strings only."""

    source: str
    shape: tuple[int, ...]  # of one sample
    class_names: tuple[str, ...]
    counts: Mapping[str, tuple[int, ...]]  # split -> samples per class
    modes: Mapping[str, int] = field(default_factory=dict)  # mode of the stored pictures -> number
    duplicates: Mapping[str, int] = field(default_factory=dict)  # 'train', 'train and test' -> identical samples
    ignored_files: int = 0
    ignored_examples: tuple[str, ...] = ()
    damaged: tuple[str, ...] = ()  # names of the pictures that were left out
    notes: tuple[str, ...] = ()  # warnings given, and decisions taken

    def as_dict(self) -> dict[str, Any]:
        """Return the report as dictionaries, lists, numbers and strings, ready for JSON."""
        plain = asdict(self)
        plain["counts"] = {split: list(counts) for split, counts in self.counts.items()}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}


@dataclass(frozen=True)
class Dataset:
    """A source in memory, with one list of classes for all of its splits."""

    name: str
    class_names: tuple[str, ...]
    train: Split
    test: Split | None
    validation: Split | None
    report: DataReport

    @property
    def num_classes(self) -> int:
        """Number of classes, those without any sample included."""
        return len(self.class_names)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample: (channels, H, W) or (channels, length)."""
        return tuple(self.train.x.shape[1:])
