"""DFML's formulas: the worked numbers of its sheet (section 7), identities, and a slow twin."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motley.errors import InvalidInput
from motley.functional.balanced import balanced_cross_entropy
from motley.functional.mutual import cyclic_balance, mutual_divergences, mutual_shares

from .closeness import assert_near, float64

Z = [[[2.0, 0.0, -1.0], [0.0, 1.0, 0.0]], [[0.0, 3.0, 0.0], [1.0, 1.0, -2.0]], [[1.0, 0.0, 4.0], [2.0, -2.0, 0.0]]]
WSM_Z, WSM_Y = [[2.0, 1.0, 0.0], [0.0, 1.0, 3.0]], [0, 2]
WSM = {(1, 0, 1): 0.087757681308, (6, 3, 1): 0.360562839891, (1, 1, 1): 0.288725992000}  # the last is the plain loss
ALPHA = [0.0, 0.095491502813, 0.345491502813, 0.654508497187, 0.904508497187, 1.0]
ALPHA = ALPHA + ALPHA[-2::-1]
SIZES = [11173962, 2797610, 816202]
KL_BY_SIZE = [1.218987615685, 1.330090564805, 2.252864457864]
KL_EQUAL = [1.466004597874, 1.501019917022, 2.312740799399]
LAM_FOR_CNN6 = [0.799764121031, 0.200235878969]


@pytest.mark.parametrize(("counts", "expected"), WSM.items(), ids=str)
def test_weighted_softmax_of_the_sheet(counts, expected):
    assert_near(balanced_cross_entropy(float64(WSM_Z), torch.tensor(WSM_Y), torch.tensor(counts)), expected)


def test_the_cycle_of_the_sheet():
    assert_near([cyclic_balance(t) for t in range(11)], ALPHA)
    assert cyclic_balance(3, period=6, lowest=0.2, highest=0.6) == pytest.approx(0.6)


def test_shares_and_divergences_of_the_sheet():
    assert_near(mutual_shares(SIZES)[2, :2], LAM_FOR_CNN6)
    assert_near(mutual_divergences(float64(Z), mutual_shares(SIZES)), KL_BY_SIZE)
    assert_near(mutual_divergences(float64(Z), mutual_shares([1, 1, 1])), KL_EQUAL)


@given(seed=st.integers(0, 2**31), count=st.integers(2, 5))
def test_divergences_equal_their_slow_twin(seed, count):
    draw = torch.Generator().manual_seed(seed)
    z = torch.randn(count, 3, 4, dtype=torch.float64, generator=draw) * 3
    lam = mutual_shares(torch.randint(1, 100, (count,), generator=draw).tolist())
    p = torch.softmax(z, dim=2).tolist()
    expected = [
        sum(
            lam[i, m].item() * sum(a * math.log(a / b) for a, b in zip(p[m][s], p[i][s], strict=True)) / 3
            for m in range(count)
            for s in range(3)
        )
        for i in range(count)
    ]
    assert_near(mutual_divergences(z, lam), expected, 1e-9)


def test_a_teacher_carries_no_gradient():
    z = float64(Z).requires_grad_()
    mutual_divergences(z, mutual_shares(SIZES))[0].backward()
    assert z.grad[0].abs().max() > 0
    assert z.grad[1:].abs().max() == 0


def test_impossible_arguments_are_refused():
    with pytest.raises(InvalidInput, match="two models"):
        mutual_shares([5])
    with pytest.raises(InvalidInput, match="period"):
        cyclic_balance(1, period=0)
    with pytest.raises(InvalidInput, match="lowest"):
        cyclic_balance(1, lowest=0.9, highest=0.1)
    with pytest.raises(InvalidInput, match="shares"):
        mutual_divergences(torch.zeros(2, 1, 3), torch.zeros(3, 3))
