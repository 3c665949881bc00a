"""CRAD: section 4 of its sheet, case C3 and C5, the properties of section 8, and plain loops as the slow twin."""

import statistics

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.errors import InvalidInput
from motley.functional.reliability import (
    agreement,
    class_weighted_target,
    normalised,
    one_sided_precision,
    precision,
    shrunk_accuracy,
    soft_targets,
    supported,
    teacher_weights,
    uniform_target,
)
from motley.functional.uncertainty import uncertainty_target, uncertainty_weights

from . import crad_numbers as sheet
from .closeness import assert_near, float64

SEEDS = st.integers(0, 2**31)
COUNTS = torch.tensor(sheet.n)
ACCURACIES = float64(sheet.correct) / COUNTS
Q = soft_targets(float64(sheet.z), sheet.T)
EVERYBODY = torch.ones(4, 3, dtype=torch.bool)
EQUAL = torch.ones(4, 3, dtype=torch.float64)


def toy(case):
    """The appendix' cases: one sample and one class, all teachers supported."""
    q = float64(case["q"]).reshape(-1, 1, 1)
    counts = torch.tensor(case["n"]).unsqueeze(1)
    return q, counts, float64(case["correct"]).unsqueeze(1) / counts


def random_teachers(seed, num_teachers=6, batch=4, num_classes=3, dtype=torch.float64):
    draw = torch.Generator().manual_seed(seed)
    q = soft_targets(4 * torch.randn(num_teachers, batch, num_classes, generator=draw, dtype=dtype), 1.0)
    counts = torch.randint(0, 40, (num_teachers, num_classes), generator=draw)
    counts = counts * (torch.rand(num_teachers, num_classes, generator=draw) < 0.7)
    correct = (torch.rand(num_teachers, num_classes, dtype=torch.float64, generator=draw) * (counts + 1)).floor()
    return q, counts, torch.where(counts > 0, correct / counts.clamp(min=1), 0.5)


def crad(q, counts, accuracies, **options):
    kept = agreement(q, supported(counts)).kept
    return class_weighted_target(q, kept, precision(counts, accuracies), **options)


def test_eq1_soft_targets():
    assert_near(Q, sheet.q)


def test_eqs_4_and_5_consensus_threshold_and_kept():
    found = agreement(Q, supported(COUNTS))
    assert_near(found.consensus, sheet.consensus)
    assert_near(found.threshold, sheet.tau)
    assert torch.equal(found.kept, torch.tensor(sheet.kept).bool())


def test_eqs_6_and_7_accuracy_variance_and_precision():
    shrunk, variance = shrunk_accuracy(COUNTS, ACCURACIES)
    assert_near(shrunk, sheet.at)
    assert_near(variance, sheet.var)
    assert_near(precision(COUNTS, ACCURACIES), sheet.w, 1e-8)


@pytest.mark.parametrize(("count", "correct", "shrunk", "variance", "weight"), sheet.table)
def test_eqs_6_and_7_table(count, correct, shrunk, variance, weight):
    counts, accuracies = torch.tensor([count]), float64([correct / max(count, 1)])
    found = shrunk_accuracy(counts, accuracies)
    assert_near(found[0], [shrunk])
    assert_near(found[1], [variance])
    assert_near(precision(counts, accuracies), [weight], 1e-8)


@pytest.mark.parametrize("accuracy", [0.0, 0.5, 1.0, float("nan")])
def test_without_samples_the_accuracy_is_not_read(accuracy):
    found = shrunk_accuracy(torch.tensor([0]), float64([accuracy]))
    assert (found[0].item(), found[1].item()) == (0.5, 0.0625)


def test_a_class_without_samples_claims_one_half_since_0_would_weigh_more_where_counts_are_noised():
    # n' = 3: at = 2/7 with a = 0, var = (10/49) / 7; at = 1/2 with a = 1/2, var = (1/4) / 7 (sheet, section 2).
    assert_near(precision(float64([3.0, 3.0]), float64([0.0, 0.5])), [34.3, 28.0], 1e-8)


