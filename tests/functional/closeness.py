"""Comparison with the literals of the sheets."""

from typing import Any

import torch
from torch import Tensor

TOLERANCE = 1e-9  # the literals are rounded to 12 decimals


def float64(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def assert_near(actual: Any, expected: Any, tolerance: float = TOLERANCE) -> None:
    """Compare absolutely, NaN with NaN."""
    actual = actual if isinstance(actual, Tensor) else float64(actual)
    torch.testing.assert_close(actual.double(), float64(expected), rtol=0, atol=tolerance, equal_nan=True)
