"""Fitting a linear head to a few features with hard or soft labels, as a server does with prototypes."""

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from motley.errors import InvalidInput
from motley.functional.shuffling import shuffled_batches

State = Mapping[str, Tensor]
Reduction = Literal["mean", "sum"]


def fit_head(
    head: State,
    features: Tensor,
    labels: Tensor,
    *,
    epochs: int,
    batch_size: int,
    lr: float,
    reduction: Reduction,
    generator: torch.Generator,
) -> dict[str, Tensor]:
    """Return a head after epochs of SGD on the cross-entropy, in shuffled batches.

    Args:
        head: `weight` (C, d) and perhaps `bias` (C,); not changed.
        features: Shape (n, d), constants; with n = 0 the head stays.
        labels: Classes (n,), int64, or probabilities (n, C).
        epochs: Passes over the rows.
        batch_size: Rows in a batch.
        lr: Learning rate.
        reduction: The loss of a batch is the mean or the sum over its rows.
        generator: Decides the order of the rows.

    Returns:
        The new state, in the head's dtype.

    Raises:
        InvalidInput: The shapes do not fit.

    Source: FedGH and FedRE (server methods, sections 5 and 12).

    >>> head = {"weight": torch.zeros(2, 1), "bias": torch.zeros(2)}
    >>> rows, order = torch.tensor([[1.0]]), torch.Generator()
    >>> soft = torch.tensor([[1.0, 0.0]])
    >>> made = fit_head(head, rows, soft, epochs=1, batch_size=1, lr=1.0, reduction="sum", generator=order)
    >>> made["weight"].tolist(), made["bias"].tolist()
    ([[0.5], [-0.5]], [0.5, -0.5])
    """
    new = {name: tensor.detach().clone() for name, tensor in head.items()}
    for index in shuffled_batches(len(features), batch_size, epochs, generator):
        new = head_step(new, features[index], labels[index], lr=lr, reduction=reduction)
    return new


def head_step(head: State, features: Tensor, labels: Tensor, *, lr: float, reduction: Reduction) -> dict[str, Tensor]:
    """Return a head after one step of SGD on one batch; see `fit_head`.

    >>> head_step({"weight": torch.zeros(2, 1)}, torch.ones(1, 1), torch.tensor([0]), lr=1.0, reduction="mean")
    {'weight': tensor([[ 0.5000],
            [-0.5000]])}
    """
    held = {name: tensor.detach().requires_grad_() for name, tensor in head.items()}
    weight = held["weight"]
    if features.ndim != 2 or features.shape[1] != weight.shape[1] or len(labels) != len(features):
        raise InvalidInput(
            f"a head (C, d) = {tuple(weight.shape)} is fitted to features (n, d) and n labels, not "
            f"{tuple(features.shape)} and {tuple(labels.shape)}"
        )
    logits = linear(features.detach().to(weight.dtype), weight, held.get("bias"))
    target = labels.to(weight.dtype) if labels.is_floating_point() else labels
    gradients = torch.autograd.grad(cross_entropy(logits, target, reduction=reduction), list(held.values()))
    return {name: (tensor - lr * slope).detach() for (name, tensor), slope in zip(held.items(), gradients, strict=True)}
