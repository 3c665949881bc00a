"""Consistency between models against scipy, plain loops, and chance whose distribution is known."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from motley.errors import InvalidInput
from motley.functional import relation_consistency as made
from motley.functional.topology import relations

SEEDS = st.integers(0, 2**31)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def random_relations(seed, clients=3, classes=6, width=9, held=None):
    points = torch.rand(clients, classes, width, dtype=torch.float64, generator=generator(seed)) ** 3
    counts = torch.ones(clients, classes, dtype=torch.int64) if held is None else held.long()
    points = torch.where((counts > 0).unsqueeze(2), points, torch.nan)
    return points, torch.stack([relations(p, n) for p, n in zip(points, counts, strict=True)])


@given(values=st.lists(st.integers(-3, 3), min_size=1, max_size=12))
def test_ranks_share_ties_as_scipy_does(values):
    expected = stats.rankdata(values)
    assert made.average_ranks(torch.tensor(values).double()).tolist() == expected.tolist()


@given(seed=SEEDS, size=st.integers(3, 15))
def test_rank_correlation_is_that_of_scipy(seed, size):
    rng = np.random.default_rng(seed)
    first, second = rng.integers(0, 6, size).astype(float), rng.integers(0, 6, size).astype(float)
    found = made.rank_correlation(torch.tensor(first), torch.tensor(second)).item()
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert np.isnan(found)
    else:
        assert found == pytest.approx(stats.spearmanr(first, second).statistic, abs=1e-12)


def test_pairs_have_enough_classes_in_common_and_are_not_too_many():
    held = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1], [0, 0, 1, 1, 1]]).bool()
    assert made.client_pairs(held, generator()) == [(0, 1)]
    assert made.client_pairs(held, generator(), least=3) == [(0, 1), (1, 2)]
    many = made.client_pairs(torch.ones(30, 4, dtype=torch.bool), generator())
    assert len(many) == len(set(many)) == made.MOST_PAIRS < 30 * 29 // 2
    assert all(one < other for one, other in many)


def test_relations_are_compared_over_the_classes_that_both_hold():
    held = torch.tensor([[1, 1, 1, 1, 1, 0], [0, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]).bool()
    _, local = random_relations(1, held=held)
    pairs = [(0, 1), (0, 2), (1, 2)]
    found = made.relation_consistency(local, pairs, {"all": pairs, "some": pairs[:1]}, draws=5, generator=generator())
    expected = {}
    for one, other in pairs:
        common = (held[one] & held[other]).nonzero().flatten().tolist()
        cells = list(itertools.combinations(common, 2))
        expected[one, other] = stats.spearmanr(
            [local[one][a, b].item() for a, b in cells], [local[other][a, b].item() for a, b in cells]
        ).statistic
    assert found.pairs == pytest.approx(expected)
    assert found.groups["all"].value == pytest.approx(np.mean(list(expected.values())))
    assert (found.groups["some"].pairs, found.groups["some"].value) == (1, pytest.approx(expected[0, 1]))


def test_equal_relations_are_beyond_chance_and_unrelated_ones_are_not():
    _, local = random_relations(2, clients=1, classes=8)
    same = local.expand(3, 8, 8)
    pairs = [(0, 1), (0, 2), (1, 2)]
    found = made.relation_consistency(same, pairs, {"all": pairs}, draws=199, generator=generator()).groups["all"]
    assert (found.value, found.p) == (pytest.approx(1), 1 / 200)
    assert abs(found.chance) < 0.05
    assert found.chance_high < 0.6
    ps = []
    for seed in range(40):
        _, unrelated = random_relations(100 + seed, classes=7)
        made_ = made.relation_consistency(unrelated, pairs, {"all": pairs}, draws=99, generator=generator(seed))
        ps.append(made_.groups["all"].p)
    assert 0.35 < np.mean(ps) < 0.65  # p is uniform where there is nothing
    assert sum(p <= 0.05 for p in ps) <= 6


def test_chance_permutes_classes_inside_of_what_each_client_holds():
    # With 4 classes the 24 permutations can be listed; chance is over pairs of permutations, that is again over 24.
    _, local = random_relations(5, clients=2, classes=4)
    cells = list(itertools.combinations(range(4), 2))
    first = [local[0][a, b].item() for a, b in cells]
    every = [
        stats.spearmanr(first, [local[1][order[a], order[b]].item() for a, b in cells]).statistic
        for order in itertools.permutations(range(4))
    ]
    found = made.relation_consistency(local, [(0, 1)], {"all": [(0, 1)]}, draws=4000, generator=generator())
    agreement = found.groups["all"]
    assert agreement.chance == pytest.approx(np.mean(every), abs=0.03)
    assert agreement.p == pytest.approx(np.mean([value >= agreement.value - 1e-9 for value in every]), abs=0.03)


@given(seed=SEEDS)
def test_a_renaming_of_classes_and_turned_feature_spaces_change_no_relation(seed):
    points, local = random_relations(seed)
    pairs = [(0, 1), (1, 2)]
    value = made.relation_consistency(local, pairs, {"all": pairs}, draws=1, generator=generator()).groups["all"].value
    order = torch.randperm(6, generator=generator(seed))
    renamed = local[:, order][:, :, order]
    again = made.relation_consistency(renamed, pairs, {"all": pairs}, draws=1, generator=generator()).groups["all"]
    assert again.value == pytest.approx(value, abs=1e-9)
    turned = made._rotated(points[0], torch.ones(6, dtype=torch.bool), 2, generator(seed))
    for one in turned:
        torch.testing.assert_close(relations(one, torch.ones(6, dtype=torch.int64)), local[0], rtol=0, atol=1e-9)


def test_prototypes_are_compared_class_by_class():
    points, _ = random_relations(3)
    pairs = [(0, 1), (0, 2)]
    found = made.prototype_consistency(points, pairs, {"all": pairs}, draws=50, generator=generator())
    expected = {
        (one, other): np.mean(
            [(1 + torch.cosine_similarity(points[one][c], points[other][c], dim=0).item()) / 2 for c in range(6)]
        )
        for one, other in pairs
    }
    assert found.pairs == pytest.approx(expected)
    other = made.other_class_similarity(points, [(0, 1)])
    cross = [
        (1 + torch.cosine_similarity(points[0][a], points[1][b], dim=0).item()) / 2
        for a, b in itertools.permutations(range(6), 2)
    ]
    assert other == pytest.approx(np.mean(cross))


def test_rotations_are_uniform():
    # The cosine of a fixed and a uniform direction in d dimensions has mean 0 and variance 1 / d.
    points = torch.rand(1, 4, 16, dtype=torch.float64, generator=generator(4))
    turned = made._rotated(points[0], torch.tensor([True, True, False, True]), 4000, generator())
    cosine = torch.cosine_similarity(turned[:, 0], points[0, 0].expand(4000, 16))
    assert cosine.mean().item() == pytest.approx(0, abs=0.02)
    assert cosine.var().item() == pytest.approx(1 / 16, rel=0.1)
    assert not turned[:, 2].any()


def test_blocks_of_rotations_give_as_many_draws_as_one(monkeypatch):
    points, _ = random_relations(6)
    pairs = [(0, 1)]
    monkeypatch.setattr(made, "ENTRIES_AT_ONCE", points.numel() * 7)
    found = made.prototype_consistency(points, pairs, {"all": pairs}, draws=50, generator=generator()).groups["all"]
    assert round(1 / found.p) == 51  # non-negative features are never so far apart as turned ones


def test_nothing_to_compare_is_none():
    points, local = random_relations(7, held=torch.eye(3, 6).bool())
    groups = {"all": []}
    for found in (
        made.relation_consistency(local, [], groups, draws=3, generator=generator()),
        made.prototype_consistency(points, [], groups, draws=3, generator=generator()),
    ):
        assert found.groups["all"] == made.Agreement(0, None, None, None, None)
    assert made.other_class_similarity(points, []) is None
    with pytest.raises(InvalidInput, match="at least 1 draw"):
        made.relation_consistency(local, [], groups, draws=0, generator=generator())


def test_constant_relations_have_no_rank_correlation():
    flat = torch.full((2, 5, 5), 0.5, dtype=torch.float64)
    found = made.relation_consistency(flat, [(0, 1)], {"all": [(0, 1)]}, draws=3, generator=generator())
    assert found.groups["all"].value is None
