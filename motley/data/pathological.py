"""Pathological partitions: each client holds K classes and no other.

`pathological` is PFLlib's: classes are handed out in index order and cut into unequal pieces, so that blocks of clients
hold the same classes. `pathological-random` draws the classes of each client and cuts each class into equal parts.

Source: FedTopo sheet, section 11; case A11.
"""

import math

import numpy as np

from motley.errors import InvalidPartition


def draw_pathological(
    by_class: list[np.ndarray], k: int, rng: np.random.RandomState, *, clients: int, least: int, balance: bool
) -> list[np.ndarray]:
    """Give classes to clients in index order and cut each class, in index order, into pieces of drawn sizes.

    The last owner of a class takes what is left of it. With `balance` the pieces differ by at most one sample.

    Args:
        by_class: Positions of the samples of each class, ascending; no class is empty.
        k: Classes of each client.
        rng: Draws the sizes of the pieces.
        clients: Number of clients.
        least: Smallest number of samples of a client; a C-th of it is the smallest piece.
        balance: Equal pieces, no draw.
    """
    owners = _owners_in_order(len(by_class), clients, k)
    pieces: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for members, holders in zip(by_class, owners, strict=True):
        sizes = _piece_sizes(len(members), len(holders), least / len(by_class), rng, balance=balance)
        for client, piece in zip(holders, np.split(members, np.cumsum(sizes)[:-1]), strict=True):
            pieces[client].append(piece)
    return [np.concatenate(parts) for parts in pieces]


def draw_pathological_random(
    by_class: list[np.ndarray], clients: int, k: int, rng: np.random.Generator
) -> list[np.ndarray]:
    """Let each client draw K classes; owners per class, and parts of a class, differ by at most one."""
    check_classes_per_client(len(by_class), clients, k)
    pieces: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for members, holders in zip(by_class, _owners_at_random(len(by_class), clients, k, rng), strict=True):
        sizes = _piece_sizes(len(members), len(holders), 0, None, balance=True)
        for client, piece in zip(holders, np.split(rng.permutation(members), np.cumsum(sizes)[:-1]), strict=True):
            pieces[client].append(piece)
    return [np.concatenate(parts) for parts in pieces]


def check_classes_per_client(num_classes: int, clients: int, k: int) -> None:
    """Refuse a K that no client can hold, or that leaves a class without an owner."""
    if k > num_classes:
        raise InvalidPartition(f"{k} classes per client were asked for, but only {num_classes} have samples; lower K")
    if clients * k < num_classes:
        raise InvalidPartition(
            f"{clients} clients with {k} classes each cannot hold all {num_classes} classes; raise K or clients"
        )


def _owners_in_order(num_classes: int, clients: int, k: int) -> list[list[int]]:
    """Return the owners of each class: the first clients that still lack classes."""
    check_classes_per_client(num_classes, clients, k)
    per_class = math.ceil(clients * k / num_classes)
    lacking = [k] * clients
    owners = []
    for _ in range(num_classes):
        holders = [client for client in range(clients) if lacking[client] > 0][:per_class]
        for client in holders:
            lacking[client] -= 1
        owners.append(holders)
    if clients * k % num_classes or any(lacking):
        raise InvalidPartition(
            f"pathological:{k} hands {num_classes} classes out in order, which leaves classes or clients over with "
            f"{clients} clients; {_fitting(num_classes, k)}pathological-random:{k} takes any number"
        )
    return owners


def _fitting(num_classes: int, k: int) -> str:
    if num_classes % k:
        return ""
    return f"take a multiple of {num_classes // k} clients, or "


def _owners_at_random(num_classes: int, clients: int, k: int, rng: np.random.Generator) -> list[list[int]]:
    """Return the owners of each class, each client with K different classes.

    A class that still needs as many owners as there are clients left is taken by all of them; the rest is drawn with
    the open places as weights. So no client is left with too few classes to choose from.
    """
    base, extra = divmod(clients * k, num_classes)
    places = np.full(num_classes, base)
    places[rng.permutation(num_classes)[:extra]] += 1
    owners: list[list[int]] = [[] for _ in range(num_classes)]
    for left, client in zip(range(clients, 0, -1), rng.permutation(clients), strict=True):
        forced = np.flatnonzero(places == left)
        weights = np.where(places == left, 0, places)
        free = k - len(forced)
        drawn = rng.choice(num_classes, free, replace=False, p=weights / weights.sum()) if free else forced[:0]
        for label in np.concatenate([forced, drawn]):
            owners[int(label)].append(int(client))
            places[label] -= 1
    return [sorted(holders) for holders in owners]


def _piece_sizes(
    total: int, parts: int, least: float, rng: np.random.RandomState | None, *, balance: bool
) -> list[int]:
    if total < parts:
        raise InvalidPartition(
            f"a class with {total} samples cannot be divided among {parts} clients; take fewer clients or a smaller K"
        )
    if balance or rng is None or parts == 1:
        whole, rest = divmod(total, parts)
        return [whole + 1] * rest + [whole] * (parts - rest)
    per = total / parts
    low, high = max(1, int(max(per / 10, least))), int(per)
    if low >= high:
        raise InvalidPartition(
            f"a class with {total} samples gives {parts} clients about {per:.1f} each, too few for pieces of "
            f"drawn sizes from {low} on; take fewer clients, a smaller min_samples or balance = true"
        )
    sizes = [int(size) for size in rng.randint(low, high, parts - 1)]
    return [*sizes, total - sum(sizes)]
