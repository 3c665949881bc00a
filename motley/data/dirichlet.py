"""Dirichlet partitions: each class is divided among the clients by random shares.

`dirichlet` is the pure form. `dirichlet-capped` is that of PFLlib and HtFLlib, in which a client that already holds
the mean number of samples gets nothing more; the order of the random calls is theirs, so that their tables come out.

Source: FedTopo sheet, section 11.
"""

import time
from dataclasses import dataclass

import numpy as np

from motley.errors import InvalidPartition

MAX_TRIES = 1000
MAX_SECONDS = 10.0
MAX_REDRAWS = 1000  # of the shares of one class


@dataclass(frozen=True)
class Accepted:
    """The first draw that gave every client enough."""

    indices: list[np.ndarray]
    tries: int


def draw_dirichlet(
    by_class: list[np.ndarray], clients: int, alpha: float, least: int, rng: np.random.RandomState, *, capped: bool
) -> Accepted:
    """Draw until every client has at least `least` samples.

    Args:
        by_class: Positions of the samples of each class, ascending.
        clients: Number of clients, N.
        alpha: Concentration; smaller is more skewed.
        least: Smallest number of samples of a client.
        rng: Is used up to the accepted draw, and can be read on from there.
        capped: Give nothing more to clients that hold n/N samples or more.

    Raises:
        InvalidPartition: No draw of 1,000, or none within 10 s, was accepted.
    """
    best, tries, start = 0, 0, time.monotonic()
    while tries < MAX_TRIES and time.monotonic() - start < MAX_SECONDS:
        tries += 1
        classes, sizes = _draw_once(by_class, clients, alpha, rng, capped=capped)
        if sizes.min() >= least:
            pieces = [np.split(shuffled, cuts) for shuffled, cuts in classes]
            return Accepted([np.concatenate(parts) for parts in zip(*pieces, strict=True)], tries)
        best = max(best, int(sizes.min()))
    capped_hint = "" if capped else f", use dirichlet-capped:{alpha:g}"
    raise InvalidPartition(
        f"{'dirichlet-capped' if capped else 'dirichlet'}:{alpha:g} with {clients} clients: in {tries} draws the "
        f"smallest client never had more than {best} samples, and partition.min_samples asks for {least}; "
        f"raise alpha, take fewer clients{capped_hint} or lower min_samples"
    )


def _draw_once(
    by_class: list[np.ndarray], clients: int, alpha: float, rng: np.random.RandomState, *, capped: bool
) -> tuple[list[tuple[np.ndarray, np.ndarray]], np.ndarray]:
    """Return each class shuffled, with the N - 1 places at which it is cut, and the sizes of the clients, (N,)."""
    mean_size = sum(len(members) for members in by_class) / clients
    sizes = np.zeros(clients, np.int64)
    classes = []
    for members in by_class:
        shuffled = members.copy()
        rng.shuffle(shuffled)
        open_clients = sizes < mean_size if capped and len(members) else np.ones(clients, bool)
        shares = _shares(alpha, open_clients, rng)
        cuts = (np.cumsum(shares) * len(shuffled)).astype(np.int64)[:-1]
        sizes += np.diff(cuts, prepend=0, append=len(shuffled))
        classes.append((shuffled, cuts))
    return classes, sizes


def _shares(alpha: float, open_clients: np.ndarray, rng: np.random.RandomState) -> np.ndarray:
    """Return the share of each client, (N,); a draw that leaves nothing to any open client is repeated."""
    concentration = np.repeat(alpha, len(open_clients))
    for _ in range(MAX_REDRAWS):
        shares = rng.dirichlet(concentration) * open_clients
        total = shares.sum()
        if total > 0:  # false for nan, which a tiny alpha gives
            return np.asarray(shares / total)
    raise InvalidPartition(f"alpha {alpha:g} is too small to draw shares from; raise it, or use pathological:1")