def test_k5_one_forged_claim_against_eight_honest_ones_has_the_share_of_the_sheet():
    counts = torch.tensor([[10**6]] + [[150]] * 8)
    accuracies = float64([[1.0]] + [[0.8]] * 8)
    q = float64([1.0] + [0.0] * 8).reshape(9, 1, 1)  # raw is then the share of the forged claim
    share = class_weighted_target(q, torch.ones(9, 1, dtype=torch.bool), precision(counts, accuracies)).raw.item()
    assert f"{100 * share:.6f}" == "99.999998"


def test_eq8_target():
    found = crad(Q, COUNTS, ACCURACIES)
    assert_near(found.raw, sheet.raw)
    assert_near(found.mass, sheet.mass)
    assert_near(found.target, sheet.target)


def test_variants():
    support, weights = supported(COUNTS), precision(COUNTS, ACCURACIES)
    stage_1, agreed = agreement(Q, support).kept, agreement(Q, EVERYBODY).kept
    for kept, chosen, expected in (
        (support, EQUAL, sheet.support_only),
        (stage_1, EQUAL, sheet.stage1_only),
        (agreed, EQUAL, sheet.agreement_only),
        (EVERYBODY, weights, sheet.stage2_only),
        (support, weights, sheet.support_precision),
        (stage_1, one_sided_precision(COUNTS, ACCURACIES), sheet.one_sided),
    ):
        assert_near(class_weighted_target(Q, kept, chosen).target, expected)
    assert_near(uniform_target(Q), sheet.uniform)


def test_uncertainty_distillation():
    assert_near(-torch.xlogy(Q, Q).sum(dim=2), sheet.H)
    weights = uncertainty_weights(Q)
    assert_near(weights, sheet.w_softmax_neg_H)
    assert_near(uncertainty_weights(Q, "information"), sheet.w_logC_minus_H)
    assert_near(uncertainty_target(Q, weights), sheet.uncertainty_target)


def test_uncertainty_of_teachers_that_know_nothing_is_equal():
    q = torch.full((4, 2, 3), 1 / 3, dtype=torch.float64)
    assert_near(uncertainty_weights(q, "information"), [[0.25, 0.25]] * 4)


@pytest.mark.parametrize(
    ("case", "consensus", "threshold", "kept", "share", "raw"),
    [
        (sheet.bird, sheet.bird_consensus, sheet.bird_tau, sheet.bird_kept, sheet.bird_W, sheet.bird_raw),
        (sheet.dog, sheet.dog_consensus, sheet.dog_tau, sheet.dog_kept, sheet.dog_W, sheet.dog_raw),
    ],
)
def test_appendix_cases(case, consensus, threshold, kept, share, raw):
    q, counts, accuracies = toy(case)
    found = agreement(q, supported(counts))
    assert_near(found.consensus, [[consensus]])
    assert_near(found.threshold, [[threshold]])
    assert found.kept.flatten().int().tolist() == kept
    weights = torch.where(found.kept.flatten(), precision(counts, accuracies).flatten(), 0.0)
    assert_near(weights / weights.sum(), share)
    assert_near(class_weighted_target(q, found.kept, precision(counts, accuracies)).raw, [[raw]])


@pytest.mark.parametrize("rule", list(sheet.rules))
def test_table_4_rules(rule):
    share, raw = sheet.rules[rule]
    q, counts, accuracies = toy(sheet.bird)
    kept = agreement(q, supported(counts)).kept
    nll = torch.full((8, 1), torch.nan, dtype=torch.float64)
    nll[kept.flatten()] = float64(sheet.nll).unsqueeze(1)
    weights = teacher_weights(counts, accuracies, rule=rule, cross_entropies=nll)
    survivors = weights[kept.flatten()].flatten()
    assert_near(survivors / survivors.sum(), share)
    assert_near(class_weighted_target(q, kept, weights).raw, [[raw]])


