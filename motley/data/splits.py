"""How one client's samples are split into training, validation and test parts.

Every sample is in exactly one part. Sources: FedTopo sheet, section 11 (`local`); CRAD sheet, section 3 (`global`).
"""

import math
from dataclasses import dataclass

import numpy as np

EXACT = 1e-9  # keeps shares like 0.9 * 5 + 0.5 from falling below the whole number that they are


@dataclass(frozen=True)
class Parts:
    """Positions in the pool, int64; any part but the training part may be empty."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


def split_per_class(
    index: np.ndarray, labels: np.ndarray, fraction: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return (kept, held out): of each class floor((1 - fraction) m_c + 1/2) samples are kept, at least one.

    Args:
        index: Positions of the client's samples, (m,).
        labels: Classes of all samples of the pool.
        fraction: Share that is held out.
        rng: Chooses the samples of each class.
    """
    held = np.zeros(len(index), bool)
    own = labels[index]
    for label in np.unique(own):
        members = np.flatnonzero(own == label)
        kept = max(1, math.floor((1 - fraction) * len(members) + 0.5 + EXACT))
        held[rng.permutation(members)[kept:]] = True
    return index[~held], index[held]


def split_random(
    index: np.ndarray, fraction: float, rng: np.random.RandomState | np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return (kept, held out) as PFLlib does: one permutation, of which the first m - floor((1 - fraction) m) are held.

    A class may lose its last sample to the held-out part; the client always keeps one sample (our reading).
    """
    kept = min(len(index), max(1, math.floor((1 - fraction) * len(index) + EXACT)))
    order = rng.permutation(len(index))
    first = len(index) - kept
    return index[order[first:]], index[order[:first]]


def split_halved(index: np.ndarray, labels: np.ndarray, fraction: float, rng: np.random.Generator) -> Parts:
    """Hold out a share of each class and halve it into validation and test.

    Of each class floor(fraction m_c + 1/2) samples are held out, but one stays. The odd ones of the classes go to
    validation and test in turn, in a drawn order, so that the two parts differ by at most one sample.
    """
    own = labels[index]
    role = np.zeros(len(index), np.int64)  # 0 train, 1 validation, 2 test
    odd = []
    for label in np.unique(own):
        members = rng.permutation(np.flatnonzero(own == label))
        held = min(len(members) - 1, math.floor(fraction * len(members) + 0.5 + EXACT))
        half = held // 2
        role[members[:half]], role[members[half : 2 * half]] = 1, 2
        if held % 2:
            odd.append(members[held - 1])
    first = rng.integers(2)
    for turn, position in enumerate(rng.permutation(odd).astype(np.int64)):
        role[position] = 1 + (first + turn) % 2
    return Parts(index[role == 0], index[role == 1], index[role == 2])


def stratified_positions(labels: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
    """Return positions of `number` samples, ascending, the same number of every class as far as there are enough."""
    classes, sizes = np.unique(labels, return_counts=True)
    shares = np.zeros(len(classes), np.int64)
    left = min(number, len(labels))
    while left:
        open_classes = np.flatnonzero(shares < sizes)
        if left < len(open_classes):
            shares[rng.permutation(open_classes)[:left]] += 1
            break
        more = np.minimum(sizes - shares, left // len(open_classes))
        shares += more
        left -= int(more.sum())
    chosen = [
        rng.permutation(np.flatnonzero(labels == label))[:share] for label, share in zip(classes, shares, strict=True)
    ]
    return np.sort(np.concatenate(chosen))
