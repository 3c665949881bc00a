"""One vector for all classes of a client: its prototypes mixed with random weights, which are its soft label."""

import torch
from torch import Tensor

from motley.errors import InvalidInput


def entangle(prototypes: Tensor, present: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """Return z~ = sum_c w_c p_c and y~ = w with w_c = u_c / sum of u over the classes that are present, else 0.

    Args:
        prototypes: Shape (C, d), floating; rows of absent classes are not read.
        present: Shape (C,), bool; at least one.
        draws: u, shape (C,), in (0, 1]; those of absent classes are not read.

    Returns:
        Shape (d,) and (C,), float64. With one class, z~ is its prototype as it is.

    Raises:
        InvalidInput: The shapes do not fit, no class is present, or the present draws sum to 0.

    Source: FedRE (server methods, section 12).

    >>> p, u = torch.tensor([[2.0, 3.0], [9.0, 9.0], [0.0, -1.0]]), torch.tensor([0.75, 0.5, 0.25])
    >>> [one.tolist() for one in entangle(p, torch.tensor([True, False, True]), u)]
    [[1.5, 2.0], [0.75, 0.0, 0.25]]
    """
    if prototypes.ndim != 2 or not prototypes.shape[:1] == present.shape == draws.shape:
        raise InvalidInput(
            f"mixing needs prototypes (C, d), a mask (C,) and draws (C,), not {tuple(prototypes.shape)}, "
            f"{tuple(present.shape)} and {tuple(draws.shape)}"
        )
    drawn = torch.where(present, draws.double(), 0.0)
    if not bool(drawn.sum() > 0):
        raise InvalidInput("there is nothing to mix: no class is present, or all weights are 0")
    weights = drawn / drawn.sum()
    return weights @ torch.where(present[:, None], prototypes.double(), 0.0), weights
