"""The worked numbers V2-V8, V10 and V13 of FedTopo's sheet, and the cases C2, C5 and C6."""

import partition_numbers
import pytest
import torch
from torch.nn.functional import cross_entropy

from motley.errors import InvalidInput
from motley.functional.topology import (
    PairSums,
    add_relations,
    aggregate,
    debias,
    effective_counts,
    observed,
    pair_mask,
    pair_weights,
    relations,
    reliability,
    smooth,
    smooth_support,
    sum_relations,
)
from motley.functional.topology_guidance import guidance, modulate, topology_loss

from . import fedtopo_numbers as sheet
from .closeness import assert_near, float64

COUNTS = [torch.tensor(n) for n in (sheet.N1, sheet.N2, sheet.N3)]
PROTOTYPES = [float64(p) for p in (sheet.P1, sheet.P2, sheet.P3)]
IDENTITY = torch.eye(4, dtype=torch.float64)
HELD = [n > 0 for n in COUNTS]


def first_round(weighting="reliability"):
    uploads = {k: (relations(p, n), n) for k, (p, n) in enumerate(zip(PROTOTYPES, COUNTS, strict=True), start=1)}
    return sum_relations(uploads, 4, weighting=weighting)


def after_first_round():
    sums = first_round()
    return smooth(IDENTITY, aggregate(sums), observed(sums), rho=sheet.RHO), reliability(sums.support)


def second_round():
    uploads = {1: (relations(float64(sheet.P1_ROUND2), COUNTS[0]), COUNTS[0]), 3: (float64(sheet.R3), COUNTS[2])}
    return sum_relations(uploads, 4)


def assert_rows(found, expected):
    for row, values in expected.items():
        assert_near(found[row], values)


@pytest.mark.parametrize("client", [0, 1, 2])
def test_v2_relations(client):
    found = relations(PROTOTYPES[client], COUNTS[client])
    assert_near(found, (sheet.R1, sheet.R2, sheet.R3)[client])
    assert found.diagonal()[HELD[client]].eq(1).all()


@pytest.mark.parametrize("client", [0, 1, 2])
def test_v3_weights(client):
    expected = (sheet.W1, sheet.W2, sheet.W3)[client]
    assert_near(pair_weights(COUNTS[client]), expected)
    assert torch.equal(pair_mask(COUNTS[client]), float64(expected) > 0)


def test_v3_sum_of_weights_and_the_place_of_epsilon():
    assert_near(first_round().support, sheet.W)
    assert_near(pair_weights(torch.tensor([1]), epsilon=sheet.EPS), [[sheet.W_ONE_ONE]], 1e-12)


def test_v4_aggregate_and_reliability():
    sums = first_round()
    assert_near(aggregate(sums), sheet.RT)
    assert_near(reliability(sums.support), sheet.S_ALL)
    assert_near(reliability(sums.support, norm="offdiag"), sheet.S_OFF)


def test_v4_uniform_weighting_leaves_the_reliability():
    sums = first_round("uniform")
    assert_near(aggregate(sums), sheet.R_NAIVE)
    assert_near(reliability(sums.support), sheet.S_ALL)


def test_v5_smoothing_of_two_rounds():
    first, second = first_round(), second_round()
    r1 = smooth(IDENTITY, aggregate(first), observed(first), rho=sheet.RHO)
    assert_near(r1, sheet.RG1)
    assert_near(relations(float64(sheet.P1_ROUND2), COUNTS[0]), sheet.R1_ROUND2)
    assert_near(aggregate(second), sheet.RT2)
    assert_near(second.support, sheet.W_ROUND2)
    assert_near(reliability(second.support), sheet.S2_ALL)
    assert_near(reliability(second.support, norm="offdiag"), sheet.S2_OFF)
    assert_near(smooth(r1, aggregate(second), observed(second), rho=sheet.RHO), sheet.RG2)
    no_retention = smooth(r1, aggregate(second), observed(second), rho=sheet.RHO, retain=False)
    assert_near(no_retention, sheet.RG2_NORETAIN)


def test_v5_without_smoothing_and_retention_the_aggregate_is_broadcast():
    sums = first_round()
    found = smooth(IDENTITY, aggregate(sums), observed(sums), rho=0.0, retain=False)
    assert torch.equal(found, aggregate(sums))
    assert found[3, 3] == 0


