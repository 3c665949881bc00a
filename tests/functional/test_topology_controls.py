import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motley.errors import InvalidInput
from motley.functional.topology_controls import (
    constant_relations,
    margin_guidance,
    match_norm,
    pair_order,
    positive_guidance,
    shuffled_relations,
)
from motley.functional.topology_guidance import guidance

from .closeness import assert_near, float64

SEEDS = st.integers(0, 2**31)


def random_relations(seed, num_classes=6):
    draw = torch.Generator().manual_seed(seed)
    upper = torch.rand(num_classes, num_classes, dtype=torch.float64, generator=draw).triu(1)
    seen = (torch.rand(num_classes, num_classes, generator=draw) < 0.6).triu(1)
    seen = seen | seen.T | torch.eye(num_classes, dtype=torch.bool)
    return (upper + upper.T + torch.eye(num_classes, dtype=torch.float64)), seen, draw


def off_diagonal(seen):
    return seen & ~torch.eye(len(seen), dtype=torch.bool)


@given(seed=SEEDS)
def test_constant_relations_keep_the_mean_the_diagonal_and_what_is_unobserved(seed):
    matrix, seen, _ = random_relations(seed)
    found = constant_relations(matrix, seen)
    pairs = off_diagonal(seen)
    assert torch.equal(found[~pairs], matrix[~pairs])
    if pairs.any():
        assert found[pairs].unique().numel() == 1
        assert abs(float(found[pairs].mean() - matrix[pairs].mean())) <= 1e-12


@given(seed=SEEDS)
def test_shuffled_relations_keep_the_values_the_diagonal_and_what_is_unobserved(seed):
    matrix, seen, draw = random_relations(seed)
    found = shuffled_relations(matrix, seen, pair_order(6, draw))
    pairs = off_diagonal(seen)
    assert torch.equal(found, found.T)
    assert torch.equal(found[~pairs], matrix[~pairs])
    assert torch.equal(found[pairs].sort().values, matrix[pairs].sort().values)


def test_one_order_gives_one_permutation_and_another_order_another():
    matrix, _, draw = random_relations(1)
    everything = torch.ones(6, 6, dtype=torch.bool)
    order = pair_order(6, draw)
    found = shuffled_relations(matrix, everything, order)
    assert torch.equal(found, shuffled_relations(matrix, everything, order))
    assert not torch.equal(found, matrix)
    assert torch.equal(shuffled_relations(matrix, everything, torch.arange(15)), matrix)


def test_the_order_must_cover_all_pairs():
    with pytest.raises(InvalidInput, match="pairs"):
        shuffled_relations(torch.eye(3), torch.eye(3) > 0, torch.arange(2))


def test_the_margin_is_the_sample_weighted_mean_of_the_positive_entries():
    # Client 1: rows 0 (4 samples) 0.5 and 0.3, row 1 (2 samples) 0.2; client 2: row 2 (10 samples) 0.1.
    # (4 * 0.8 + 2 * 0.2 + 10 * 0.1) / (4 * 2 + 2 + 10) = 4.6 / 20 = 0.23.
    first = positive_guidance(float64([[0, 0.5, 0.3], [0.2, 0, 0], [0, 0, 0]]), torch.tensor([4, 2, 0]))
    second = positive_guidance(float64([[0, 0, 0], [0, 0, 0], [0, 0.1, 0]]), torch.tensor([0, 0, 10]))
    margin = (first[0] + second[0]) / (first[1] + second[1])
    assert_near(margin, 0.23)
    found = margin_guidance(torch.tensor([True, False, True]), margin)
    assert_near(found[[0, 2]], [[0.0, 0.0, 0.23], [0.23, 0.0, 0.0]])


@given(seed=SEEDS, q=st.integers(1, 4))
def test_match_norm_takes_the_row_sums_of_the_top_q(seed, q):
    matrix, seen, _ = random_relations(seed)
    held = seen[0]
    whole = guidance(matrix, seen.double(), held, q="all")
    best = guidance(matrix, seen.double(), held, q=q)
    found = match_norm(whole, best)
    assert (found.sum(dim=1) - best.sum(dim=1)).abs().max() <= 1e-12
    assert torch.equal(found > 0, whole > 0)


def test_match_norm_needs_one_shape():
    with pytest.raises(InvalidInput, match="shape"):
        match_norm(torch.eye(2), torch.eye(3))


def test_no_observed_pair_leaves_the_relations():
    matrix = torch.eye(3, dtype=torch.float64)
    assert torch.equal(constant_relations(matrix, matrix > 0), matrix)
    assert torch.equal(shuffled_relations(matrix, matrix > 0, torch.arange(3)), matrix)
