"""Points of many dimensions in a plane: principal components."""

from dataclasses import dataclass

import torch
from torch import Tensor

from motley.errors import InvalidInput


@dataclass(frozen=True)
class Plane:
    """The plane in which points vary most."""

    centre: Tensor  # (d,) float64
    axes: Tensor  # (d, 2) float64, orthonormal; zero where the points have fewer directions
    explained: tuple[float, float]  # share of the variance along each axis

    def of(self, points: Tensor) -> Tensor:
        """Return the coordinates (..., 2), float64, of points (..., d)."""
        return (points.double() - self.centre) @ self.axes


def principal_plane(points: Tensor) -> Plane:
    """Return the plane of the first two principal components.

    Args:
        points: Shape (n, d), n >= 1, finite.

    Returns:
        The plane; the sign of an axis is such that its largest entry is positive.

    Raises:
        InvalidInput: There is no point, or one is not finite.

    >>> plane = principal_plane(torch.tensor([[0.0, 1.0, 0.0], [0.0, 3.0, 0.0], [0.0, 5.0, 0.0]]))
    >>> plane.of(torch.tensor([0.0, 5.0, 0.0])).round(decimals=9).tolist(), plane.explained
    ([2.0, 0.0], (1.0, 0.0))
    """
    if points.ndim != 2 or not len(points) or not bool(points.isfinite().all()):
        raise InvalidInput(f"a projection needs finite points (n, d), not {tuple(points.shape)}")
    exact = points.double()
    centre = exact.mean(dim=0)
    _, sizes, directions = torch.linalg.svd(exact - centre, full_matrices=False)
    total = float((sizes**2).sum())
    axes, shares = torch.zeros(exact.shape[1], 2, dtype=torch.float64), [0.0, 0.0]
    for place in range(min(2, len(sizes))):
        if float(sizes[place]) > 1e-12 * max(1.0, float(sizes[0])):
            direction = directions[place]
            axes[:, place] = direction * direction[direction.abs().argmax()].sign()
            shares[place] = float(sizes[place]) ** 2 / total
    return Plane(centre, axes, (shares[0], shares[1]))
