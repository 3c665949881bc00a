"""Trainable global prototypes: contrastive learning with a margin that adapts to how far classes are apart."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from motley.errors import InvalidInput
from motley.functional.global_prototypes import distances

NEAREST = 1e-6  # sqrt(1e-12): below this distance there is no gradient, and none that is NaN

Margin = Literal["nearest", "pair"]


def class_gaps(centres: Tensor) -> Tensor:
    """Return how far every class is from its nearest neighbour: min over c' != c of ||Q_c - Q_c'||_2.

    Args:
        centres: Q, shape (C, d), floating, NaN where a class is absent; at least two are present.

    Returns:
        Shape (C,), NaN where absent.

    Raises:
        InvalidInput: Fewer than two classes are present.

    Source: FedTGP (server methods, section 11).

    >>> class_gaps(torch.tensor([[0.0], [3.0], [torch.nan], [4.0]])).tolist()
    [3.0, 1.0, nan, 1.0]
    """
    apart = _apart(centres)
    gaps = apart.fill_diagonal_(torch.inf).min(dim=1).values
    found = torch.full((len(centres),), torch.nan, dtype=centres.dtype)
    found[~centres.isnan().any(dim=1)] = gaps
    return found


def adaptive_margin(centres: Tensor, tau: float, kind: Margin = "nearest") -> float:
    """Return delta = min(max_c gap_c, tau); with `pair` the largest distance of any two classes in place of the gap.

    Args:
        centres: As for `class_gaps`.
        tau: Largest margin, >= 0.
        kind: "nearest" as the authors' code computes it, "pair" as the paper's formula says.

    Raises:
        InvalidInput: Fewer than two classes are present.

    Source: FedTGP (server methods, section 11).

    >>> Q = torch.tensor([[0.0], [3.0], [4.0]])
    >>> adaptive_margin(Q, 100.0), adaptive_margin(Q, 100.0, "pair"), adaptive_margin(Q, 2.0)
    (3.0, 4.0, 2.0)
    """
    largest = _apart(centres).max() if kind == "pair" else class_gaps(centres).nan_to_num(0.0).max()
    return min(float(largest), tau)


def contrastive_loss(prototypes: Tensor, labels: Tensor, centres: Tensor, margin: float) -> Tensor:
    """Return the mean over n of the cross-entropy of s_ic = -(||p_i - g_c||_2 + delta [c = y_i]).

    The margin lengthens the way to the own class, so that it must be nearer than the others by more than delta.

    Args:
        prototypes: p, shape (n, d), floating; constants.
        labels: Shape (n,), int64, in [0, C).
        centres: g, shape (C, d), of the classes seen so far.
        margin: delta, >= 0.

    Returns:
        A scalar with gradient towards the centres; finite where a centre lies on a prototype.

    Source: FedTGP (server methods, section 11).

    >>> p, g = torch.tensor([[0.0]]), torch.tensor([[1.0], [3.0]])
    >>> round(float(contrastive_loss(p, torch.tensor([0]), g, 2.0)), 6)  # both are 3 away: log 2
    0.693147
    """
    away = distances(prototypes.detach(), centres).clamp(min=NEAREST)
    scores = -(away + margin * one_hot(labels, len(centres)))
    return cross_entropy(scores, labels)


def _apart(centres: Tensor) -> Tensor:
    held = centres[~centres.isnan().any(dim=1)]
    if len(held) < 2:
        raise InvalidInput(f"a margin lies between two classes or more, not {len(held)}")
    return distances(held, held)