def test_rules_are_checked():
    assert torch.equal(teacher_weights(COUNTS, ACCURACIES, rule="one_sided"), one_sided_precision(COUNTS, ACCURACIES))
    with pytest.raises(InvalidInput, match="cross-entropies"):
        teacher_weights(COUNTS, ACCURACIES, rule="cross_entropy")
    with pytest.raises(InvalidInput, match="no weighting rule"):
        teacher_weights(COUNTS, ACCURACIES, rule="best")


def test_cross_entropies_far_from_zero_still_weigh():
    # exp(-800) is 0 in float64; only differences within a class matter.
    nll = float64([[800.0], [801.0], [torch.inf]])
    found = teacher_weights(torch.ones(3, 1), torch.ones(3, 1), rule="cross_entropy", cross_entropies=nll)
    assert_near(found.flatten(), [1.0, 0.36787944117144233, 0.0])


def test_c3_the_median_is_the_mean_of_the_two_middle_values():
    for values, expected in (
        ([0.2, 0.4, 0.5, 0.9], [False, True, True, False]),
        ([0.4, 0.6, 0.4, 0.6], [True] * 4),
    ):
        q = torch.tensor(values).reshape(4, 1, 1)
        assert agreement(q, torch.ones(4, 1, dtype=torch.bool)).kept.flatten().tolist() == expected


# Case C3 keeps d <= tau (1 + 1e-12); the sheet's tolerance (Eq. 5) wins, and it keeps both of two teachers as well.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("number", [1, 2])
def test_c3_one_or_two_teachers_are_always_kept(dtype, number):
    draw = torch.Generator().manual_seed(number)
    for scale in (0.01, 1, 30):
        q = torch.softmax(scale * torch.randn(number, 50_000, 4, generator=draw), dim=2).to(dtype)
        assert agreement(q, torch.ones(number, 4, dtype=torch.bool)).kept.all()


def test_c3_the_sheets_example_of_two_teachers():
    assert agreement(torch.tensor([0.3, 0.9]).reshape(2, 1, 1), torch.ones(2, 1) > 0).kept.all()


@pytest.mark.parametrize("unsupported", [[], [1.0]], ids=["alone", "beside one without support"])
@pytest.mark.parametrize(("excess", "stays"), [(9, True), (12, False)])
def test_eq5_the_tolerance_is_m_plus_2_roundings_of_the_largest_supported_value(excess, stays, unsupported):
    # With u = 2^-23, the eps of float32, 1/4, 1/2 and 3/4 + x u have the mean 1/2 + x u / 3 and the deviations
    # 1/4 + x u / 3, x u / 3 and 1/4 + 2 x u / 3: the last exceeds their median by x u / 3, which is 3 u or 4 u. The
    # tolerance is 5 u 3/4 = 3.75 u; it would be 5 u if 1.0, which has no support, were the largest, or 4.5 u with m = 4.
    q = torch.tensor([0.25, 0.5, 0.75 + excess * 2**-23, *unsupported]).reshape(-1, 1, 1)
    support = torch.tensor([True] * 3 + [False] * len(unsupported)).unsqueeze(1)
    assert agreement(q, support).kept.flatten().tolist() == [True, True, stays] + [False] * len(unsupported)


