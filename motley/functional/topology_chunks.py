"""The sums of FedTopo's server over many uploads at once: the bits of `add_relations`, in a fraction of its time."""

from torch import Tensor

from motley.errors import InvalidInput
from motley.functional.topology import EPSILON, PairSums, Weighting

SMALLEST_CHUNK = 8  # uploads that share the copies of the sums
CHUNK_ENTRIES = (
    2**16
)  # of all uploads of a chunk: with few classes, hundreds of them share the overhead of an operation
TILE_ENTRIES = 2**15  # of one upload: with many classes, rows are summed tile by tile, which stays in the cache


def chunk_size(num_classes: int) -> int:
    """Return how many uploads `add_uploads` should get at once.

    >>> chunk_size(10), chunk_size(1000)
    (655, 8)
    """
    return max(SMALLEST_CHUNK, CHUNK_ENTRIES // num_classes**2)


def add_uploads(sums: PairSums, relations: Tensor, counts: Tensor, *, weighting: Weighting = "reliability") -> PairSums:
    """Return the sums with K more clients, one after the other, as `add_relations` would.

    The mask of Eq. 4 is left out: a count of zero makes the weight of Eq. 5 zero by itself (sheet, F1).

    Args:
        sums: So far.
        relations: Shape (K, C, C), in ascending client id, checked on receipt; NaN where masked.
        counts: Shape (K, C), >= 0.
        weighting: As for `add_relations`.

    Returns:
        New sums, equal to those of `add_relations` bit for bit; the ones given are not changed.

    Raises:
        InvalidInput: The shapes do not fit.

    Source: FedTopo, Eqs. 5-7.

    >>> import torch
    >>> one = torch.ones(1, 2, 2)
    >>> add_uploads(PairSums.zeros(2), one, torch.tensor([[1, 1]]), weighting="uniform").weight.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    num_classes = len(sums.support)
    if relations.shape != (len(counts), num_classes, num_classes) or counts.shape[1:] != (num_classes,):
        raise InvalidInput(
            f"uploads need relations (K, C, C) and counts (K, C) with C = {num_classes}, not {tuple(relations.shape)} "
            f"and {tuple(counts.shape)}"
        )
    weighted, support, weight = sums.weighted.clone(), sums.support.clone(), sums.weight.clone()
    n = counts.double()
    step = max(1, TILE_ENTRIES // num_classes)
    for start in range(0, num_classes, step):
        rows = slice(start, start + step)
        own, other = n[:, rows, None], n[:, None, :]
        reliable = own * other
        reliable /= (own + other).add_(EPSILON)
        used = reliable if weighting == "reliability" else (reliable > 0).double()
        # A masked relation is NaN where its weight is 0, and nowhere else: that is checked on receipt.
        parts = relations[:, rows].double().mul_(used).nan_to_num_(nan=0.0)
        for total, amounts in ((weighted, parts), (support, reliable)):
            tile = total[rows]
            for amount in amounts.unbind():
                tile += amount
        if weighting == "uniform":
            tile = weight[rows]
            for amount in used.unbind():
                tile += amount
    return PairSums(weighted, support.clone() if weighting == "reliability" else weight, support)
