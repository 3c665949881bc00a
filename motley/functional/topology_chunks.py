"""The sums of FedTopo's server over many uploads at once: the bits of `add_relations`, in a fraction of its time."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from motley.errors import InvalidInput
from motley.functional.topology import EPSILON, PairSums, Weighting

SMALLEST_CHUNK = 8  # uploads that share the copies of the sums
CHUNK_ENTRIES = (
    2**16
)  # of all uploads of a chunk: with few classes, hundreds of them share the overhead of an operation
TILE_ENTRIES = 2**14  # of one upload: with many classes, rows are summed tile by tile, which stays in the cache


def chunk_size(num_classes: int) -> int:
    """Return how many uploads `add_uploads` should get at once.

    >>> chunk_size(10), chunk_size(1000)
    (655, 8)
    """
    return max(SMALLEST_CHUNK, CHUNK_ENTRIES // num_classes**2)


def add_uploads(
    sums: PairSums, relations: Sequence[Tensor], counts: Tensor, *, weighting: Weighting = "reliability"
) -> PairSums:
    """Return the sums with K more clients, one after the other, as `add_relations` would.

    The mask of Eq. 4 is left out: a count of zero makes the weight of Eq. 5 zero by itself (sheet, F1).

    Args:
        sums: So far.
        relations: K of shape (C, C), in ascending client id, checked on receipt; NaN where masked.
        counts: Shape (K, C), >= 0.
        weighting: As for `add_relations`.

    Returns:
        New sums, equal to those of `add_relations` bit for bit; the ones given are not changed.

    Raises:
        InvalidInput: The shapes do not fit.

    Source: FedTopo, Eqs. 5-7.

    >>> import torch
    >>> one = torch.ones(2, 2)
    >>> add_uploads(PairSums.zeros(2), [one], torch.tensor([[1, 1]]), weighting="uniform").weight.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    num_classes = len(sums.support)
    shapes = {tuple(matrix.shape) for matrix in relations}
    if shapes - {(num_classes, num_classes)} or counts.shape != (len(relations), num_classes):
        raise InvalidInput(
            f"uploads need K relations (C, C) and counts (K, C) with C = {num_classes}, not {len(relations)} of "
            f"{', '.join(map(str, sorted(shapes)))} and {tuple(counts.shape)}"
        )
    reliable, uniform = weighting == "reliability", weighting == "uniform"
    weighted, support = sums.weighted.clone(), sums.support.clone()
    weight = sums.weight.clone() if uniform else support
    if num_classes**2 <= TILE_ENTRIES:
        stacked, n = torch.stack(list(relations)), counts.double()
        weights = _weights(n[:, :, None], n[:, None, :])
        used = weights if reliable else (weights > 0).double()
        _add_each(weighted, _parts(stacked, used))
        _add_each(support, weights)
        if uniform:
            _add_each(weight, used)
        return PairSums(weighted, weight, support)
    weights_of = [_weights_of_rows(one) for one in counts]
    masked = (counts <= 0).any(dim=1).tolist()
    step = max(1, TILE_ENTRIES // num_classes)
    for rows in (slice(start, start + step) for start in range(0, num_classes, step)):
        for matrix, weigh, absent in zip(relations, weights_of, masked, strict=True):
            weights = weigh(rows)
            used = weights if reliable else (weights > 0).double()
            support[rows].add_(weights)
            weighted[rows].add_(_parts(matrix[rows], used, masked=absent))
            if uniform:
                weight[rows].add_(used)
    return PairSums(weighted, weight, support)


def _weights(own: Tensor, other: Tensor) -> Tensor:
    """Return the weights of Eq. 5 of pairs of counts, float64."""
    return (own * other).div_((own + other).add_(EPSILON))


def _weights_of_rows(counts: Tensor) -> Callable[[slice], Tensor]:
    """Return what gives rows of the weights of one upload; many classes have equal counts and so equal rows."""
    n = counts.double()
    values, of_class = torch.unique(n, return_inverse=True)
    if 2 * len(values) > len(n):
        return lambda rows: _weights(n[rows, None], n)
    table = _weights(values[:, None], n)
    return lambda rows: table.index_select(0, of_class[rows])


def _parts(relations: Tensor, used: Tensor, *, masked: bool = True) -> Tensor:
    # A masked relation is NaN where its weight is 0, and nowhere else: that is checked on receipt.
    parts = relations.double().mul_(used)
    return parts.nan_to_num_(nan=0.0) if masked else parts


def _add_each(total: Tensor, amounts: Tensor) -> None:
    for amount in amounts.unbind():
        total += amount
