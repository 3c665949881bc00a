"""What clients do with global prototypes: training is pulled towards them, and the nearest one classifies."""

import torch
from torch import Tensor
from torch.nn.functional import mse_loss

from motley.errors import InvalidInput


def prototype_loss(features: Tensor, labels: Tensor, prototypes: Tensor, present: Tensor) -> Tensor:
    """Return the mean over B d of (z - t)^2, t_i the prototype of class y_i, or z_i itself if there is none.

    A sample whose class has no prototype adds nothing, and stays in the mean.

    Args:
        features: z, shape (B, d), floating.
        labels: Shape (B,), int64, in [0, C).
        prototypes: Shape (C, d); rows of absent classes are not read.
        present: Shape (C,), bool.

    Returns:
        A scalar with gradient 2 (z - t) / (B d) towards the features alone.

    Raises:
        InvalidInput: The widths differ.

    Source: FedProto (server methods, section 10), as HtFLlib computes it.

    >>> z, g = torch.tensor([[1.0, 0.0], [5.0, 5.0]]), torch.tensor([[3.0, 1.0], [torch.nan, torch.nan]])
    >>> float(prototype_loss(z, torch.tensor([0, 1]), g, torch.tensor([True, False])))  # (4 + 1 + 0 + 0) / 4
    1.25
    """
    _check_width(features, prototypes)
    own = prototypes.detach()[labels].to(features.dtype)
    target = torch.where(present[labels][:, None], own, features.detach())
    return mse_loss(features, target)


def nearest(features: Tensor, prototypes: Tensor, present: Tensor) -> Tensor:
    """Return scores whose largest is the nearest prototype: -||z - g_c||_2, and -inf for an absent class.

    Distances are taken of differences, not by expanding the square, which can go negative.

    Args:
        features: z, shape (B, d), floating.
        prototypes: Shape (C, d); rows of absent classes are not read.
        present: Shape (C,), bool; at least one.

    Returns:
        Shape (B, C), the dtype of the features.

    Raises:
        InvalidInput: The widths differ, or no class is present.

    Source: FedProto (server methods, section 10).

    >>> nearest(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0], [0.0, 1.0]]), torch.tensor([True, False]))
    tensor([[-5., -inf]])
    """
    _check_width(features, prototypes)
    if not bool(present.any()):
        raise InvalidInput("no class has a prototype, so none is the nearest")
    return (-distances(features, prototypes)).masked_fill(~present, -torch.inf)


def distances(features: Tensor, prototypes: Tensor) -> Tensor:
    """Return ||z_i - g_c||_2 for features (B, d) and prototypes (C, d), (B, C), from differences.

    >>> distances(torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 4.0]])).tolist()
    [[5.0]]
    """
    return torch.cdist(features, prototypes.to(features.dtype), compute_mode="donot_use_mm_for_euclid_dist")


def _check_width(features: Tensor, prototypes: Tensor) -> None:
    if features.ndim != 2 or prototypes.ndim != 2 or features.shape[1] != prototypes.shape[1]:
        raise InvalidInput(
            f"features (B, d) and prototypes (C, d) need one width, not {tuple(features.shape)} and "
            f"{tuple(prototypes.shape)}"
        )
