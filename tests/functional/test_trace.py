"""The record of one sample: the appendix' cases of the sheet (section 4), every state, and where it must refuse."""

import pytest
import torch

from motley.errors import InvalidInput
from motley.functional.reliability import (
    Agreement,
    agreement,
    class_weighted_target,
    one_sided_precision,
    precision,
    soft_targets,
    supported,
)
from motley.functional.tempered import admit_verified, joining_shares
from motley.functional.trace import target_gains, trace_class

from . import crad_numbers as sheet
from .closeness import assert_near, float64


def both(values, other=None):
    """Give two classes the same claims, and probabilities q and 1 - q: then the target is raw."""
    column = float64(values)
    return torch.stack([column, column if other is None else other - column], dim=1)


def toy(case, *, alone=0):
    """An appendix case with its peers, and further ones that have a single sample."""
    q = both([*case["q"], *[0.5] * alone], 1.0).unsqueeze(1)
    counts = both([*case["n"], *[1] * alone])
    return q, counts, both([*case["correct"], *[1] * alone]) / counts


def traced(q, counts, accuracies, *, label=0, weights=None, agreed=None, teachers=None, sample=0, eligible=None):
    backed = supported(counts)
    weights = precision(counts, accuracies) if weights is None else weights
    agreed = agreed or agreement(q, backed)
    made = class_weighted_target(q, agreed.kept & (weights > 0)[:, None], weights)
    joined = None
    if eligible is not None:
        evidence = one_sided_precision(counts, accuracies)
        joined = joining_shares(agreed.kept, evidence, eligible)
        made = admit_verified(made, q, agreed.kept, evidence, eligible)
    ids = range(len(q)) if teachers is None else teachers
    return trace_class(
        q,
        agreed,
        made,
        counts,
        accuracies,
        backed,
        weights,
        teachers=ids,
        sample=sample,
        label=label,
        joined=joined,
    )


def test_the_bird_of_the_appendix():
    found = traced(*toy(sheet.bird, alone=2))
    assert_near(found.consensus, sheet.bird_consensus)
    assert_near(found.threshold, sheet.bird_tau)
    assert_near(found.band, [0.4915, 0.8745])  # by hand: 0.683 -+ 0.1915
    assert_near([one.share for one in found.teachers], [*sheet.bird_W, 0, 0])
    assert_near([found.raw, found.target, found.mass], [sheet.bird_raw, sheet.bird_raw, 1.0])
    states = ["weighted" if kept else "consensus outlier" for kept in sheet.bird_kept]
    assert [one.state for one in found.teachers] == [*states, "no support", "no support"]
    assert_near([one.probability for one in found.teachers], [*sheet.bird["q"], 0.5, 0.5])
    assert [one.count for one in found.teachers] == [*sheet.bird["n"], 1, 1]
    assert_near([one.accuracy for one in found.teachers][1], 0.8)
    assert_near([one.weight for one in found.teachers][1], 1122.837778119)  # (180, 144) in the sheet's table
    assert_near(found.uniform, (8 * 0.683 + 2 * 0.5) / 10)
    assert_near(found.gain, found.target - found.uniform)
    assert round(100 * found.consensus, 1) == 68.3  # as the paper prints them
    assert round(100 * found.target, 1) == 79.4
    assert round(100 * max(one.share for one in found.teachers), 1) == 59.5


def test_the_dog_of_the_appendix():
    found = traced(*toy(sheet.dog))
    assert_near([found.consensus, found.threshold], [sheet.dog_consensus, sheet.dog_tau])
    assert_near([one.share for one in found.teachers], sheet.dog_W)
    assert_near([found.raw, found.target], [sheet.dog_raw, sheet.dog_raw])
    assert [one.state == "weighted" for one in found.teachers] == [bool(kept) for kept in sheet.dog_kept]
    assert found.teachers[7].state == "consensus outlier"  # the specialist with 258 samples
    assert found.gain < 0
    assert (round(100 * found.consensus, 1), round(100 * found.target, 1)) == (27.5, 27.2)


