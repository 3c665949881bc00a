"""The sums of FedTopo's server over many uploads: the bits of `add_relations`, in a fraction of its time."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from motley.errors import InvalidInput
from motley.functional.topology import EPSILON, PairSums, Weighting

SMALLEST_CHUNK = 8  # uploads that a tile of the sums takes while it is in the cache
CHUNK_ENTRIES = 2**16  # of a chunk: with few classes, hundreds of uploads share the overhead of an operation
STACKED_ENTRIES = 2**14  # of one upload; larger ones are not stacked but summed tile by tile
TILE_ENTRIES = 2**16

Weigh = Callable[[slice, slice, Tensor], Tensor]


def chunk_size(num_classes: int) -> int:
    """Return how many uploads `UploadSums.add` should get at once.

    >>> chunk_size(10), chunk_size(1000)
    (655, 8)
    """
    return max(SMALLEST_CHUNK, CHUNK_ENTRIES // num_classes**2)


class UploadSums:
    """The sums of Eqs. 6-7 over uploads that come chunk by chunk: those of `add_relations`, bit for bit.

    The mask of Eq. 4 is left out: a count of zero makes the weight of Eq. 5 zero by itself (sheet, F1). With many
    classes only the upper triangle is summed, as weights and relations are symmetric.

    Args:
        num_classes: C.
        weighting: As for `add_relations`.

    Source: FedTopo, Eqs. 5-7.

    >>> import torch
    >>> sums = UploadSums(2, weighting="uniform")
    >>> sums.add([torch.ones(2, 2)], torch.tensor([[1, 1]]))
    >>> sums.result().weight.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """

    def __init__(self, num_classes: int, *, weighting: Weighting = "reliability") -> None:
        self._weighting = weighting
        self._weighted = torch.zeros(num_classes, num_classes, dtype=torch.float64)
        self._support = torch.zeros_like(self._weighted)
        self._weight = torch.zeros_like(self._weighted) if weighting == "uniform" else self._support

    def add(self, relations: Sequence[Tensor], counts: Tensor) -> None:
        """Add K more clients, one after the other.

        Args:
            relations: K of shape (C, C), in ascending client id, checked on receipt; NaN where masked.
            counts: Shape (K, C), >= 0.

        Raises:
            InvalidInput: The shapes do not fit.
        """
        num_classes = len(self._support)
        shapes = {tuple(matrix.shape) for matrix in relations}
        if shapes - {(num_classes, num_classes)} or counts.shape != (len(relations), num_classes):
            raise InvalidInput(
                f"uploads need K relations (C, C) and counts (K, C) with C = {num_classes}, not {len(relations)} of "
                f"{', '.join(map(str, sorted(shapes)))} and {tuple(counts.shape)}"
            )
        if self._is_tiled:
            self._add_tiles(relations, counts)
        elif relations:
            self._add_stack(torch.stack(list(relations)), counts.double())

    def result(self) -> PairSums:
        """Return the sums so far."""
        made = [_mirrored(each) if self._is_tiled else each for each in (self._weighted, self._weight, self._support)]
        return PairSums(*made)

    @property
    def _is_tiled(self) -> bool:
        return self._support.numel() > STACKED_ENTRIES

    def _add_stack(self, relations: Tensor, counts: Tensor) -> None:
        weights = _weights(counts[:, :, None], counts[:, None, :])
        _add_each(self._support, weights)
        used = self._used(weights)
        if used is not weights:
            _add_each(self._weight, used)
        _add_each(self._weighted, _parts(used, relations))

    def _add_tiles(self, relations: Sequence[Tensor], counts: Tensor) -> None:
        weighing = [_weights_of(one) for one in counts]
        masked = (counts <= 0).any(dim=1).tolist()
        num_classes = len(self._support)
        step = max(1, TILE_ENTRIES // num_classes)
        for start in range(0, num_classes, step):
            rows, columns = slice(start, start + step), slice(start, None)
            support, weighted = self._support[rows, columns], self._weighted[rows, columns]
            space = torch.empty_like(support)
            for matrix, weigh, absent in zip(relations, weighing, masked, strict=True):
                weights = weigh(rows, columns, space)
                support.add_(weights)
                used = self._used(weights)
                if used is not weights:
                    self._weight[rows, columns].add_(used)
                weighted.add_(_parts(used, matrix[rows, columns], masked=absent))

    def _used(self, weights: Tensor) -> Tensor:
        """Return what Eq. 6 weighs by."""
        return weights if self._weighting == "reliability" else (weights > 0).double()


def _weights(own: Tensor, other: Tensor) -> Tensor:
    """Return the weights of Eq. 5 of pairs of counts, float64."""
    return (own * other).div_((own + other).add_(EPSILON))


def _weights_of(counts: Tensor) -> Weigh:
    """Return what gives a tile of the weights of one upload, in the space it is given if it can.

    Many classes have equal counts and so equal rows.
    """
    n = counts.double()
    values, of_class = torch.unique(n, return_inverse=True)
    if 2 * len(values) > len(n):
        return lambda rows, columns, _: _weights(n[rows, None], n[columns])
    table = _weights(values[:, None], n)
    return lambda rows, columns, space: torch.index_select(table[:, columns], 0, of_class[rows], out=space)


def _parts(weights: Tensor, relations: Tensor, *, masked: bool = True) -> Tensor:
    """Return weights times relations, in the place of the weights: one pass that raises float32 to float64, too."""
    # A masked relation is NaN where its weight is 0, and nowhere else: that is checked on receipt.
    parts = weights.mul_(relations)
    return parts.nan_to_num_(nan=0.0) if masked else parts


def _add_each(total: Tensor, amounts: Tensor) -> None:
    for amount in amounts.unbind():
        total += amount


def _mirrored(upper: Tensor) -> Tensor:
    """Return the symmetric matrix with this upper triangle, whatever stands below it."""
    made: Tensor = upper.triu() + upper.triu(1).T
    return made
