"""Samples that everybody has and no client owns: taken out of the pool before it is partitioned."""

import numpy as np

from motley.data.notes import Notes
from motley.draws import Draws
from motley.errors import InvalidConfig


def proxy_positions(labels: np.ndarray, rest: np.ndarray, number: int | None, draws: Draws, notes: Notes) -> np.ndarray:
    """Return the positions of the proxy set in the pool, ascending, int64; none if `number` is None.

    Every class gives its share of the pool: floor(number n_c / n), and the classes with the largest remainders one
    more, the lower class at a tie.

    Args:
        labels: Classes of the whole pool.
        rest: Positions that may be taken, ascending: those of the pool that no test set has.
        number: P.
        draws: Of the partition; they choose the samples of a class.
        notes: Where it is said what was taken.

    Raises:
        InvalidConfig: Nothing would be left for the clients.
    """
    if number is None:
        return np.zeros(0, np.int64)
    total = len(rest)
    if number >= total:
        raise InvalidConfig(
            f"data.proxy takes {number} samples out of the pool before the partition, but the pool has {total}; "
            f"set --proxy so that most samples are left for the clients"
        )
    own = labels[rest]
    classes, sizes = np.unique(own, return_counts=True)
    shares, remainders = np.divmod(number * sizes, total)
    shares[np.argsort(-remainders, kind="stable")[: number - shares.sum()]] += 1
    rng = draws.numpy("proxy")
    chosen = [
        rng.permutation(np.flatnonzero(own == label))[:share] for label, share in zip(classes, shares, strict=True)
    ]
    notes.add(
        f"proxy: {number} of the {total} samples of the pool, the same share of every class, were taken out before the "
        "partition; no client and no test set has them"
    )
    return np.sort(rest[np.concatenate(chosen)])
