"""The properties P1, P2 and P4-P12 of FedTopo's sheet, and the plain loops beside the vectorised forms."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import cross_entropy

from motley.functional.topology import (
    EPSILON,
    PairSums,
    add_relations,
    aggregate,
    debias,
    observed,
    pair_mask,
    pair_weights,
    relations,
    reliability,
    smooth,
    sum_relations,
)
from motley.functional.topology_guidance import guidance, topology_loss

from .closeness import assert_near, float64

SEEDS = st.integers(0, 2**31)


def generator(seed):
    return torch.Generator().manual_seed(seed)


def random_federation(seed, num_clients=5, num_classes=6):
    """Clients with signed float32 prototypes and skewed counts; class `num_classes` - 1 may be absent everywhere."""
    draw = generator(seed)
    uploads = {}
    for client in range(num_clients):
        counts = torch.randint(0, 60, (num_classes,), generator=draw)
        counts = counts * (torch.rand(num_classes, generator=draw) < 0.6)
        prototypes = torch.randn(num_classes, 8, generator=draw).masked_fill((counts == 0).unsqueeze(1), torch.nan)
        uploads[client] = (relations(prototypes, counts), counts)
    return uploads


def random_guidance(seed, num_classes=6):
    draw = generator(seed)
    upper = torch.rand(num_classes, num_classes, dtype=torch.float64, generator=draw).mul(4).round().div(4).triu(1)
    held = torch.rand(num_classes, generator=draw) < 0.7
    return upper + upper.T + torch.eye(num_classes, dtype=torch.float64), held


@given(seed=SEEDS, scale=st.floats(0.01, 100))
def test_p1_relations_do_not_change_under_rotation_and_scale(seed, scale):
    draw = generator(seed)
    prototypes = torch.randn(5, 8, dtype=torch.float64, generator=draw)
    rotation = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64, generator=draw)).Q
    counts = torch.ones(5, dtype=torch.int64)
    moved = scale * prototypes @ rotation
    assert (relations(moved, counts) - relations(prototypes, counts)).abs().max() <= 1e-12
    single = relations(moved.float(), counts) - relations(prototypes.float(), counts)
    assert single.abs().max() <= 1e-6


@given(seed=SEEDS)
def test_p2_relations_are_symmetric_and_bounded(seed):
    for found, counts in random_federation(seed).values():
        mask = pair_mask(counts)
        assert torch.equal(found.isnan(), ~mask)
        valid = found.nan_to_num()
        assert torch.equal(valid, valid.T)
        assert ((valid >= 0) & (valid <= 1)).all()
        assert found.diagonal()[counts > 0].eq(1).all()


@given(seed=SEEDS, order=st.permutations(range(5)), weighting=st.sampled_from(["reliability", "uniform"]))
def test_p4_the_order_of_arrival_is_irrelevant(seed, order, weighting):
    uploads = random_federation(seed)
    first = sum_relations(uploads, 6, weighting=weighting)
    second = sum_relations({client: uploads[client] for client in order}, 6, weighting=weighting)
    assert torch.equal(aggregate(first), aggregate(second))
    assert torch.equal(reliability(first.support), reliability(second.support))


@given(seed=SEEDS, weighting=st.sampled_from(["reliability", "uniform"]))
def test_p4_a_client_without_counts_changes_nothing(seed, weighting):
    uploads = random_federation(seed)
    first = sum_relations(uploads, 6, weighting=weighting)
    empty = (torch.full((6, 6), torch.nan, dtype=torch.float64), torch.zeros(6, dtype=torch.int64))
    second = sum_relations({**uploads, 9: empty, -1: empty}, 6, weighting=weighting)
    assert torch.equal(first.weighted, second.weighted)
    assert torch.equal(first.weight, second.weight)
    assert torch.equal(first.support, second.support)


@given(counts=st.lists(st.integers(0, 10_000), min_size=1, max_size=12))
def test_p4_the_mask_is_redundant(counts):
    n = torch.tensor(counts)
    bare = n.double().unsqueeze(1) * n.double() / (n.double().unsqueeze(1) + n.double() + EPSILON)
    assert torch.equal(pair_weights(n), bare)


@given(seed=SEEDS)
def test_p5_identical_relations_are_their_own_aggregate(seed):
    whole = relations(torch.randn(6, 8, generator=generator(seed)), torch.ones(6, dtype=torch.int64))
    uploads = {
        k: (whole.masked_fill(~pair_mask(counts), torch.nan), counts)
        for k, (_, counts) in random_federation(seed).items()
    }
    sums = sum_relations(uploads, 6)
    assert ((aggregate(sums) - whole).abs() * observed(sums)).max() <= 3e-8


@given(seed=SEEDS, rho=st.floats(0, 1), norm=st.sampled_from(["all", "offdiag"]))
def test_p6_everything_is_bounded_and_symmetric(seed, rho, norm):
    uploads = random_federation(seed)
    sums = sum_relations(uploads, 6)
    mean, seen = aggregate(sums), observed(sums)
    stacked = torch.stack([found for found, _ in uploads.values()])
    low = stacked.nan_to_num(nan=2).amin(dim=0)
    high = stacked.nan_to_num(nan=-1).amax(dim=0)
    assert ((mean >= low - 3e-8) & (mean <= high + 3e-8))[seen].all()
    state = smooth(torch.eye(6, dtype=torch.float64), mean, seen, rho=rho)
    for matrix in (mean, state, reliability(sums.support, norm=norm)):
        assert torch.equal(matrix, matrix.T)
        assert ((matrix >= 0) & (matrix <= 1)).all()


@given(seed=SEEDS)
def test_p7_the_best_support_lies_on_the_diagonal(seed):
    uploads = random_federation(seed)
    sums = sum_relations(uploads, 6)
    per_class = torch.stack([counts for _, counts in uploads.values()]).sum(dim=0)
    assert sums.support.max() == sums.support.diagonal().max()
    assert abs(float(sums.support.max()) - float(per_class.max()) / 2) <= 1e-6
    off = reliability(sums.support, norm="offdiag").fill_diagonal_(0)
    if sums.support.clone().fill_diagonal_(0).max() > 0:
        assert abs(float(off.max()) - 1) <= 1e-7


@given(seed=SEEDS)
def test_p8_ten_times_the_counts_change_nothing(seed):
    uploads = random_federation(seed)
    first = sum_relations(uploads, 6)
    second = sum_relations({k: (found, 10 * counts) for k, (found, counts) in uploads.items()}, 6)
    assert (aggregate(first) - aggregate(second)).abs().max() < 1e-7
    assert (reliability(first.support) - reliability(second.support)).abs().max() < 1e-7


@given(seed=SEEDS)
def test_p9_the_ends_of_rho(seed):
    sums = sum_relations(random_federation(seed), 6)
    previous, mean, seen = (
        torch.rand(6, 6, dtype=torch.float64, generator=generator(seed)),
        aggregate(sums),
        observed(sums),
    )
    assert torch.equal(smooth(previous, mean, seen, rho=0.0)[seen], mean[seen])
    assert torch.equal(smooth(previous, mean, seen, rho=1.0), previous)


@given(value=st.floats(0, 1), rho=st.floats(0, 0.99), rounds=st.integers(1, 30))
def test_p9_a_constant_relation_rises_by_a_power_of_rho(value, rho, rounds):
    state = torch.eye(2, dtype=torch.float64)
    current, everywhere = torch.full_like(state, value), torch.ones(2, 2, dtype=torch.bool)
    for _ in range(rounds):
        state = smooth(state, current, everywhere, rho=rho)
    assert_near(state[0, 1], value * (1 - rho**rounds))
    assert_near(debias(state, torch.full((2, 2), rounds), rho)[0, 1], value)


@given(seed=SEEDS, q=st.one_of(st.integers(1, 8), st.just("all")))
def test_p10_guidance_keeps_the_largest_held_entries(seed, q):
    matrix, held = random_guidance(seed)
    found = guidance(matrix, torch.ones_like(matrix), held, q=q)
    whole = guidance(matrix, torch.ones_like(matrix), held, q="all")
    assert found.diagonal().eq(0).all()
    assert not found[:, ~held].any()
    for row in held.nonzero().flatten().tolist():
        kept = found[row] > 0
        limit = int(held.sum()) - 1
        assert int(kept.sum()) <= (limit if q == "all" else min(q, limit))
        dropped = whole[row][~kept & held]
        assert not kept.any() or not len(dropped) or found[row][kept].min() >= dropped.max()
    if q == "all":
        masked = matrix * held * (1 - torch.eye(6, dtype=torch.float64))
        assert torch.equal(found, masked)


@given(seed=SEEDS, q=st.integers(1, 8), local_mask=st.booleans())
def test_guidance_equals_its_slow_twin(seed, q, local_mask):
    matrix, held = random_guidance(seed)
    support = random_guidance(seed + 1)[0]
    found = guidance(matrix, support, held, q=q, local_mask=local_mask)
    for y in range(6):
        row = [float(matrix[y, c] * support[y, c]) if c != y and (held[c] or not local_mask) else 0.0 for c in range(6)]
        best = sorted(range(6), key=lambda c: (-row[c], c))[:q]
        assert found[y].tolist() == [row[c] if c in best else 0.0 for c in range(6)]


@given(seed=SEEDS, weighting=st.sampled_from(["reliability", "uniform"]))
@settings(max_examples=25)
def test_aggregation_equals_its_slow_twin(seed, weighting):
    uploads = random_federation(seed)
    sums = sum_relations(uploads, 6, weighting=weighting)
    mean, support = aggregate(sums), reliability(sums.support)
    total = [[0.0] * 6 for _ in range(6)]
    for a in range(6):
        for b in range(6):
            numerator = denominator = 0.0
            for client in sorted(uploads):
                found, counts = uploads[client]
                n, m = float(counts[a]), float(counts[b])
                if n > 0 and m > 0:
                    weight = n * m / (n + m + 1e-8)
                    total[a][b] += weight
                    weight = weight if weighting == "reliability" else 1.0
                    numerator += weight * float(found[a, b])
                    denominator += weight
            assert_near(mean[a, b], numerator / (denominator + 1e-8), 1e-12)
    largest = max(max(row) for row in total)
    assert_near(support, [[value / (largest + 1e-8) for value in row] for row in total], 1e-12)


def batch(seed):
    draw = generator(seed)
    logits = 3 * torch.randn(7, 5, dtype=torch.float64, generator=draw)
    matrix = torch.rand(5, 5, dtype=torch.float64, generator=draw)
    matrix = matrix * (torch.rand(5, 5, generator=draw) < 0.5) * (1 - torch.eye(5))
    return logits, torch.randint(0, 5, (7,), generator=draw), matrix


@given(seed=SEEDS, loss_weight=st.floats(0.01, 3), strength=st.floats(0, 4))
def test_p11_the_auxiliary_loss_lies_above_the_plain_one(seed, loss_weight, strength):
    logits, labels, matrix = batch(seed)
    plain = cross_entropy(logits, labels)
    found = topology_loss(logits, labels, matrix, strength=strength, loss_weight=loss_weight)
    excess = float(found.added) / loss_weight - float(plain)
    rows = strength * matrix[labels]
    formula = torch.log1p((torch.softmax(logits, dim=1) * torch.expm1(rows)).sum(dim=1)).mean()
    assert abs(excess - float(formula)) <= 1e-9
    assert -1e-12 <= excess <= strength * float(matrix.max()) + 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(seed=SEEDS)
def test_p11_the_ends_of_lambda_and_gamma_are_exact(dtype, seed):
    logits, labels, matrix = batch(seed)
    results = []
    for loss_weight, strength in ((0.0, 1.0), (1.0, 0.0), (0.3, 0.0)):
        leaf = logits.to(dtype, copy=True).requires_grad_()
        loss = topology_loss(leaf, labels, matrix, strength=strength, loss_weight=loss_weight)
        loss.total.backward()
        results.append((loss.total.detach(), leaf.grad))
    leaf = logits.to(dtype, copy=True).requires_grad_()
    plain = cross_entropy(leaf, labels)
    plain.backward()
    assert torch.equal(results[0][0], plain)
    assert torch.equal(results[0][1], leaf.grad)
    assert torch.equal(results[1][0], 2 * plain)
    assert_near(results[2][0], 1.3 * plain.item(), 1e-6)


@given(seed=SEEDS, loss_weight=st.floats(0.1, 2), strength=st.floats(0.1, 4))
def test_p12_the_gradient_has_the_closed_form(seed, loss_weight, strength):
    logits, labels, matrix = batch(seed)
    leaf = logits.clone().requires_grad_()
    topology_loss(leaf, labels, matrix, strength=strength, loss_weight=loss_weight).total.backward()
    rows, size = matrix[labels], len(labels)
    one_hot = torch.eye(5, dtype=torch.float64)[labels]
    p, raised = torch.softmax(logits, dim=1), torch.softmax(logits + strength * rows, dim=1)
    assert (leaf.grad - ((p - one_hot) + loss_weight * (raised - one_hot)) / size).abs().max() <= 1e-12
    assert leaf.grad.sum(dim=1).abs().max() <= 1e-12
    plain = (1 + loss_weight) * (p - one_hot) / size
    true = leaf.grad[torch.arange(size), labels] - plain[torch.arange(size), labels]
    assert (true <= 1e-12).all()
    reached = (p * torch.expm1(strength * rows)).sum(dim=1) > 1e-9  # B_y is not 0 on the softmax support
    assert (true[~rows.any(dim=1)].abs() <= 1e-12).all()
    assert (true[reached & (p[torch.arange(size), labels] > 1e-3)] < -1e-15).all()
    negatives = (rows == 0) & (one_hot == 0)
    assert ((leaf.grad - plain)[negatives] <= 1e-12).all()
    for row in rows.any(dim=1).nonzero().flatten().tolist():
        best = int(rows[row].argmax())
        assert leaf.grad[row, best] >= plain[row, best] - 1e-12


@given(seed=SEEDS, order=st.permutations(range(6)))
def test_renaming_the_classes_renames_the_guidance(seed, order):
    # Values without ties, as the lower class number wins a tie.
    draw, order = generator(seed), torch.tensor(order)
    upper = torch.rand(6, 6, dtype=torch.float64, generator=draw).triu(1)
    matrix, held = upper + upper.T, torch.rand(6, generator=draw) < 0.7
    renamed = guidance(matrix[order][:, order], torch.ones_like(matrix), held[order], q=2)
    assert torch.equal(renamed, guidance(matrix, torch.ones_like(matrix), held, q=2)[order][:, order])


def test_running_sums_leave_their_inputs():
    before = PairSums.zeros(2)
    add_relations(before, float64([[1.0, 0.5], [0.5, 1.0]]), torch.tensor([3, 4]))
    assert not before.weighted.any()
    assert not before.support.any()


def test_log_of_the_excess_is_not_vacuous():
    # Guards P11 against a zero matrix: by hand, C = 2, equal logits, B = log 3: CE 0.693147 becomes log 4.
    matrix = float64([[0.0, math.log(3)], [0.0, 0.0]])
    loss = topology_loss(float64([[0.0, 0.0]]), torch.tensor([0]), matrix, strength=1.0, loss_weight=1.0)
    assert_near(loss.added, math.log(4))
