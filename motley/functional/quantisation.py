"""Fewer bits for the weights of a model on the wire: float16, or int8 codes with one scale a tensor."""

import torch
from torch import Tensor

from motley.errors import InvalidInput

LARGEST_CODE = 127  # codes are symmetric, so that 0 stays 0 and -x stays -x


def quantise(values: Tensor) -> tuple[Tensor, Tensor]:
    """Return int8 codes and their scale: s = max |x| / 127, code = round(x / s).

    Args:
        values: Any shape, floating.

    Returns:
        Codes in [-127, 127], int8, the shape of `values`, and s, a float32 scalar, 0 for a tensor of zeros.
        A value that is not finite makes s not finite.

    Raises:
        InvalidInput: `values` is not floating.

    Source: CRAD sheet, int8 snapshots, our reading.

    >>> codes, scale = quantise(torch.tensor([63.5, -12.0, 0.2]))
    >>> codes.tolist(), scale.item()
    ([127, -24, 0], 0.5)
    """
    if not values.is_floating_point():
        raise InvalidInput(f"only floating tensors can be quantised, not {values.dtype}")
    exact = values.detach().float()
    scale = exact.abs().amax() / LARGEST_CODE if exact.numel() else exact.new_zeros(())
    codes = (exact / scale).nan_to_num(0.0).round().clamp(-LARGEST_CODE, LARGEST_CODE)  # 0 / 0: a tensor of zeros
    return codes.to(torch.int8), scale


def dequantise(codes: Tensor, scale: Tensor) -> Tensor:
    """Return s times the codes: the values within s / 2.

    Args:
        codes: Any shape, int8.
        scale: s, a scalar.

    Returns:
        The same shape, float32.

    Source: CRAD sheet, int8 snapshots, our reading.

    >>> dequantise(torch.tensor([127, -24], dtype=torch.int8), torch.tensor(0.5)).tolist()
    [63.5, -12.0]
    """
    return codes.float() * scale.float()


def halved(values: Tensor) -> Tensor:
    """Return a tensor in float16, or unchanged where a finite value would leave its range or it is no float32.

    Args:
        values: Any shape.

    Returns:
        The same shape, float16, or `values`.

    Source: CRAD sheet, float16 snapshots, our reading.

    >>> halved(torch.tensor([1.0, 1e-3])).dtype, halved(torch.tensor([1.0, 1e5])).dtype
    (torch.float16, torch.float32)
    """
    if values.dtype != torch.float32:
        return values
    half = values.detach().half()
    return half if bool((half.isfinite() | ~values.isfinite()).all()) else values
