"""The subspace of a client's latest updates, and how much each client's auxiliary model moved (FedSCE, our reading)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from motley.errors import InvalidInput
from motley.functional.averaging import shares

NEGLIGIBLE = 1e-10  # of the largest singular value: directions below are rounding


def trajectory_basis(updates: Tensor, directions: int) -> Tensor:
    """Return an orthonormal basis of what a client's latest updates have most in common.

    Left singular vectors of the matrix whose columns are the updates, of its largest singular values. A singular value
    decomposition in float64: of a Gram matrix, singular values below 1e-8 of the largest would be rounding.

    Args:
        updates: One update a row, shape (columns, D), finite.
        directions: r, >= 1.

    Returns:
        V, shape (D, r'), float64, r' = min(r, columns, numerical rank); 0 if all updates are 0.

    Raises:
        InvalidInput: The shape is another, or r < 1.

    Source: FedSCE, our reading.

    >>> trajectory_basis(torch.tensor([[2.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), 2).abs().tolist()
    [[1.0], [0.0], [0.0]]
    """
    if updates.ndim != 2 or directions < 1:
        raise InvalidInput(
            f"a basis needs updates (columns, D) and r >= 1, not {tuple(updates.shape)} and {directions}"
        )
    if not bool((updates != 0).any()):
        return updates.new_zeros(updates.shape[1], 0, dtype=torch.float64)
    _, values, rows = torch.linalg.svd(updates.double(), full_matrices=False)
    rank = int((values > NEGLIGIBLE * values[0]).sum())
    basis: Tensor = rows[: min(directions, rank)].T.contiguous()
    return basis


def project(basis: Tensor, gradient: Tensor) -> Tensor:
    """Return V V^T g.

    Args:
        basis: V, shape (D, r), orthonormal columns.
        gradient: g, shape (D,), of the same dtype.

    Returns:
        Shape (D,).

    Source: FedSCE, our reading.

    >>> project(torch.tensor([[1.0], [0.0]]), torch.tensor([3.0, 4.0])).tolist()
    [3.0, 0.0]
    """
    confined: Tensor = basis @ (basis.T @ gradient)
    return confined


def contributions(feature: Sequence[float], parameter: Sequence[float], feature_share: float) -> list[float]:
    """Return w_k = phi df_k / sum df + (1 - phi) dp_k / sum dp; a half whose sum is 0 is uniform.

    Args:
        feature: df, how far each client's auxiliary model moved in features, >= 0.
        parameter: dp, how far in parameters, >= 0.
        feature_share: phi, in [0, 1].

    Returns:
        One weight a client, sum 1.

    Raises:
        InvalidInput: The numbers of clients differ, phi is outside of [0, 1], or a distance is negative or not finite.

    Source: FedSCE, our reading.

    >>> contributions([0.5, 0.5, 1.0], [2.0, 1.0, 1.0], 0.5)
    [0.375, 0.25, 0.375]
    """
    if len(feature) != len(parameter) or not 0 <= feature_share <= 1:
        raise InvalidInput(f"contributions of {len(feature)} and {len(parameter)} clients with a share {feature_share}")
    halves = [shares(one if any(one) else [1.0] * len(one)) for one in (feature, parameter)]
    return [feature_share * first + (1 - feature_share) * second for first, second in zip(*halves, strict=True)]