def test_every_sample_and_class_of_the_worked_example():
    q, counts = soft_targets(float64(sheet.z), sheet.T), torch.tensor(sheet.n)
    accuracies = float64(sheet.correct) / counts
    for sample in range(2):
        for label in range(3):
            found = traced(q, counts, accuracies, label=label, sample=sample)
            numbers = [found.consensus, found.threshold, found.raw, found.target, found.mass, found.uniform]
            columns = (sheet.consensus, sheet.tau, sheet.raw, sheet.target)
            expected = [column[sample][label] for column in columns]
            assert_near(numbers, [*expected, sheet.mass[sample], sheet.uniform[sample][label]])
            assert_near(sum(one.share * one.probability for one in found.teachers), sheet.raw[sample][label])
            kept = [bool(row[sample][label]) for row in sheet.kept]
            assert [one.state == "weighted" for one in found.teachers] == kept
            assert [one.state == "no support" for one in found.teachers] == [row[label] < 2 for row in sheet.n]
            assert_near([one.weight for one in found.teachers], [row[label] for row in sheet.w], 1e-8)


def test_a_verified_outlier_has_the_share_with_which_it_joins():
    found = traced(*toy(sheet.dog), eligible=torch.ones(10, 2, dtype=torch.bool))
    guest = found.teachers[7]
    assert_near(found.raw, sheet.audited_dog)
    assert guest.state == "verified outlier"
    assert_near(guest.share, 0.5)
    assert_near(sum(one.share for one in found.teachers), 1.0)
    assert_near(sum(one.share * one.probability for one in found.teachers), sheet.audited_dog)


def test_without_supported_teachers_there_is_no_consensus_and_nobody_has_a_share():
    q = both([0.2, 0.6], 1.0).unsqueeze(1)
    found = traced(q, torch.ones(2, 2), torch.ones(2, 2))
    assert (found.consensus, found.threshold, found.band) == (None, None, None)
    assert [one.state for one in found.teachers] == ["no support"] * 2
    assert [one.share for one in found.teachers] == [0, 0]
    assert_near([found.target, found.gain], [0.4, 0.0])


def test_without_an_agreement_filter_there_is_a_consensus_but_no_band():
    q, counts, accuracies = toy(sheet.bird, alone=2)
    unknown = torch.full((1, 2), torch.nan)
    everybody = Agreement(supported(counts).unsqueeze(1), unknown, unknown)
    found = traced(q, counts, accuracies, agreed=everybody)
    assert_near(found.consensus, sheet.bird_consensus)
    assert (found.threshold, found.band) == (None, None)
    assert [one.state for one in found.teachers] == ["weighted"] * 8 + ["no support"] * 2


def test_a_kept_teacher_without_weight_is_told_from_a_weighted_one():
    q = both([0.4, 0.5], 1.0).unsqueeze(1)
    found = traced(q, torch.full((2, 2), 9), torch.ones(2, 2), weights=both([0.0, 3.0]), teachers=(5, 2))
    assert [(one.teacher, one.state, one.probability) for one in found.teachers] == [
        (2, "weighted", 0.5),
        (5, "no weight", 0.4),
    ]
    assert_near(found.raw, 0.5)


def test_the_gain_is_that_of_the_true_class_against_the_mean():
    q = soft_targets(float64(sheet.z), sheet.T)
    found = target_gains(q, float64(sheet.target), torch.tensor(sheet.y))
    assert_near(found, [0.700404772814 - 0.566260283128, 0.483400354084 - 0.331268945145])


@pytest.mark.parametrize(
    "wrong", [{"teachers": (0, 1)}, {"sample": 1}, {"sample": -1}, {"label": 2}, {"weights": torch.ones(8, 3)}]
)
def test_what_does_not_fit_is_refused(wrong):
    q, counts, accuracies = toy(sheet.bird)
    agreed, backed, weights = agreement(q, supported(counts)), supported(counts), torch.ones(8, 2)
    made = class_weighted_target(q, agreed.kept, weights)
    weights = wrong.pop("weights", weights)
    where = {"teachers": range(8), "sample": 0, "label": 0} | wrong
    with pytest.raises(InvalidInput):
        trace_class(q, agreed, made, counts, accuracies, backed, weights, **where)


def test_labels_that_do_not_fit_are_refused():
    with pytest.raises(InvalidInput):
        target_gains(torch.ones(2, 3, 4), torch.ones(3, 4), torch.zeros(2, dtype=torch.int64))
