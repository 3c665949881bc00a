"""Class prototypes: the mean feature of each class (FedTopo, Eq. 2)."""

import torch
from torch import Tensor

from motley.errors import InvalidInput


def class_sums(features: Tensor, labels: Tensor, num_classes: int) -> tuple[Tensor, Tensor]:
    """Return the sum of the features of each class and how many there are; batches may be added up.

    Args:
        features: Shape (n, d), floating.
        labels: Shape (n,), integer, in [0, C).
        num_classes: C.

    Returns:
        Sums (C, d), float64, and counts (C,), int64, both on the device of `features`.

    Raises:
        InvalidInput: The shapes do not fit or a label is outside of [0, C).

    Source: FedTopo, Eq. 2 (numerator and denominator).

    >>> sums, counts = class_sums(torch.tensor([[4.0, 0.0], [2.0, 1.0], [1.0, 1.0]]), torch.tensor([0, 0, 2]), 3)
    >>> sums.tolist(), counts.tolist()
    ([[6.0, 1.0], [0.0, 0.0], [1.0, 1.0]], [2, 0, 1])
    """
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise InvalidInput(
            f"class sums need features (n, d) and labels (n,), not {tuple(features.shape)} and {tuple(labels.shape)}"
        )
    labels = labels.to(features.device, torch.int64)
    if labels.numel() and not 0 <= int(labels.min()) <= int(labels.max()) < num_classes:
        raise InvalidInput(
            f"labels lie in [{int(labels.min())}, {int(labels.max())}], outside of [0, {num_classes - 1}]"
        )
    sums = torch.zeros(num_classes, features.shape[1], dtype=torch.float64, device=features.device)
    sums.index_add_(0, labels, features.detach().double())
    return sums, torch.bincount(labels, minlength=num_classes)


def class_prototypes(sums: Tensor, counts: Tensor) -> Tensor:
    """Return the mean feature of each class: sums / counts.

    Args:
        sums: Shape (C, d), float64.
        counts: Shape (C,), >= 0.

    Returns:
        Shape (C, d), float64; the row of a class without samples is NaN and must never be sent.

    Raises:
        InvalidInput: The shapes do not fit.

    Source: FedTopo, Eq. 2.

    >>> class_prototypes(torch.tensor([[6.0, 1.0], [0.0, 0.0]]), torch.tensor([2, 0])).tolist()
    [[3.0, 0.5], [nan, nan]]
    """
    if sums.ndim != 2 or counts.shape != sums.shape[:1]:
        raise InvalidInput(
            f"prototypes need sums (C, d) and counts (C,), not {tuple(sums.shape)} and {tuple(counts.shape)}"
        )
    means = sums.double() / counts.double().clamp(min=1).unsqueeze(1)
    return means.masked_fill((counts <= 0).unsqueeze(1), torch.nan)
