"""Weights in fewer bits: bounds of what is lost, and what must not be lost."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motley.errors import InvalidInput
from motley.functional.quantisation import dequantise, halved, quantise


@given(values=st.lists(st.floats(-1e6, 1e6, width=32), max_size=20))
def test_a_value_comes_back_within_half_a_step(values):
    held = torch.tensor(values, dtype=torch.float32)
    codes, scale = quantise(held)
    assert codes.dtype == torch.int8
    assert codes.shape == held.shape
    lost = (dequantise(codes, scale).double() - held.double()).abs()
    limit = scale.double() / 2 * 1.0001 + 1e-42  # float32 rounds the quotient; denormals have steps of 1.4e-45
    assert bool((lost <= limit).all())


def test_worked_codes():
    # max 254, s = 2: 254 / 2, -3 / 2 = -1.5 (to even: -2), 0.9 / 2 = 0.45.
    codes, scale = quantise(torch.tensor([[254.0, -3.0], [0.9, -254.0]]))
    assert codes.tolist() == [[127, -2], [0, -127]]
    assert scale.item() == 2.0


def test_signs_are_kept_and_zeros_stay():
    held = torch.randn(50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(quantise(-held)[0], -quantise(held)[0])
    codes, scale = quantise(torch.zeros(3, 2))
    assert dequantise(codes, scale).tolist() == torch.zeros(3, 2).tolist()


def test_what_is_not_finite_shows_in_the_scale():
    assert not quantise(torch.tensor([1.0, torch.nan]))[1].isfinite()
    assert not quantise(torch.tensor([1.0, torch.inf]))[1].isfinite()


def test_halved_keeps_other_dtypes_and_what_is_beyond_its_range():
    for held in (torch.tensor(7), torch.tensor([1.0], dtype=torch.float64), torch.tensor([65600.0])):
        assert halved(held) is held
    assert halved(torch.tensor([65504.0])).dtype == torch.float16
    assert halved(torch.tensor([torch.nan])).isnan().all()  # the message is refused for it, not widened


def test_integers_are_refused():
    with pytest.raises(InvalidInput, match="int64"):
        quantise(torch.tensor([1]))