def test_v5_series_of_a_constant_relation():
    current, everywhere = torch.full((2, 2), 0.8, dtype=torch.float64), torch.ones(2, 2, dtype=torch.bool)
    state = torch.eye(2, dtype=torch.float64)
    for times, expected in enumerate(sheet.EMA_SERIES_08, start=1):
        state = smooth(state, current, everywhere, rho=sheet.RHO)
        assert_near(state[0, 1], expected)
        assert_near(debias(state, torch.full((2, 2), times), sheet.RHO)[0, 1], 0.8)


def test_the_first_observation_can_be_taken_as_it_is():
    # By hand: 0.8 as is, then 0.7 * 0.8 + 0.3 * 0.4 = 0.68.
    everywhere = torch.ones(2, 2, dtype=torch.bool)
    state, times = torch.eye(2, dtype=torch.float64), torch.zeros(2, 2)
    for value, expected in ((0.8, 0.8), (0.4, 0.68)):
        current = torch.full((2, 2), value, dtype=torch.float64)
        state = smooth(state, current, everywhere, rho=0.7, init="first", times=times)
        times = times + 1
        assert_near(state[0, 1], expected)
    with pytest.raises(InvalidInput, match="times"):
        smooth(state, state, everywhere, rho=0.7, init="first")


def test_debias_leaves_the_diagonal_and_unobserved_pairs():
    state = float64([[1.0, 0.3], [0.3, 1.0]])
    assert torch.equal(debias(state, torch.zeros(2, 2), 0.7), state)
    early = float64([[0.9, 0.3], [0.3, 0.8]])
    assert torch.equal(debias(early, torch.ones(2, 2), 0.7).diagonal(), early.diagonal())


def test_smoothed_support_keeps_a_missed_pair_audible():
    first, second = first_round(), second_round()
    support = smooth_support(smooth_support(torch.zeros(4, 4), first.support, rho=0.7), second.support, rho=0.7)
    # By hand: pair (1, 2) has W 2.181818 then 0: 0.7 * 0.3 * 2.181818.
    assert_near(support[1, 2], 0.7 * 0.3 * 2.181818179835)
    assert reliability(second.support)[1, 2] == 0 < reliability(support)[1, 2]


def test_v6_guidance():
    r1, s1 = after_first_round()
    assert_near(r1 * s1, sheet.A_ALL)
    assert_rows(guidance(r1, s1, HELD[0], q=1), sheet.B1_Q1)
    assert_rows(guidance(r1, s1, HELD[0], q=3), sheet.B1_Q3)
    assert_rows(guidance(r1, s1, HELD[1], q=1), sheet.B2_Q1)
    assert_rows(guidance(r1, s1, HELD[1], q=3), sheet.B2_Q3)
    off = reliability(first_round().support, norm="offdiag")
    assert_rows(guidance(r1, off, HELD[1], q=3), sheet.B2_Q3_OFF)


def test_v6_a_retained_pair_is_silent():
    r1, _ = after_first_round()
    second = second_round()
    r2 = smooth(r1, aggregate(second), observed(second), rho=sheet.RHO)
    assert_rows(guidance(r2, reliability(second.support), HELD[1], q=3), sheet.B2_ROUND3_Q3)


@pytest.mark.parametrize(
    ("held", "q", "expected"),
    [
        ([0, 1, 2, 3, 4], 2, sheet.TIE_Q2),
        ([0, 1, 2, 3, 4], 9, sheet.TIE_Q9),
        ([0, 4], 3, sheet.TIE_HELD_0_4_Q3),
        ([0], 3, sheet.TIE_HELD_0_Q3),
    ],
)
def test_v6_ties_and_zeros(held, q, expected):
    matrix = torch.eye(5, dtype=torch.float64)
    matrix[0] = float64(sheet.TIE_ROW)
    mask = torch.zeros(5, dtype=torch.bool)
    mask[held] = True
    assert guidance(matrix, torch.ones_like(matrix), mask, q=q)[0].tolist() == expected


