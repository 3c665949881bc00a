import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from motley.errors import InvalidInput
from motley.functional.balanced import balanced_cross_entropy

# Section 14 of server_methods.md.
LOGITS, COUNTS, Y, LOSS = [1.0, 2.0, 0.5], [4, 0, 2], 0, 0.264872907387


def test_balanced_cross_entropy_worked_number():
    logits = torch.tensor([LOGITS], dtype=torch.float64)
    found = balanced_cross_entropy(logits, torch.tensor([Y]), torch.tensor(COUNTS))
    assert found.item() == pytest.approx(LOSS, abs=1e-12)
    assert found.item() == pytest.approx(math.log(1 + 2 * math.exp(0.5) / (4 * math.exp(1.0))), abs=1e-12)


def test_a_class_that_is_not_held_gets_no_gradient_and_no_log_of_zero():
    logits = torch.tensor([LOGITS], dtype=torch.float64, requires_grad=True)
    balanced_cross_entropy(logits, torch.tensor([Y]), torch.tensor(COUNTS)).backward()
    share = 1 - math.exp(-LOSS)
    expected = torch.tensor([[-share, 0.0, share]], dtype=torch.float64)
    torch.testing.assert_close(logits.grad, expected, rtol=0, atol=1e-12)


@given(seed=st.integers(0, 2**31), count=st.integers(1, 10_000))
def test_equal_counts_give_the_plain_cross_entropy(seed, count):
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(5, 4, generator=draw, dtype=torch.float64)
    y = torch.randint(0, 4, (5,), generator=draw)
    found = balanced_cross_entropy(logits, y, torch.full((4,), count))
    torch.testing.assert_close(found, cross_entropy(logits, y), rtol=0, atol=1e-12)


@given(
    seed=st.integers(0, 2**31), factor=st.integers(1, 1000), shift=st.floats(-50, 50), order=st.permutations(range(4))
)
def test_only_ratios_of_counts_and_differences_of_logits_matter_and_classes_may_be_renamed(seed, factor, shift, order):
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(5, 4, generator=draw, dtype=torch.float64)
    counts = torch.tensor([3, 0, 1, 8])
    y = torch.tensor([0, 2, 3, 3, 0])
    plain = balanced_cross_entropy(logits, y, counts)
    torch.testing.assert_close(balanced_cross_entropy(logits + shift, y, factor * counts), plain, rtol=0, atol=1e-10)
    renamed = torch.tensor(order)
    new_y = renamed.argsort()[y]
    torch.testing.assert_close(balanced_cross_entropy(logits[:, renamed], new_y, counts[renamed]), plain)


def test_a_single_class_gives_zero():
    assert balanced_cross_entropy(torch.randn(3, 2), torch.tensor([1, 1, 1]), torch.tensor([0, 5])).item() == 0


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(InvalidInput, match=r"not \(1, 3\), \(1,\) and \(2,\)"):
        balanced_cross_entropy(torch.zeros(1, 3), torch.tensor([0]), torch.tensor([1, 1]))
