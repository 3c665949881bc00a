"""What a source has found before anything is decoded or checked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Pictures:
    """Pictures that are still to be decoded: encoded bytes, or arrays of pixels (H, W) or (H, W, 3)."""

    names: Sequence[str]
    read: Callable[[int], bytes | np.ndarray]

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True)
class RawSplit:
    """One split as its source stores it."""

    inputs: Pictures | np.ndarray  # an array is final: uint8 (n, channels, H, W) or float32 (n, channels, length)
    labels: np.ndarray  # integers, or names as text
    columns: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class RawSource:
    """All splits of a source: `train`, and perhaps `test` and `validation`."""

    name: str
    splits: Mapping[str, RawSplit]
    class_names: tuple[str, ...] | None = None  # those that the source declares; labels are then their positions
    ignored: Sequence[str] = ()  # files that are no pictures
    by_folder: bool = False  # labels come from folders, whose layout may have been misread
