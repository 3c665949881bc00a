import math

import partition_numbers
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motley.errors import InvalidInput
from motley.functional.statistics import (
    accuracy_summary,
    effective_classes,
    interval_factor,
    label_distance,
    mean_sd,
    paired_difference,
)

from .closeness import assert_near


def test_d5_which_mean_which_deviation():
    found = accuracy_summary([9, 45], [10, 90])
    assert_near(found.mean, 0.70)
    assert_near(found.pooled, 0.54)
    assert_near(found.deviation, 0.20)
    assert (found.num_clients, found.num_left_out) == (2, 0)


def test_d5_the_deviation_over_seeds_has_divisor_n_minus_1_and_is_none_for_one():
    found = mean_sd([0.9, 0.5])
    assert_near(found.mean, 0.7)
    assert_near(found.sd, 0.2 * math.sqrt(2))
    assert mean_sd([0.5]) == (0.5, None)
    assert mean_sd([]) == (None, None)


def test_clients_without_samples_are_left_out_and_counted():
    found = accuracy_summary([9, 0, 45, 0], [10, 0, 90, 0])
    assert_near(found.mean, 0.70)
    assert (found.num_clients, found.num_left_out) == (2, 2)
    nothing = accuracy_summary([0, 0], [0, 0])
    assert (nothing.mean, nothing.pooled, nothing.deviation) == (None, None, None)
    assert (nothing.num_clients, nothing.num_left_out) == (0, 2)


def test_impossible_accuracies_are_refused():
    for correct, count in (([11], [10]), ([-1], [10]), ([1, 2], [3])):
        with pytest.raises(InvalidInput):
            accuracy_summary(correct, count)


def test_paired_difference_by_hand():
    # Differences 1, 2, 3: mean 2, sd 1; t(0.975, 2) = 4.302652729696, over sqrt(3).
    found = paired_difference([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    half = 4.302652729696 / math.sqrt(3)
    assert_near([found.mean, found.low, found.high, found.smallest_visible], [2, 2 - half, 2 + half, half])
    assert found.n == 3
    # t(0.95, 2) = 2.919985580355.
    assert_near(paired_difference([2, 4, 6], [1, 2, 3], 0.9).smallest_visible, 2.919985580355 / math.sqrt(3))


def test_the_p_value_of_paired_differences():
    # t = 2 / (1 / sqrt(3)) = 2 sqrt(3); with 2 degrees of freedom p = 1 - t / sqrt(2 + t^2) = 1 - sqrt(12 / 14).
    assert_near(paired_difference([2.0, 4.0, 6.0], [1.0, 2.0, 3.0]).p, 1 - math.sqrt(12 / 14))
    assert paired_difference([0.5, 0.7], [0.5, 0.7]).p == 1  # nothing differs
    assert paired_difference([2.0, 3.0], [1.0, 2.0]).p == 0  # by the same in every pair
    assert paired_difference([2.0], [1.0]).p is None


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=10), st.floats(0.5, 0.99))
def test_an_interval_holds_0_if_and_only_if_p_is_larger(pairs, confidence):
    found = paired_difference([a for a, _ in pairs], [b for _, b in pairs], confidence)
    if found.smallest_visible and abs(found.p - (1 - confidence)) > 1e-6:
        assert (found.low <= 0 <= found.high) == (found.p > 1 - confidence)


def test_what_few_values_cost():
    # t(0.975, n - 1) / sqrt(n): 12.706204736 / sqrt(2), 4.302652729696 / sqrt(3), 2.776445105198 / sqrt(5).
    expected = [12.706204736432 / math.sqrt(2), 4.302652729696 / math.sqrt(3), 2.776445105198 / math.sqrt(5)]
    assert_near([interval_factor(n) for n in (2, 3, 5)], expected)
    with pytest.raises(InvalidInput, match="no interval"):
        interval_factor(1)


def test_one_pair_has_no_interval():
    one, none = paired_difference([2.0], [1.5]), paired_difference([], [])
    assert (one.mean, one.low, one.high, one.n, one.smallest_visible) == (0.5, None, None, 1, None)
    assert (none.mean, none.low, none.n) == (None, None, 0)


def test_equal_differences_give_a_point():
    found = paired_difference([2.0, 3.0], [1.0, 2.0])
    assert (found.low, found.mean, found.high) == (1.0, 1.0, 1.0)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=10))
def test_exchanging_both_mirrors_the_interval(pairs):
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    found, mirrored = paired_difference(first, second), paired_difference(second, first)
    assert_near([found.low, found.high], [-mirrored.high, -mirrored.low], 1e-12)
    assert found.low <= found.mean <= found.high


def test_impossible_pairs_are_refused():
    with pytest.raises(InvalidInput, match="paired"):
        paired_difference([1.0], [1.0, 2.0])
    for confidence in (0.0, 1.0, 95):
        with pytest.raises(InvalidInput, match="confidence"):
            paired_difference([1.0], [1.0], confidence)


def test_effective_classes():
    assert_near(effective_classes(torch.tensor([5, 5, 5, 0])), 3.0)
    assert effective_classes(torch.tensor([7, 0])) == 1.0
    # p = 3/4, 1/4: entropy 0.562335144619.
    assert_near(effective_classes(torch.tensor([3, 1])), math.exp(0.562335144619))
    assert effective_classes(torch.tensor([0, 0])) is None


def test_label_distance():
    # Global mix (0.5, 0.5); client 0 has (1, 0): 0.5; client 1 has (0.25, 0.75): 0.25; client 2 has nothing.
    assert_near(label_distance(torch.tensor([[2, 0], [1, 3], [0, 0]])), 0.375)
    assert label_distance(torch.tensor([[0, 0]])) is None
    assert label_distance(torch.tensor([[2, 4], [1, 2]])) < 1e-12
    assert 0.4 < label_distance(torch.tensor(partition_numbers.DIR_C10_TRAIN)) < 1
    with pytest.raises(InvalidInput, match=r"\(K, C\)"):
        label_distance(torch.tensor([1, 2]))
