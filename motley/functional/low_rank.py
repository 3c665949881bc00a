"""Compression of a model's update (FedKD): each weight matrix as a few singular directions, all else as it is."""

from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor

from motley.errors import InvalidInput

State = Mapping[str, Tensor]
PARTS = ("left", "values", "right")
SIGN = "|"  # "layer.weight|left" is a factor of the entry "layer.weight"


def energy_at(round: int, *, first: float, last: float, rounds: int) -> float:
    """Return E_t = first + (t / T) (last - first), which stays at `last` beyond T.

    Args:
        round: t, from 1.
        first, last: Shares of energy in (0, 1].
        rounds: T, >= 1.

    Source: FedKD, dynamic approximation.

    >>> round(energy_at(250, first=0.95, last=0.98, rounds=500), 6)
    0.965
    """
    return first + min(1.0, round / rounds) * (last - first)


def singular_parts(matrix: Tensor, energy: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return the fewest singular directions that hold a share of a matrix's energy: r >= 1, 0 for a zero matrix.

    sum over i <= r of sigma_i^2 >= energy * sum of all sigma_i^2. Computed in float64 from the eigenvectors of the
    smaller Gram matrix, whose eigenvalues are the energies; an SVD of 512 x 1600 takes seven times as long. Directions
    of less energy than the rounding of the largest are left out.

    Args:
        matrix: Shape (m, n), finite.
        energy: Share, in (0, 1].

    Returns:
        U (m, r), sigma (r,), descending, and V (n, r), float64: matrix is close to U diag(sigma) V^T.

    Raises:
        InvalidInput: It is no matrix, or the share is outside of (0, 1].

    Source: FedKD, Eq. of the SVD threshold (with >=, since > could never be met at 1).

    >>> [part.shape[-1] for part in singular_parts(torch.diag(torch.tensor([3.0, 1.0, 0.0])), 0.95)]
    [2, 2, 2]
    """
    if matrix.ndim != 2 or not 0 < energy <= 1:
        raise InvalidInput(f"a share of energy in (0, 1] of a matrix, not {energy} of shape {tuple(matrix.shape)}")
    held = matrix.double()
    turned = held.shape[0] > held.shape[1]
    wide = held.T if turned else held
    energies, directions = torch.linalg.eigh(wide @ wide.T)
    energies, directions = energies.flip(0), directions.flip(1)
    some = energies > max(wide.shape[0], 1) * torch.finfo(torch.float64).eps * energies[:1]
    grown = torch.where(some, energies, 0.0).cumsum(0)
    rank = int((grown < energy * grown[-1]).sum()) + 1 if bool(some.any()) else 0
    near = directions[:, :rank]
    far = wide.T @ near  # (n, r), columns of length sigma
    values = far.norm(dim=0)
    far = far / values
    return (far, values, near) if turned else (near, values, far)


def compress(update: State, energy: float) -> dict[str, Tensor]:
    """Return what travels of an update.

    An entry of two or more axes is reshaped to (first axis, rest) and sent as three factors if r (m + n + 1) < m n; a
    zero matrix is not sent at all. All else travels raw, also an entry that is not finite, for the receiver to refuse.

    Args:
        update: Entries by name.
        energy: Share of every matrix's energy that is kept, in (0, 1].

    Returns:
        Tensors by name, in the dtype of their entries.

    Source: FedKD, compression.

    >>> list(compress({"w": torch.ones(4, 4), "b": torch.ones(4), "zero": torch.zeros(4, 4)}, 0.95))
    ['w|left', 'w|values', 'w|right', 'b']
    """
    packed: dict[str, Tensor] = {}
    for name, tensor in update.items():
        if tensor.ndim < 2 or not tensor.is_floating_point() or not bool(torch.isfinite(tensor).all()):
            packed[name] = tensor.detach().clone()
            continue
        matrix = tensor.detach().flatten(1)
        factors = singular_parts(matrix, energy)
        rank = len(factors[1])
        if rank * (sum(matrix.shape) + 1) >= matrix.numel():
            packed[name] = tensor.detach().clone()
        elif rank:
            packed |= {
                f"{name}{SIGN}{part}": factor.to(tensor.dtype) for part, factor in zip(PARTS, factors, strict=True)
            }
    return packed


def expand(packed: State, like: State) -> dict[str, Tensor]:
    """Return the update that `compress` made of it.

    Products are taken in float64 on the CPU, so that a server and its clients find the same numbers on any device.

    Args:
        packed: What travelled.
        like: A state with the entries, shapes and dtypes of the update; only these are read.

    Returns:
        Entries by name, on the CPU.

    Raises:
        InvalidInput: An entry is missing, unknown, or of another shape.

    Source: FedKD, decompression.

    >>> packed = compress({"w": torch.ones(4, 5)}, 0.95)
    >>> expand(packed, {"w": torch.zeros(4, 5)})["w"].allclose(torch.ones(4, 5))
    True
    """
    known = {name for key in like for name in (key, *(f"{key}{SIGN}{part}" for part in PARTS))}
    for name in packed:
        if name not in known:
            raise InvalidInput(f"an update has the entry {name!r}, which the model does not have")
    return {name: _expanded(packed, name, entry) for name, entry in like.items()}


def _expanded(packed: State, name: str, like: Tensor) -> Tensor:
    if name in packed:
        if packed[name].shape != like.shape:
            raise InvalidInput(f"an update has {name!r} of shape {tuple(packed[name].shape)}, not {tuple(like.shape)}")
        return packed[name].cpu()
    factors = [packed[f"{name}{SIGN}{part}"].cpu().double() for part in PARTS if f"{name}{SIGN}{part}" in packed]
    can_be_zero = like.ndim >= 2 and like.is_floating_point()
    if len(factors) not in ((0, 3) if can_be_zero else ()):
        raise InvalidInput(f"an update lacks the entry {name!r} or one of its factors")
    if not factors:
        return torch.zeros(like.shape, dtype=like.dtype)
    rows, columns = like.shape[0], prod(like.shape[1:])
    left, values, right = factors
    if left.shape != (rows, len(values)) or right.shape != (columns, len(values)):
        raise InvalidInput(f"an update has factors of {name!r} that do not make a matrix of {rows} x {columns}")
    return ((left * values) @ right.T).view(like.shape).to(like.dtype)