def loss_and_gradient(matrix, *, loss_weight, strength):
    logits = float64(sheet.LOGITS).requires_grad_()
    loss = topology_loss(logits, torch.tensor(sheet.LABELS), matrix, strength=strength, loss_weight=loss_weight)
    loss.total.backward()
    return loss, logits.grad


def test_v7_loss_and_gradient():
    r1, s1 = after_first_round()
    matrix = guidance(r1, s1, HELD[1], q=3)
    loss, gradient = loss_and_gradient(matrix, loss_weight=1.0, strength=1.0)
    assert_near(loss.plain, sheet.CE_PLAIN)
    assert_near(loss.added, sheet.CE_MOD)
    assert_near(loss.total, sheet.LOSS_1_1)
    assert_near(gradient, sheet.GRAD_1_1)
    assert_near(loss_and_gradient(matrix, loss_weight=0.5, strength=2.0)[0].total, sheet.LOSS_05_2)
    plain, gradient = loss_and_gradient(matrix, loss_weight=1.0, strength=0.0)
    assert_near(plain.total, sheet.LOSS_GAMMA0)
    assert_near(gradient, sheet.GRAD_GAMMA0)
    big, gradient = loss_and_gradient(float64(sheet.B_BIG), loss_weight=1.0, strength=1.0)
    assert_near(big.total, sheet.LOSS_BIG)
    assert_near(gradient, sheet.GRAD_BIG)


def test_the_loss_can_be_divided_by_one_plus_lambda():
    logits, labels, matrix = float64(sheet.LOGITS), torch.tensor(sheet.LABELS), float64(sheet.B_BIG)
    mean = topology_loss(logits, labels, matrix, strength=1.0, loss_weight=0.5, norm="mean")
    whole = topology_loss(logits, labels, matrix, strength=1.0, loss_weight=0.5)
    assert_near(mean.total, float(whole.total) / 1.5)


def test_v8_ablations():
    r1, s1 = after_first_round()
    sums, ones = first_round(), torch.ones(4, 4, dtype=torch.float64)
    assert_rows(guidance(r1, ones, HELD[1], q=1), sheet.AB_NO_S)
    assert_rows(guidance(r1, s1, HELD[1], q="all"), sheet.AB_NO_TOPQ)
    assert_rows(guidance(r1, s1, HELD[0], q=1, local_mask=False), sheet.AB_NO_MASK)
    bare = smooth(IDENTITY, aggregate(sums), observed(sums), rho=0.0, retain=False)
    assert_rows(guidance(bare, s1, HELD[1], q=1), sheet.AB_NO_EMA)


def test_v8_local_topology():
    _, s1 = after_first_round()
    own = smooth(IDENTITY, relations(PROTOTYPES[1], COUNTS[1]), pair_mask(COUNTS[1]), rho=sheet.RHO)
    assert_near(own, sheet.R_LOC2)
    for support, expected in (
        (torch.ones(4, 4, dtype=torch.float64), sheet.AB_LOCAL_ONES),
        (reliability(pair_weights(COUNTS[1])), sheet.AB_LOCAL_SELF),
        (s1, sheet.AB_LOCAL_GLOBAL),
    ):
        assert_rows(guidance(own, support, HELD[1], q=1), expected)


def test_v10_special_relations():
    assert_near(relations(float64(sheet.P_SIGNED), torch.tensor([1, 1, 1])), sheet.R_SIGNED)
    scaled = PROTOTYPES[1] * float64([1.0, 2.0, 5.0])
    assert_near(relations(scaled, COUNTS[1]), sheet.R2_DIAG)
    rotated = 2.5 * PROTOTYPES[1] @ (float64(sheet.Q9) / 9)
    assert_near(relations(rotated, COUNTS[1]), sheet.R2, 1e-9)


def test_v10_parallel_prototypes_do_not_exceed_one():
    found = relations(torch.tensor(sheet.P_ROUND, dtype=torch.float32), torch.tensor([1, 1]))
    assert found.max() == 1
    assert_near(found[0, 1], 1.0, 1e-7)


def test_v10_no_pair_of_parallel_prototypes_exceeds_one():
    # Without the clip one of these relations is 1 + 2^-52.
    draw = torch.Generator().manual_seed(0)
    for _ in range(200):
        vector = torch.rand(1, 64, generator=draw)
        found = relations(torch.cat([vector * factor for factor in (1.0, 3.7, 0.3, 11.0)]), torch.ones(4))
        assert found.max() <= 1


