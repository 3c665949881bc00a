"""Targets of uncertainty distillation, with which CRAD is compared: teachers weigh by the entropy of what they say."""

import math
from typing import Literal

import torch
from torch import Tensor

from motley.errors import InvalidInput
from motley.functional.reliability import EPSILON, check_soft_targets


def uncertainty_weights(q: Tensor, form: Literal["softmax", "information"] = "softmax") -> Tensor:
    """Return per-sample weights of the teachers from the entropy H of their soft targets.

    Args:
        q: Shape (M, B, C), M >= 1.
        form: "softmax" over the teachers of -H; "information": log C - H, normalised (equal if all are 0).

    Returns:
        Shape (M, B), dtype of `q`, sums to 1 over the teachers.

    Raises:
        InvalidInput: `q` has another shape or no teacher.

    Source: uncertainty distillation, as compared in CRAD.

    >>> q = torch.tensor([[[1.0, 0.0]], [[0.5, 0.5]]])
    >>> uncertainty_weights(q, "information").flatten().tolist()
    [1.0, 0.0]
    """
    check_soft_targets(q)
    entropy = -torch.xlogy(q, q).sum(dim=2)
    if form == "softmax":
        return torch.softmax(-entropy, dim=0)
    information = (math.log(q.shape[2]) - entropy).clamp(min=0)
    total = information.sum(dim=0)
    return torch.where(total > EPSILON, information / total, 1 / len(q))


def uncertainty_target(q: Tensor, weights: Tensor) -> Tensor:
    """Return the mean of the soft targets with per-sample weights.

    Args:
        q: Shape (M, B, C).
        weights: Shape (M, B), sums to 1 over the teachers.

    Returns:
        Shape (B, C).

    Raises:
        InvalidInput: The shapes do not fit.

    Source: uncertainty distillation, as compared in CRAD.

    >>> uncertainty_target(torch.tensor([[[1.0, 0.0]], [[0.5, 0.5]]]), torch.tensor([[0.5], [0.5]])).tolist()
    [[0.75, 0.25]]
    """
    check_soft_targets(q)
    if weights.shape != q.shape[:2]:
        raise InvalidInput(f"weights must have shape (M, B) = {tuple(q.shape[:2])}, not {tuple(weights.shape)}")
    return (weights.unsqueeze(2) * q).sum(dim=0)
