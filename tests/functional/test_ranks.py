"""Ranks over settings against worked numbers, scipy, and loops over all signs."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from motley.errors import InvalidInput
from motley.functional.ranks import friedman, holm, ranks_of, signed_rank_p

from .closeness import assert_near

TABLES = st.integers(3, 5).flatmap(
    lambda rows: st.lists(st.lists(st.integers(0, 4), min_size=rows, max_size=rows), min_size=3, max_size=8)
)


def test_the_best_row_has_rank_1_and_equal_ones_share():
    assert ranks_of([[0.9, 0.5, 0.5, 0.1], [1, 2, 3, 4]]).tolist() == [[1, 2.5, 2.5, 4], [4, 3, 2, 1]]


def test_friedman_by_hand():
    # Ranks (1,2,3) (1,2,3) (1,3,2) (2,1,3): sums 5, 8, 11. chi^2 = 12 / (4 * 3 * 4) * 210 - 3 * 4 * 4 = 4.5;
    # F = 3 * 4.5 / (4 * 2 - 4.5) = 27 / 7. p of chi^2 with 2 degrees of freedom is exp(-4.5 / 2).
    found = friedman(ranks_of([[3, 2, 1], [3, 2, 1], [3, 1, 2], [2, 3, 1]]))
    assert_near([found.chi_square, found.f, found.p], [4.5, 27 / 7, np.exp(-2.25)])
    assert found.freedom == (2, 6)


def test_friedman_of_demsars_example():
    # Demsar 2006, Table 6: mean ranks 3.143, 2.000, 2.893, 1.964 of 4 classifiers over 14 data sets, chi^2 9.28, F 3.69.
    auc = [
        [0.763, 0.768, 0.771, 0.798], [0.599, 0.591, 0.590, 0.569], [0.954, 0.971, 0.968, 0.967],
        [0.628, 0.661, 0.654, 0.657], [0.882, 0.888, 0.886, 0.898], [0.936, 0.931, 0.916, 0.931],
        [0.661, 0.668, 0.609, 0.685], [0.583, 0.583, 0.563, 0.625], [0.775, 0.838, 0.866, 0.875],
        [1.000, 1.000, 1.000, 1.000], [0.940, 0.962, 0.965, 0.962], [0.619, 0.666, 0.614, 0.669],
        [0.972, 0.981, 0.9751, 0.975], [0.957, 0.978, 0.946, 0.970],
    ]  # fmt: skip
    ranks = ranks_of(auc)
    assert_near(ranks.mean(axis=0).tolist(), [3.143, 2.000, 2.893, 1.964], 5e-4)
    found = friedman(ranks)
    assert found.freedom == (3, 39)
    # The paper's 9.28 has no correction for ties, which makes it larger.
    expected = stats.friedmanchisquare(*np.array(auc).T)
    assert_near([found.chi_square, found.p], [expected.statistic, expected.pvalue])
    assert found.chi_square > 9.28
    assert found.f > 3.69


@given(TABLES)
def test_friedman_is_that_of_scipy_with_ties(values):
    if all(len(set(own)) == 1 for own in values):
        assert friedman(ranks_of(values)).p == 1
        return
    found, expected = friedman(ranks_of(values)), stats.friedmanchisquare(*np.array(values).T)
    assert_near([found.chi_square, found.p], [max(expected.statistic, 0), min(expected.pvalue, 1)], 1e-8)


@given(TABLES, st.randoms())
def test_friedman_does_not_depend_on_the_order_of_rows_and_settings(values, random):
    order = random.sample(range(len(values[0])), len(values[0]))
    moved = [[own[place] for place in order] for own in random.sample(values, len(values))]
    first, second = friedman(ranks_of(values)), friedman(ranks_of(moved))
    assert_near([first.chi_square, first.f_p], [second.chi_square, second.f_p], 1e-9)


def test_settings_that_all_agree_give_an_infinite_f():
    found = friedman(ranks_of([[3, 2, 1]] * 5))
    assert (found.chi_square, found.f, found.f_p) == (10.0, float("inf"), 0.0)


@given(st.lists(st.integers(-4, 4), max_size=8))
def test_signed_ranks_are_those_of_all_signs(differences):
    known = [one for one in differences if one]
    ranks = stats.rankdata(np.abs(known)) if known else []
    below = sum(rank for rank, one in zip(ranks, known, strict=True) if one < 0)
    smaller = min(below, sum(ranks) - below)
    sums = [
        sum(rank for rank, up in zip(ranks, signs, strict=True) if up) for signs in product((0, 1), repeat=len(known))
    ]
    assert_near(signed_rank_p(differences), min(1.0, 2 * np.mean([one <= smaller for one in sums])))


@given(st.lists(st.floats(0.01, 1), min_size=3, max_size=12, unique=True), st.randoms())
def test_signed_ranks_are_those_of_scipy_without_ties(sizes, random):
    differences = [size * random.choice((1, -1)) for size in sizes]
    assert_near(signed_rank_p(differences), stats.wilcoxon(differences, method="exact").pvalue)


def test_holm_by_hand_in_any_order():
    # Ascending 0.01 * 4, 0.02 * 3, 0.03 * 2, 0.5 * 1; the third may not fall below the second.
    assert_near(holm([0.03, 0.5, 0.01, 0.02]), [0.06, 0.5, 0.04, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=10))
def test_holm_raises_no_less_than_nothing_and_no_more_than_bonferroni(values):
    for value, adjusted in zip(values, holm(values), strict=True):
        assert value <= adjusted <= min(1.0, len(values) * value) + 1e-15


def test_impossible_ranks_are_refused():
    for values in ([], [[]], [[1, 2], [1]]):
        with pytest.raises(InvalidInput, match="same rows"):
            ranks_of(values)
    with pytest.raises(InvalidInput, match="finite"):
        ranks_of([[0.5, float("nan")]])
    with pytest.raises(InvalidInput, match="at least 2 settings"):
        friedman(ranks_of([[1, 2, 3]]))