def test_c2_a_prototype_of_length_zero_has_no_relations():
    # Case C2 reads cos := 0, R := 0.5; the sheet (Eq. 3, V10) decides: effective count 0, masked, nothing invented.
    counts = torch.tensor(sheet.N_DEAD)
    prototypes = float64(sheet.P_DEAD)
    assert effective_counts(prototypes, counts).tolist() == sheet.N_DEAD_EFF
    found = relations(prototypes, counts)
    assert_near(found, sheet.R_DEAD)
    sums = add_relations(PairSums.zeros(3), found, effective_counts(prototypes, counts))
    state = smooth(torch.eye(3, dtype=torch.float64), aggregate(sums), observed(sums), rho=0.7)
    for matrix in (state, reliability(sums.support)):
        assert matrix.isfinite().all()
        assert torch.equal(matrix, matrix.T)
        assert ((matrix >= 0) & (matrix <= 1)).all()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf, 1e-13])
def test_c2_a_prototype_without_a_direction_is_left_out(bad):
    prototypes = float64([[bad, 0.0], [1.0, 0.0], [1.0, 1.0]])
    assert effective_counts(prototypes, torch.tensor([3, 2, 1])).tolist() == [0, 2, 1]
    assert_near(relations(prototypes, torch.tensor([3, 2, 1])), sheet.R_DEAD)


@pytest.mark.parametrize("scale", [1e-11, 1e200])
def test_huge_and_tiny_prototypes_keep_their_relations(scale):
    assert_near(relations(PROTOTYPES[1] * scale, COUNTS[1]), sheet.R2)


def test_c5_a_pair_without_weight_keeps_its_value_and_has_no_reliability():
    state = float64([[1.0, 0.8], [0.8, 1.0]])
    sums = add_relations(PairSums.zeros(2), float64([[1.0, torch.nan], [torch.nan] * 2]), torch.tensor([4, 0]))
    assert smooth(state, aggregate(sums), observed(sums), rho=0.7)[0, 1] == 0.8
    assert reliability(sums.support)[0, 1] == 0


@pytest.mark.parametrize("norm", ["all", "offdiag"])
def test_c5_a_round_in_which_nobody_has_support(norm):
    state, sums = float64([[1.0, 0.8], [0.8, 1.0]]), PairSums.zeros(2)
    assert torch.equal(smooth(state, aggregate(sums), observed(sums), rho=0.7), state)
    assert torch.equal(reliability(sums.support, norm=norm), torch.zeros(2, 2, dtype=torch.float64))


def test_a_pair_with_a_vanishing_noisy_count_is_unobserved():
    tiny, held = torch.tensor([5.0, 1e-7], dtype=torch.float64), torch.ones(2, 2, dtype=torch.float64)
    sums = add_relations(PairSums.zeros(2), held, tiny)
    assert observed(sums).tolist() == [[True, False], [False, False]]
    assert aggregate(sums)[0, 1] == reliability(sums.support)[0, 1] == 0


def test_c6_more_neighbours_than_classes():
    matrix = float64([[1.0, 0.4], [0.4, 1.0]])
    held = torch.tensor([True, True])
    assert guidance(matrix, torch.ones_like(matrix), held, q=3).tolist() == [[0.0, 0.4], [0.4, 0.0]]


def test_c6_a_client_with_one_class_trains_on_scaled_cross_entropy():
    matrix = guidance(float64(sheet.RT), float64(sheet.S_ALL), HELD[2], q=3)
    assert not matrix[2].any()
    logits, labels = float64(sheet.LOGITS), torch.tensor([2, 2, 2])
    assert torch.equal(modulate(logits, labels, matrix, strength=1.0), logits)
    loss = topology_loss(logits, labels, matrix, strength=1.0, loss_weight=0.5)
    assert_near(loss.total, 1.5 * float(cross_entropy(logits, labels)))


