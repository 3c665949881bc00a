"""Mutual learning of several models on one client's data (DFML): who teaches whom, and how much.

For model i of K, on the same batch: L_i = (1 - alpha) WSM_i + alpha sum over m != i of lam_im KL(p_m || p_i). WSM, the
softmax weighted by the class counts of the data, is `balanced_cross_entropy`.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from motley.errors import InvalidInput
from motley.functional.averaging import shares


def cyclic_balance(time: int, *, period: int = 10, lowest: float = 0.0, highest: float = 1.0) -> float:
    """Return alpha(t) = low + (high - low) (1 - cos(2 pi t / period)) / 2.

    Args:
        time: t, >= 0; the lowest value at 0, the highest at period / 2.
        period: >= 1.
        lowest, highest: Of alpha, in [0, 1].

    Raises:
        InvalidInput: The period is below 1, or not 0 <= lowest <= highest <= 1.

    Source: DFML, cyclic variation of alpha, our reading of the cosine.

    >>> [round(cyclic_balance(t), 3) for t in (0, 1, 5, 10)]
    [0.0, 0.095, 1.0, 0.0]
    """
    if period < 1 or not 0 <= lowest <= highest <= 1:
        raise InvalidInput(f"alpha needs a period >= 1 and 0 <= lowest <= highest <= 1, not {period, lowest, highest}")
    return lowest + (highest - lowest) * (1 - math.cos(2 * math.pi * time / period)) / 2


def mutual_shares(sizes: Sequence[int]) -> Tensor:
    """Return how much each of K models learns from each other one: lam_im = size_m / sum of the sizes but i's.

    Args:
        sizes: Numbers of parameters, > 0; K >= 2.

    Returns:
        Shape (K, K), float64; rows sum to 1, diagonal 0.

    Raises:
        InvalidInput: There are fewer than two models, or a size is negative or all others are 0.

    Source: DFML, larger models teach more.

    >>> mutual_shares([3, 1, 1]).tolist()
    [[0.0, 0.5, 0.5], [0.75, 0.0, 0.25], [0.75, 0.25, 0.0]]
    """
    if len(sizes) < 2:
        raise InvalidInput(f"mutual learning needs two models or more, not {len(sizes)}")
    rows = [shares([0 if m == i else size for m, size in enumerate(sizes)]) for i in range(len(sizes))]
    return torch.tensor(rows, dtype=torch.float64)


def mutual_divergences(logits: Tensor, shares: Tensor) -> Tensor:
    """Return sum over m of lam_im KL(softmax(z_m) || softmax(z_i)) of every model i; teachers carry no gradient.

    Args:
        logits: Of K models on one batch, shape (K, B, C).
        shares: lam, shape (K, K), diagonal 0.

    Returns:
        Shape (K,), mean over the batch, in the dtype of `logits`.

    Raises:
        InvalidInput: The shapes do not fit.

    Source: DFML, mutual distillation.

    >>> z = torch.tensor([[[0.0, 0.0]], [[0.0, 0.0]]])
    >>> mutual_divergences(z, mutual_shares([1, 1])).tolist()
    [0.0, 0.0]
    """
    count = len(logits)
    if logits.ndim != 3 or shares.shape != (count, count):
        raise InvalidInput(f"logits (K, B, C) need shares (K, K), not {tuple(logits.shape)} and {tuple(shares.shape)}")
    taught = torch.softmax(logits.detach(), dim=2)
    entropies = -torch.xlogy(taught, taught).sum(dim=2)  # (K, B), of the teachers
    crossed = -torch.einsum("mbc,ibc->imb", taught, torch.log_softmax(logits, dim=2))  # K losses of K would be slow
    return (shares.to(logits) * (crossed - entropies).mean(dim=2)).sum(dim=1)
