"""Section 5 of CRAD's sheet: worked numbers, properties, and a slow twin of cap and median."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.errors import InvalidInput
from motley.functional.reliability import (
    agreement,
    class_weighted_target,
    one_sided_precision,
    precision,
    shrunk_accuracy,
    supported,
)
from motley.functional.tempered import admit_verified, audit, capped_shares, tempered_agreement, weighted_median

from . import crad_numbers as sheet
from .closeness import assert_near, float64
from .test_reliability import ACCURACIES, COUNTS, Q, random_teachers, toy

SEEDS = st.integers(0, 2**31)


def tempered(q, counts, accuracies, rho=0.2):
    support = supported(counts)
    shares = capped_shares(one_sided_precision(counts, accuracies), support, rho)
    return class_weighted_target(q, tempered_agreement(q, support, shares).kept, shares)


def test_worked_targets():
    found = tempered(Q, COUNTS, ACCURACIES)
    assert_near(found.raw, sheet.tempered_rho_02_raw)
    assert_near(found.target, sheet.tempered_rho_02_target)
    assert_near(tempered(Q, COUNTS, ACCURACIES, 0.4).target, sheet.tempered_rho_04_target)


def test_worked_shares():
    evidence, support = one_sided_precision(COUNTS, ACCURACIES), supported(COUNTS)
    assert_near(capped_shares(evidence, support, 0.4)[:, 0], sheet.shares_rho_04_class_0)
    assert_near(capped_shares(evidence, support, 0.2)[:, 0], [0.25] * 4)


def test_appendix_cases():
    assert_near(tempered(*toy(sheet.bird)).raw, [[sheet.tempered_bird]])
    assert_near(tempered(*toy(sheet.dog)).raw, [[sheet.tempered_dog]])
    # The sheet: 0.2679 at 0.4, 0.4487 at 0.49.
    for rho, expected in ((0.4, 0.2679), (0.49, 0.4487)):
        assert round(tempered(*toy(sheet.dog), rho).raw.item(), 4) == expected


def judged(n, correct, n_own, k, neg, fp):
    found = audit(
        torch.tensor([n]),
        float64([correct / n]),
        own_counts=torch.tensor([n_own]),
        own_correct=torch.tensor([k]),
        negatives=torch.tensor([neg]),
        false_alarms=torch.tensor([fp]),
    )
    assert not (found.verified.item() and found.refuted.item())
    return "verified" if found.verified.item() else "refuted" if found.refuted.item() else "unverified"


@pytest.mark.parametrize(("n", "correct", "n_own", "k", "neg", "fp", "verdict"), sheet.audit)
def test_audit(n, correct, n_own, k, neg, fp, verdict):
    assert judged(n, correct, n_own, k, neg, fp) == verdict


@pytest.mark.parametrize(
    ("n_own", "k", "verdict"),
    [(4, 4, "unverified"), (5, 5, "verified"), (4, 0, "unverified"), (5, 0, "refuted")],
)
def test_an_audit_needs_five_own_samples_to_verify_and_to_refute(n_own, k, verdict):
    assert judged(258, 233, n_own, k, 500 - n_own, 12) == verdict


@pytest.mark.parametrize(
    ("n", "correct", "n_own", "k", "verdict"),
    [
        (258, 233, 96, 76, "verified"),  # (at_claim - at_own) / sqrt(var_claim + var_own) = 2.5712
        (1000, 1000, 46, 42, "verified"),  # 2.5666
        (100, 90, 5, 2, "refuted"),  # 2.6112
        (258, 233, 36, 26, "refuted"),  # 2.6312
    ],
)
def test_a_claim_may_exceed_what_is_found_by_2_576_standard_deviations(n, correct, n_own, k, verdict):
    assert judged(n, correct, n_own, k, 480, 12) == verdict


@pytest.mark.parametrize(
    ("neg", "fp", "verdict"),
    [
        (19, 19, "unverified"),  # false alarms count from 20 other samples on
        (20, 2, "unverified"),  # and more than a tenth of them
        (20, 3, "refuted"),
        (480, 48, "unverified"),
        (480, 49, "refuted"),
    ],
)
@pytest.mark.parametrize(("n_own", "k"), [(0, 0), (20, 17)])
def test_more_than_a_tenth_of_false_alarms_among_20_refute(n_own, k, neg, fp, verdict):
    assert judged(258, 233, n_own, k, neg, fp) == verdict


def audited(case, verified):
    q, counts, accuracies = toy(case)
    support = supported(counts)
    kept = agreement(q, support).kept
    made = class_weighted_target(q, kept, precision(counts, accuracies))
    eligible = verified & support & (shrunk_accuracy(counts, accuracies)[0] >= 0.5)
    return made, admit_verified(made, q, kept, one_sided_precision(counts, accuracies), eligible)


def test_a_verified_specialist_lifts_the_dog():
    everybody = torch.ones(10, 1, dtype=torch.bool)
    _, found = audited(sheet.dog, everybody)
    assert_near(found.raw, [[sheet.audited_dog]])
    before, same = audited(sheet.dog, ~everybody)
    assert torch.equal(before.raw, same.raw)


def test_a_kept_teacher_and_a_weak_outlier_do_not_join():
    # Bird: the outliers' evidence (at most 50 samples) lies below that of the best kept teacher (180 samples).
    before, after = audited(sheet.bird, torch.ones(8, 1, dtype=torch.bool))
    assert torch.equal(before.raw, after.raw)


def test_two_verified_outliers_share_one_half():
    q = float64([0.2, 0.2, 0.2, 0.8, 0.6]).reshape(5, 1, 1)
    kept = torch.tensor([1, 1, 1, 0, 0]).bool().reshape(5, 1, 1)
    made = class_weighted_target(q, kept, torch.ones(5, 1))
    evidence = float64([20, 20, 20, 300, 100]).unsqueeze(1)
    found = admit_verified(made, q, kept, evidence, torch.ones(5, 1, dtype=torch.bool))
    assert_near(found.raw, [[0.5 * 0.2 + 0.5 * (0.75 * 0.8 + 0.25 * 0.6)]])


@given(seed=SEEDS, rho=st.floats(0.1, 1), size=st.integers(1, 6))
@settings(max_examples=40)
def test_chunks_of_samples_change_nothing(seed, rho, size):
    q, counts, accuracies = random_teachers(seed, batch=7)
    whole = tempered(q, counts, accuracies, rho).target
    parts = torch.cat([tempered(part, counts, accuracies, rho).target for part in q.split(size, dim=1)])
    assert (whole - parts).abs().max() <= 1e-12


@given(seed=SEEDS, rho=st.floats(0.1, 1), order=st.permutations(range(6)), size=st.integers(1, 5))
@settings(max_examples=40)
def test_order_and_chunks_of_teachers_change_nothing(seed, rho, order, size):
    q, counts, accuracies = random_teachers(seed)
    whole = tempered(q, counts, accuracies, rho)
    moved = tempered(q[order], counts[order], accuracies[order], rho)
    assert (moved.target - whole.target).abs().max() <= 1e-12
    # The evidence is each teacher's own; the kept ones' raws are averaged by the share that each chunk keeps.
    chunks = list(torch.arange(6).split(size))
    evidence = torch.cat([one_sided_precision(counts[chunk], accuracies[chunk]) for chunk in chunks])
    support = supported(counts)
    shares = capped_shares(evidence, support, rho)
    kept = tempered_agreement(q, support, shares).kept
    total, weight = torch.zeros(4, 3, dtype=torch.float64), torch.zeros(4, 3, dtype=torch.float64)
    for chunk in chunks:
        part = class_weighted_target(q[chunk], kept[chunk], shares[chunk], unsupported="zero").raw
        held = (shares[chunk].unsqueeze(1) * kept[chunk]).sum(dim=0)
        total, weight = total + held * part, weight + held
    some = support.any(dim=0)
    assert (total / weight - whole.raw)[:, some].abs().sum() <= 1e-8


def slow_shares(evidence, support, rho):
    some = [j for j in range(len(evidence)) if support[j]]
    if not some:
        return [0.0] * len(evidence)
    r = max(rho, 1 / len(some))
    if r * len(some) <= 1 + 1e-12:
        return [1 / len(some) if j in some else 0.0 for j in range(len(evidence))]
    low, high = 0.0, max(evidence[j] for j in some)
    if high / sum(evidence[j] for j in some) > r:  # bisect t: the largest share grows with it
        for _ in range(200):
            t = (low + high) / 2
            low, high = (low, t) if t / sum(min(evidence[j], t) for j in some) > r else (t, high)
    total = sum(min(evidence[j], high) for j in some)
    return [min(evidence[j], high) / total if j in some else 0.0 for j in range(len(evidence))]


@given(evidence=st.lists(st.floats(16, 1e6), min_size=1, max_size=9), rho=st.floats(0.05, 1), data=st.data())
def test_capped_shares_equal_their_slow_twin(evidence, rho, data):
    support = [data.draw(st.booleans()) for _ in evidence]
    found = capped_shares(float64(evidence).unsqueeze(1), torch.tensor(support).unsqueeze(1), rho).flatten()
    assert_near(found, slow_shares(evidence, support, rho))
    if any(support):
        assert abs(float(found.sum()) - 1) <= 1e-12
        assert float(found.max()) <= max(rho, 1 / sum(support)) + 1e-12


def slow_median(values, shares):
    pairs = sorted((value, share) for value, share in zip(values, shares, strict=True) if share > 0)
    bounds = []
    for reached in (lambda total: total >= 0.5 - 1e-12, lambda total: total > 0.5 + 1e-12):
        total = 0.0
        for value, share in pairs:
            total += share
            if reached(total):
                bounds.append(value)
                break
    return sum(bounds) / 2


@given(seed=SEEDS, number=st.integers(1, 9), equal=st.booleans())
@settings(max_examples=40)
def test_the_weighted_median_equals_its_slow_twin(seed, number, equal):
    draw = torch.Generator().manual_seed(seed)
    values = torch.rand(number, 3, 2, dtype=torch.float64, generator=draw)
    shares = torch.rand(number, 2, dtype=torch.float64, generator=draw) * (torch.rand(number, 2, generator=draw) < 0.7)
    shares = torch.ones_like(shares) if equal or not shares.any(dim=0).all() else shares
    shares = shares / shares.sum(dim=0)
    expected = [[slow_median(values[:, i, c].tolist(), shares[:, c].tolist()) for c in range(2)] for i in range(3)]
    assert_near(weighted_median(values, shares), expected, 1e-12)
    if equal:
        assert_near(weighted_median(values, shares), values.quantile(0.5, dim=0).tolist(), 1e-12)


@given(seed=SEEDS)
def test_one_teacher_is_the_target(seed):
    q, counts, accuracies = random_teachers(seed, num_teachers=1)
    assert (tempered(q, counts, accuracies).target - q[0]).abs().max() <= 1e-11


@given(seed=SEEDS, rho=st.floats(0.1, 1))
def test_a_tempered_target_is_a_distribution_and_half_of_the_weight_stays(seed, rho):
    q, counts, accuracies = random_teachers(seed)
    found = tempered(q, counts, accuracies, rho)
    assert (found.target >= 0).all()
    assert (found.target.sum(dim=1) - 1).abs().max() <= 1e-12
    support = supported(counts)
    shares = capped_shares(one_sided_precision(counts, accuracies), support, rho)
    kept = tempered_agreement(q, support, shares).kept
    weight = (shares.unsqueeze(1) * kept).sum(dim=0)
    assert (weight >= 0.5 - 1e-9)[:, support.any(dim=0)].all()


@given(seed=SEEDS, liars=st.integers(1, 2))
def test_an_honest_majority_holds_the_centre(seed, liars):
    # rho = 0.2, five or more teachers: two forged claims hold at most 0.4.
    q, counts, accuracies = random_teachers(seed, num_teachers=8)
    counts = counts + 2
    counts[:liars], accuracies[:liars], q[:liars] = 10**6, 1.0, 0.0
    support = supported(counts)
    shares = capped_shares(one_sided_precision(counts, accuracies), support, 0.2)
    assert (shares[:liars].sum(dim=0) <= 0.4 + 1e-12).all()
    centre = tempered_agreement(q, support, shares).consensus
    assert (centre >= q[liars:].amin(dim=0) - 1e-12).all()
    assert (centre <= q[liars:].amax(dim=0) + 1e-12).all()


def test_a_class_without_support_falls_back_to_all_teachers():
    counts = COUNTS * torch.tensor([1, 1, 0])
    found = tempered(Q, counts, ACCURACIES)
    assert_near(found.raw[:, 2], Q.mean(dim=0)[:, 2].tolist())


def test_impossible_arguments_are_refused():
    for rho in (0.0, 1.5, float("nan")):
        with pytest.raises(InvalidInput, match="rho"):
            capped_shares(torch.ones(2, 1), torch.ones(2, 1) > 0, rho)
    with pytest.raises(InvalidInput, match="shape"):
        capped_shares(torch.ones(2, 1), torch.ones(2, 2) > 0)