def test_c6_zeros_are_never_selected_and_ties_go_to_the_lower_class():
    matrix = torch.eye(4, dtype=torch.float64)
    matrix[0] = float64([1.0, 0.0, 0.3, 0.3])
    held = torch.ones(4, dtype=torch.bool)
    assert guidance(matrix, torch.ones_like(matrix), held, q=1)[0].tolist() == [0.0, 0.0, 0.3, 0.0]
    assert guidance(matrix, torch.ones_like(matrix), held, q=3)[0].tolist() == [0.0, 0.0, 0.3, 0.3]


@pytest.mark.parametrize("q", [0, -1, True, 1.5, "most"])
def test_c6_q_below_one_is_refused(q):
    matrix = torch.eye(2, dtype=torch.float64)
    with pytest.raises(InvalidInput, match="q must be"):
        guidance(matrix, matrix, torch.tensor([True, True]), q=q)


def test_v13_weights_of_the_dirichlet_table():
    counts = torch.tensor(partition_numbers.DIR_C10_TRAIN)
    assert counts.sum(dim=1).tolist() == partition_numbers.DIR_C10_TRAIN_SIZES
    total = torch.stack([pair_weights(n) for n in counts]).sum(dim=0)
    assert_near(total.max(), sheet.DIR_C10_W_MAX)
    assert int(total.argmax()) == 3 * 10 + 3
    off = total.clone().fill_diagonal_(0)
    assert_near(off.max(), sheet.DIR_C10_W_MAX_OFFDIAG)
    assert int(off.argmax()) == 1 * 10 + 9


def test_v13_reliability_of_the_dirichlet_table():
    # F4: median 0.058 and maximum 0.564 off the diagonal, mean over clients of the held pairs' mean 0.141 (0.250).
    counts = torch.tensor(partition_numbers.DIR_C10_TRAIN)
    total = torch.stack([pair_weights(n) for n in counts]).sum(dim=0)
    rows, columns = torch.triu_indices(10, 10, offset=1)
    found = reliability(total)[rows, columns]
    assert round(float(found.quantile(0.5)), 3) == 0.058
    assert round(float(found.max()), 3) == 0.564
    for norm, expected in (("all", 0.141), ("offdiag", 0.250)):
        values = reliability(total, norm=norm)[rows, columns]
        means = [values[pair_mask(n)[rows, columns]].mean() for n in counts if int((n > 0).sum()) > 1]
        assert round(float(torch.stack(means).mean()), 3) == expected


def test_half_precision_logits_are_raised():
    logits = torch.tensor([[2.0, 1.0]], dtype=torch.bfloat16)
    loss = topology_loss(logits, torch.tensor([0]), torch.zeros(2, 2), strength=1.0, loss_weight=1.0)
    assert loss.total.dtype == torch.float32


def test_a_relation_that_the_counts_claim_must_be_there():
    with pytest.raises(InvalidInput, match="missing"):
        add_relations(PairSums.zeros(2), float64([[1.0, torch.nan], [torch.nan, 1.0]]), torch.tensor([1, 1]))


@pytest.mark.parametrize("counts", [[-1, 2], [float("nan"), 1.0], [float("inf"), 1.0], [[1, 2]]])
def test_impossible_counts_are_refused(counts):
    with pytest.raises(InvalidInput, match="count"):
        pair_weights(torch.tensor(counts))


@pytest.mark.parametrize("rho", [-0.1, 1.1])
def test_rho_outside_of_its_range_is_refused(rho):
    with pytest.raises(InvalidInput, match="rho"):
        smooth(IDENTITY, IDENTITY, IDENTITY > 0, rho=rho)


@pytest.mark.parametrize(
    "call",
    [
        lambda: relations(torch.ones(3, 2), torch.tensor([1, 1])),
        lambda: add_relations(PairSums.zeros(3), torch.ones(2, 2), torch.tensor([1, 1])),
        lambda: reliability(torch.ones(2, 3)),
        lambda: smooth(torch.ones(2, 2), torch.ones(3, 3), torch.ones(2, 2) > 0, rho=0.5),
        lambda: debias(torch.ones(2, 2), torch.ones(3, 3), 0.5),
        lambda: debias(torch.ones(2, 2), torch.ones(2, 2), 1.0),
        lambda: guidance(torch.ones(2, 2), torch.ones(3, 3), torch.ones(2) > 0, q=1),
    ],
)
def test_shapes_must_fit(call):
    with pytest.raises(InvalidInput):
        call()
