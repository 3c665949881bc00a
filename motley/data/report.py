"""The figures of a data report: samples per class and identical samples."""

import hashlib
from collections.abc import Mapping
from itertools import combinations

import numpy as np
from torch import Tensor

from motley.data.dataset import Split


def class_counts(split: Split, num_classes: int) -> tuple[int, ...]:
    """Return the number of samples of each class."""
    return tuple(np.bincount(split.y.numpy(), minlength=num_classes).tolist())


def duplicates(splits: Mapping[str, Split]) -> dict[str, int]:
    """Return how many samples repeat an earlier one of their split, and how many of one split occur in another.

    Samples are compared by a hash of their bytes. Keys: `train`, `train and test` and so on.
    """
    hashes = {name: _hashes(split.x) for name, split in splits.items()}
    within = {name: len(own) - len(set(own)) for name, own in hashes.items()}
    between = {f"{a} and {b}": len(set(hashes[a]) & set(hashes[b])) for a, b in combinations(hashes, 2)}
    return within | between


def _hashes(x: Tensor) -> list[bytes]:
    rows = np.ascontiguousarray(x.numpy())
    return [hashlib.blake2b(row.data, digest_size=16).digest() for row in rows]
