import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.data.splits import split_halved, split_per_class, split_random, stratified_positions


def pool(counts):
    labels = np.repeat(np.arange(len(counts)), counts)
    return np.arange(len(labels)), labels


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        # Training samples by the sheet: floor(0.75 m + 1/2), at least 1.
        ((40, 13, 3), (10, 3, 1)),  # 30, floor(10.25) = 10, floor(2.75) = 2
        ((1, 1, 1, 5), (0, 0, 0, 1)),  # floor(4.25) = 4; the case's largest remainder would give 2
        ((1, 1, 1, 1), (0, 0, 0, 0)),
        ((2,), (0,)),  # floor(2.0) = 2
        ((3,), (1,)),
    ],
)
def test_a2_a_class_never_gives_its_last_training_sample(counts, expected):
    index, labels = pool(counts)
    train, test = split_per_class(index, labels, 0.25, np.random.default_rng(0))
    assert np.bincount(labels[test], minlength=len(counts)).tolist() == list(expected)
    assert np.array_equal(np.sort(np.concatenate([train, test])), index)


COUNTS = st.lists(st.integers(0, 40), min_size=1, max_size=8)


@settings(deadline=None)
@given(counts=COUNTS, fraction=st.floats(0.01, 0.99), seed=st.integers(0, 99))
def test_a2_every_sample_is_in_one_of_two_or_three_parts(counts, fraction, seed):
    index, labels = pool(counts)
    rng = np.random.default_rng(seed)
    kept, held = split_per_class(index, labels, fraction, rng)
    parts = split_halved(index, labels, fraction, rng)
    for train, others in ((kept, (held,)), (parts.train, (parts.validation, parts.test))):
        assert np.array_equal(np.sort(np.concatenate([train, *others])), index)
        assert np.array_equal(np.unique(labels[train]), np.unique(labels))
    assert abs(len(parts.validation) - len(parts.test)) <= 1


def test_halves_of_each_class_differ_by_one_at_most():
    # 20 % of 10, 13, 40, 1: 2, 3 (2.6), 8, 0 are held out; the odd one of class 1 goes to one of the halves.
    index, labels = pool((10, 13, 40, 1))
    parts = split_halved(index, labels, 0.2, np.random.default_rng(0))
    validation, test = (np.bincount(labels[part], minlength=4) for part in (parts.validation, parts.test))
    assert (validation + test).tolist() == [2, 3, 8, 0]
    assert np.abs(validation - test).tolist() == [0, 1, 0, 0]


def test_odd_samples_do_not_always_go_to_the_same_half():
    index, labels = pool((5,))
    sizes = {len(split_halved(index, labels, 0.2, np.random.default_rng(seed)).test) for seed in range(20)}
    assert sizes == {0, 1}


@given(samples=st.integers(0, 200), fraction=st.floats(0.0, 0.99))
def test_random_split_keeps_a_share_and_at_least_one_sample(samples, fraction):
    kept, held = split_random(np.arange(samples), fraction, np.random.default_rng(0))
    assert np.array_equal(np.sort(np.concatenate([kept, held])), np.arange(samples))
    assert len(kept) == 0 if samples == 0 else len(kept) >= 1


def test_random_split_tests_the_first_of_one_permutation():
    order = np.random.RandomState(5).permutation(10)
    kept, held = split_random(np.arange(10) * 2, 0.25, np.random.RandomState(5))
    assert held.tolist() == (order[:3] * 2).tolist()  # 10 - floor(7.5)
    assert kept.tolist() == (order[3:] * 2).tolist()


@given(counts=COUNTS.filter(any), number=st.integers(1, 400), seed=st.integers(0, 9))
def test_a_limit_is_filled_in_equal_shares(counts, number, seed):
    _, labels = pool(counts)
    chosen = stratified_positions(labels, number, np.random.default_rng(seed))
    assert len(chosen) == len(np.unique(chosen)) == min(number, len(labels))
    taken = np.bincount(labels[chosen], minlength=len(counts))
    short = taken < np.array(counts)  # classes that have more to give got as many as any other, or one less
    assert not short.any() or taken.max() - taken[short].min() <= 1
