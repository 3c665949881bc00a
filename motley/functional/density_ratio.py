"""Density ratio of two sets of points (KuLSIF, by unconstrained least squares): how much likelier x is in the first."""

from dataclasses import dataclass

import torch
from torch import Tensor

from motley.errors import InvalidInput

AT_ONCE = 4096  # points whose distances are held at a time


@dataclass(frozen=True)
class DensityRatio:
    """r(x) = sum_i alpha_i k(x, aux_i) + mean_j k(x, known_j) / lambda, with k(a, b) = exp(-|a - b|^2 / (2 width^2)).

    Attributes:
        known: Points of the numerator, (m, d) float64.
        auxiliary: Points of the denominator, (n, d) float64.
        alpha: Coefficients, (n,) float64.
        width: Of the Gaussian.
        penalty: lambda.
    """

    known: Tensor
    auxiliary: Tensor
    alpha: Tensor
    width: float
    penalty: float

    def __call__(self, x: Tensor) -> Tensor:
        """Return the ratio at points (k, d), (k,) float64; it may be slightly negative, since nothing constrains it."""
        x = x.double()
        near = torch.cat([_kernel(part, self.auxiliary, self.width) @ self.alpha for part in torch.split(x, AT_ONCE)])
        return near + _kernel_means(x, self.known, self.width) / self.penalty


def fit_density_ratio(known: Tensor, auxiliary: Tensor, *, penalty: float, width: float) -> DensityRatio:
    """Return the least-squares estimate of p_known / p_auxiliary.

    alpha = solve(K_aa / n + lambda I, -K_ak 1 / (n m lambda))

    Args:
        known: Points of the numerator, (m, d), m >= 1.
        auxiliary: Points of the denominator, (n, d), n >= 1.
        penalty: lambda, > 0.
        width: Of the Gaussian kernel, > 0, in the unit of the points.

    Raises:
        InvalidInput: There are no points, their widths differ, or lambda or the width is not above 0.

    Source: Kanamori, Suzuki and Sugiyama 2012, Theorem 1; MSFKD sheet, selector `kulsif`.

    >>> ratio = fit_density_ratio(torch.zeros(1, 1), torch.tensor([[0.0], [1.0]]), penalty=0.1, width=0.5)
    >>> bool(ratio(torch.zeros(1, 1)) > ratio(torch.ones(1, 1)))
    True
    """
    if known.ndim != 2 or auxiliary.ndim != 2 or known.shape[1] != auxiliary.shape[1]:
        raise InvalidInput(
            f"a density ratio needs points (m, d) and (n, d), not {tuple(known.shape)} and {tuple(auxiliary.shape)}"
        )
    if not len(known) or not len(auxiliary) or penalty <= 0 or width <= 0:
        raise InvalidInput(
            f"a density ratio needs points, lambda > 0 and a width > 0, not {len(known)} and {len(auxiliary)} points, "
            f"{penalty} and {width}"
        )
    known, auxiliary = known.double(), auxiliary.double()
    number = len(auxiliary)
    unit = torch.eye(number, dtype=torch.float64, device=auxiliary.device)
    matrix = _kernel(auxiliary, auxiliary, width) / number + penalty * unit
    side = -_kernel_means(auxiliary, known, width) / (number * penalty)
    return DensityRatio(known, auxiliary, torch.linalg.solve(matrix, side), width, penalty)


def median_distance(points: Tensor) -> float:
    """Return the median distance between two different points, a usual width of a Gaussian kernel; 1 if it is 0.

    Args:
        points: Shape (n, d).

    >>> median_distance(torch.tensor([[0.0], [2.0], [4.0]]))
    2.0
    """
    distances = torch.pdist(points.double())
    middle = distances.median().item() if len(distances) else 0.0
    return middle or 1.0


def _kernel(a: Tensor, b: Tensor, width: float) -> Tensor:
    return torch.exp(-torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square() / (2 * width**2))


def _kernel_means(x: Tensor, known: Tensor, width: float) -> Tensor:
    """Return mean_j k(x, known_j), (k,), without the whole matrix of distances."""
    total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    for part in torch.split(known, AT_ONCE):
        total += _kernel(x, part, width).sum(dim=1)
    return total / len(known)