@given(seed=SEEDS, number=st.integers(3, 9))
def test_c3_without_ties_half_of_the_teachers_stay(seed, number):
    q = torch.rand(number, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    assert agreement(q, torch.ones(number, 3) > 0).kept.sum(dim=0).eq((number + 1) // 2).all()


# Case C5 gives a class without a supported teacher 0, and plain cross-entropy without any; the sheet decides: the mean
# over all teachers (default), 0 with `zero`, and Eq. 3 for a sample whose sum is 0.
def test_c5_a_class_without_a_supported_teacher():
    counts = COUNTS * torch.tensor([1, 1, 0])
    whole, zero = crad(Q, counts, ACCURACIES), crad(Q, counts, ACCURACIES, unsupported="zero")
    assert_near(whole.raw[:, 2], uniform_target(Q)[:, 2].tolist())
    assert torch.equal(zero.raw[:, 2], torch.zeros(2, dtype=torch.float64))
    assert_near(zero.raw[:, :2], [row[:2] for row in sheet.raw])
    assert_near(zero.target, (zero.raw / zero.raw.sum(dim=1, keepdim=True)).tolist())


@pytest.mark.parametrize("unsupported", ["uniform", "zero"])
def test_c5_nobody_has_support(unsupported):
    found = crad(Q, COUNTS * 0, ACCURACIES, unsupported=unsupported)
    assert_near(found.target, sheet.uniform)
    assert_near(found.mass, [1.0, 1.0] if unsupported == "uniform" else [0.0, 0.0])


def test_eq8_a_small_sum_is_normalised_and_only_one_of_practically_0_gives_way_to_the_mean_of_all():
    q = float64([[[0.0005, 0.9995]], [[0.25, 0.75]]])
    kept = torch.tensor([[True, False], [False, False]])
    found = class_weighted_target(q, kept, torch.ones(2, 2), unsupported="zero")
    assert_near(found.mass, [0.0005])
    assert_near(found.target, [[1.0, 0.0]])
    bound = normalised(float64([[1e-12, 0.0], [2e-12, 0.0]]), float64([[0.25, 0.75]] * 2))
    assert_near(bound.target, [[0.25, 0.75], [1.0, 0.0]])


def test_without_support_there_is_no_consensus():
    found = agreement(Q, supported(COUNTS * torch.tensor([1, 1, 0])))
    assert found.consensus[:, 2].isnan().all()
    assert found.threshold[:, 2].isnan().all()
    assert not found.kept[:, :, 2].any()


def test_no_teacher_is_refused():
    for call in (
        lambda: agreement(Q[:0], EVERYBODY[:0]),
        lambda: uniform_target(Q[:0]),
        lambda: class_weighted_target(Q[:0], EVERYBODY[:0], EQUAL[:0]),
        lambda: agreement(Q, EVERYBODY.T),
        lambda: class_weighted_target(Q, EVERYBODY[:, :2], EQUAL),
        lambda: class_weighted_target(Q, EVERYBODY, EQUAL[:, :2]),
        lambda: uncertainty_target(Q, EQUAL),
        lambda: soft_targets(Q, 0.0),
        lambda: shrunk_accuracy(COUNTS, ACCURACIES[:2]),
        lambda: shrunk_accuracy(-COUNTS, ACCURACIES),
        lambda: shrunk_accuracy(COUNTS, ACCURACIES + 1),
    ):
        with pytest.raises(InvalidInput):
            call()


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_targets_carry_no_gradient_and_half_precision_is_raised(half):
    scores = torch.zeros(2, 1, 3, dtype=half, requires_grad=True)
    found = soft_targets(scores, 3.0)
    assert found.dtype == torch.float32
    assert not found.requires_grad


def test_the_target_has_the_dtype_of_the_soft_targets():
    assert crad(Q.float(), COUNTS, ACCURACIES).target.dtype == torch.float32
    assert_near(crad(Q.float(), COUNTS, ACCURACIES).target, sheet.target, 1e-6)


@given(seed=SEEDS, unsupported=st.sampled_from(["uniform", "zero"]))
def test_a_target_is_a_distribution(seed, unsupported):
    found = crad(*random_teachers(seed), unsupported=unsupported)
    assert (found.target >= 0).all()
    assert (found.target.sum(dim=1) - 1).abs().max() <= 1e-12


@given(seed=SEEDS, order=st.permutations(range(6)))
def test_the_order_of_the_teachers_is_irrelevant(seed, order):
    q, counts, accuracies = random_teachers(seed)
    order = torch.tensor(order)
    found = crad(q[order], counts[order], accuracies[order])
    assert (found.target - crad(q, counts, accuracies).target).abs().max() <= 1e-12


@given(seed=SEEDS, order=st.permutations(range(3)))
def test_renaming_the_classes_renames_the_target(seed, order):
    q, counts, accuracies = random_teachers(seed)
    order = torch.tensor(order)
    found = crad(q[:, :, order], counts[:, order], accuracies[:, order])
    assert (found.target - crad(q, counts, accuracies).target[:, order]).abs().max() <= 1e-12


@given(seed=SEEDS)
def test_identical_teachers_give_that_teacher(seed):
    q, counts, accuracies = random_teachers(seed)
    same = q[:1].expand(6, -1, -1)
    assert agreement(same, supported(counts)).kept.all(dim=1).eq(supported(counts)).all()
    assert (crad(same, counts, accuracies).target - q[0]).abs().max() <= 1e-12


@given(seed=SEEDS, factor=st.floats(1e-2, 1e6), chosen=st.integers(0, 2))
def test_scaling_the_weights_of_a_class_changes_nothing(seed, factor, chosen):
    q, counts, accuracies = random_teachers(seed)
    kept, weights = agreement(q, supported(counts)).kept, precision(counts, accuracies)
    scaled = weights.clone()
    scaled[:, chosen] *= factor
    difference = class_weighted_target(q, kept, scaled).target - class_weighted_target(q, kept, weights).target
    assert difference.abs().max() <= 1e-9


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@given(seed=SEEDS)
def test_at_least_half_of_the_supported_teachers_stay_and_raw_lies_among_them(dtype, seed):
    q, counts, accuracies = random_teachers(seed, dtype=dtype)
    support = supported(counts)
    found = agreement(q, support)
    number = support.sum(dim=0)
    kept = found.kept.sum(dim=0)
    assert (kept >= (number + 1) // 2).all()
    assert (kept[:, number <= 2] == number[number <= 2]).all()
    assert not (found.kept & ~support.unsqueeze(1)).any()
    raw = class_weighted_target(q, found.kept, precision(counts, accuracies)).raw.double()
    low = torch.where(found.kept, q.double(), 2.0).amin(dim=0)
    high = torch.where(found.kept, q.double(), -1.0).amax(dim=0)
    some, slack = number > 0, max(4 * torch.finfo(dtype).eps, 1e-12)  # eps8 takes 1e-12 / 16 of raw
    assert ((raw >= low - slack) & (raw <= high + slack))[:, some].all()
    assert ((raw - found.consensus).abs() <= found.threshold + 4 * slack)[:, some].all()


@given(seed=SEEDS)
def test_an_unsupported_teacher_does_not_reach_raw_of_that_class(seed):
    q, counts, accuracies = random_teachers(seed)
    support = supported(counts)
    noise = torch.rand(q.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + 1))
    changed = torch.where(support.unsqueeze(1), q, noise)
    some = support.any(dim=0)
    assert torch.equal(crad(changed, counts, accuracies).raw[:, some], crad(q, counts, accuracies).raw[:, some])


@given(seed=SEEDS)
def test_equal_statistics_without_filters_are_uniform(seed):
    q, counts, accuracies = random_teachers(seed)
    same = precision(counts[:1].expand(6, 3), accuracies[:1].expand(6, 3))
    found = class_weighted_target(q, torch.ones(6, 3, dtype=torch.bool), same)
    assert (found.target - uniform_target(q)).abs().max() <= 1e-12


@given(count=st.integers(1, 5_000), right=st.data())
def test_the_precision_grows_with_samples_and_is_symmetric_and_smallest_at_one_half(count, right):
    accuracy = right.draw(st.integers(0, count)) / count
    one = precision(torch.tensor([count]), float64([accuracy])).item()
    more = precision(torch.tensor([2 * count]), float64([accuracy])).item()
    mirrored = precision(torch.tensor([count]), float64([1 - accuracy])).item()
    assert one < more
    assert abs(one - mirrored) <= 1e-9 * one
    assert precision(torch.tensor([count]), float64([0.5])).item() <= one


@given(count=st.integers(0, 5_000))
def test_one_sided_precision_does_not_decrease_in_the_accuracy(count):
    accuracies = torch.linspace(0, 1, 101, dtype=torch.float64)
    found = one_sided_precision(torch.full((101,), count), accuracies)
    assert (found.diff() >= -1e-12 * found[:-1]).all()


@given(seed=SEEDS)
@settings(max_examples=20)
def test_chunks_of_samples_change_nothing(seed):
    q, counts, accuracies = random_teachers(seed, batch=7)
    whole = crad(q, counts, accuracies).target
    parts = torch.cat([crad(part, counts, accuracies).target for part in q.split(3, dim=1)])
    assert (whole - parts).abs().max() <= 1e-12


@given(seed=SEEDS, size=st.integers(1, 5))
@settings(max_examples=40)
def test_chunks_of_teachers_change_nothing(seed, size):
    # Eqs. 1-3 and 8 from chunks: raw is the mean of the chunks' raws by the weight that each of them keeps.
    _, counts, accuracies = random_teachers(seed)
    logits = 4 * torch.randn(6, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    q = soft_targets(logits, 3.0)
    chunks = list(torch.arange(6).split(size))
    assert torch.equal(torch.cat([soft_targets(logits[chunk], 3.0) for chunk in chunks]), q)
    uniform = sum(len(chunk) * uniform_target(q[chunk]) for chunk in chunks) / 6
    assert (uniform - uniform_target(q)).abs().max() <= 1e-12
    kept, weights = agreement(q, supported(counts)).kept, precision(counts, accuracies)
    whole = class_weighted_target(q, kept, weights, unsupported="zero").raw
    total, weight = torch.zeros(4, 3, dtype=torch.float64), torch.zeros(4, 3, dtype=torch.float64)
    for chunk in chunks:
        part = class_weighted_target(q[chunk], kept[chunk], weights[chunk], unsupported="zero").raw
        held = (weights[chunk].unsqueeze(1) * kept[chunk]).sum(dim=0)
        total, weight = total + held * part, weight + held
    assert (total / weight.clamp(min=1) - whole).abs().max() <= 1e-11  # weights are >= 16, or there is none


def slow_crad(q, counts, accuracies, min_support=2):
    """Eqs. 4-8 as plain loops."""
    num_teachers, batch, num_classes = q.shape
    targets = []
    for i in range(batch):
        row = []
        for c in range(num_classes):
            some = [j for j in range(num_teachers) if counts[j, c] >= min_support]
            values = {j: float(q[j, i, c]) for j in range(num_teachers)}
            if not some:
                row.append(sum(values.values()) / num_teachers)
                continue
            centre = sum(values[j] for j in some) / len(some)
            tau = statistics.median(abs(values[j] - centre) for j in some)
            slack = (len(some) + 2) * torch.finfo(q.dtype).eps * max(values[j] for j in some)
            numerator = denominator = 0.0
            for j in some:
                if abs(values[j] - centre) <= tau + slack:
                    n, a = float(counts[j, c]), float(accuracies[j, c])
                    shrunk = (a * n + 2) / (n + 4)
                    weight = 1 / (shrunk * (1 - shrunk) / (n + 4) + 1e-12)
                    numerator += weight * values[j]
                    denominator += weight
            row.append(numerator / (denominator + 1e-12))
        targets.append([value / sum(row) for value in row])
    return targets


@given(seed=SEEDS, number=st.integers(1, 9))
@settings(max_examples=40)
def test_the_target_equals_its_slow_twin(seed, number):
    q, counts, accuracies = random_teachers(seed, num_teachers=number)
    assert_near(crad(q, counts, accuracies).target, slow_crad(q, counts, accuracies), 1e-12)
