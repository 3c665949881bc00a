"""FedGD's loss terms against the worked numbers of the distillation sheet (section 7), and their properties."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import kl_div, log_softmax

from functional import proxy_numbers as sheet
from functional.closeness import assert_near, float64
from motley.errors import InvalidInput
from motley.functional.synthesis import constant_samples, disagreement_term, statistics_distance


def test_the_distance_of_the_sheet():
    x = torch.arange(16, dtype=torch.float64).view(2, 2, 2, 2)
    assert_near(statistics_distance(x, float64([5, 9]), float64([16, 20])), 3.727868274585, 1e-9)


@pytest.mark.parametrize(
    ("teacher", "expected"), [(float64(sheet.z[2]), 0.0), (1.5 * float64(sheet.z[0]), -0.038139334247)]
)
def test_the_disagreement_of_the_sheet(teacher, expected):
    assert_near(disagreement_term(teacher, float64(sheet.z[0])), expected, 1e-9)


def test_the_distance_is_0_at_the_statistics_of_the_batch_for_any_number_of_axes():
    for shape in ((5, 3), (5, 3, 4), (5, 3, 2, 2)):
        x = torch.randn(shape, dtype=torch.float64)
        flat = x.transpose(0, 1).flatten(1)
        mean, variance = flat.mean(dim=1), ((flat - flat.mean(dim=1, keepdim=True)) ** 2).mean(dim=1)
        assert_near(statistics_distance(x, mean, variance), 0.0, 1e-12)
        assert_near(statistics_distance(x, mean + 1, variance), 3**0.5, 1e-12)


@given(st.integers(0, 1000))
def test_the_disagreement_is_minus_a_kl_where_both_agree(seed):
    generator = torch.Generator().manual_seed(seed)
    e, s = (torch.randn(6, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    agree = e.argmax(dim=1) == s.argmax(dim=1)
    each = kl_div(log_softmax(s, dim=1), log_softmax(e, dim=1), log_target=True, reduction="none").sum(dim=1)
    found = disagreement_term(e, s)
    assert_near(found, -(each * agree).sum().item() / 6, 1e-12)
    assert found <= 0


def test_gradients_flow():
    x = torch.randn(4, 2, 3, 3, dtype=torch.float64, requires_grad=True)
    zero = torch.zeros(2, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: statistics_distance(x, zero, zero), (x,))
    e = torch.tensor([[2.0, 0.0, 1.0]], dtype=torch.float64, requires_grad=True)
    s = torch.tensor([[1.0, 0.5, 0.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(disagreement_term, (e, s))


def test_constant_samples():
    flat = torch.arange(4, dtype=torch.uint8).view(4, 1, 1, 1).expand(4, 3, 2, 2)  # each of one value of its own
    assert constant_samples(flat).all()
    one = flat.clone()
    one[2, 0, 0, 0] += 1  # variance (1/255)^2 * 3/16 = 2.9e-6
    assert constant_samples(one).tolist() == [True, True, False, True]
    assert constant_samples(one, smallest=4e-6).all()
    signals = torch.arange(4.0).view(4, 1, 1).expand(4, 2, 3).clone()
    assert constant_samples(signals).all()
    signals[3, 0, 0] += 0.01  # variance 1e-4 * 2/9 = 2.2e-5
    assert constant_samples(signals).tolist() == [True, True, True, False]
    assert constant_samples(signals, smallest=3e-5).all()


def test_a_picture_of_one_colour_is_constant():
    red = torch.tensor([200, 50, 0], dtype=torch.uint8).view(1, 3, 1, 1).expand(2, 3, 4, 4)
    assert constant_samples(red).all()


@pytest.mark.parametrize(
    "call",
    [
        lambda: statistics_distance(torch.zeros(2, 3), torch.zeros(2), torch.zeros(2)),
        lambda: statistics_distance(torch.zeros(3), torch.zeros(3), torch.zeros(3)),
        lambda: disagreement_term(torch.zeros(2, 3), torch.zeros(2, 4)),
        lambda: disagreement_term(torch.zeros(0, 3), torch.zeros(0, 3)),
    ],
)
def test_shapes_that_do_not_fit_are_refused(call):
    with pytest.raises(InvalidInput):
        call()
