import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import l1_loss, log_softmax, one_hot, softmax

from functional import proxy_numbers as sheet
from functional.closeness import assert_near, float64
from motley.errors import InvalidInput
from motley.functional.distillation import distillation_loss
from motley.functional.proxy_targets import (
    above_quantile,
    ambiguities,
    consensus,
    ensemble_probabilities,
    entropies,
    selected_mean,
    unambiguous,
    within_quantile,
)

Z = float64(sheet.z)


def test_the_consensus_of_the_sheet():
    assert_near(consensus(Z), sheet.fedmd_consensus)
    assert_near(consensus(Z, [1, 2, 1]), sheet.fedmd_weighted_1_2_1)
    assert_near(l1_loss(Z[0], consensus(Z)), sheet.fedmd_mae_of_client_0)


@pytest.mark.parametrize("temperature", sheet.feddf_loss_client_0)
def test_the_ensemble_of_the_sheet(temperature):
    p = ensemble_probabilities(Z, temperature)
    if temperature == 1:
        assert_near(p, sheet.feddf_p)
    assert_near(distillation_loss(Z[0], p, temperature), sheet.feddf_loss_client_0[temperature])


def test_probabilities_averaged_are_not_those_of_averaged_logits():
    everybody = torch.ones(3, 2, dtype=torch.bool)
    mean, number = selected_mean(softmax(Z, dim=2), everybody)
    assert_near(mean, sheet.mean_of_softmax)
    assert number.tolist() == [3, 3]
    assert (mean - ensemble_probabilities(Z, 1.0)).abs().max() > 0.1


def test_the_selectors_of_the_sheet():
    chosen, threshold = within_quantile(float64(sheet.entropies_own), float64(sheet.entropies_proxy), 0.75)
    assert threshold == pytest.approx(sheet.quantile_75, abs=1e-12)
    assert chosen.tolist() == sheet.answered
    mask = torch.tensor(sheet.msfkd_mask, dtype=torch.bool)
    mean, number = selected_mean(softmax(Z, dim=2), mask)
    assert_near(mean, sheet.msfkd_ensemble)
    assert number.tolist() == [2, 1]
    assert_near(ambiguities(mean), sheet.msfkd_l1)
    assert unambiguous(mean, 1.0).tolist() == [True, False]
    distance = (mean - one_hot(mean.argmax(dim=1), 3)).abs().sum(dim=1)
    assert_near(ambiguities(mean), distance.tolist())


def test_a_sample_on_the_threshold_is_answered_by_entropy_and_not_by_density():
    own = float64([0.1, 0.2, 0.3, 0.4, 0.8])
    assert within_quantile(own, float64([0.4]), 0.75)[0].tolist() == [True]
    assert above_quantile(own, float64([0.2, 0.2000001]), 0.25)[0].tolist() == [False, True]


def test_entropies_are_those_of_the_definition():
    p = softmax(Z[0], dim=1)
    assert_near(entropies(p), (-(p * log_softmax(Z[0], dim=1)).sum(dim=1)).tolist())
    assert_near(entropies(float64([[1.0, 0.0, 0.0], [1 / 3] * 3])), [0.0, math.log(3)])


@given(order=st.permutations(range(3)))
def test_the_order_of_clients_changes_no_aggregate(order):
    mask = torch.tensor(sheet.msfkd_mask, dtype=torch.bool)
    assert_near(consensus(Z[order]), consensus(Z).tolist(), 1e-12)
    assert_near(
        selected_mean(softmax(Z, dim=2)[order], mask[order])[0],
        selected_mean(softmax(Z, dim=2), mask)[0].tolist(),
        1e-12,
    )


def test_answers_that_were_not_given_are_not_read():
    said = softmax(Z, dim=2)
    mask = torch.tensor(sheet.msfkd_mask, dtype=torch.bool)
    assert_near(selected_mean(said.masked_fill(~mask.unsqueeze(2), torch.nan), mask)[0], sheet.msfkd_ensemble)
    nobody, number = selected_mean(said, torch.zeros(3, 2, dtype=torch.bool))
    assert bool(nobody.isnan().all())
    assert number.tolist() == [0, 0]
    assert unambiguous(nobody, 2.0).tolist() == [False, False]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: consensus(torch.zeros(0, 2, 3)), "N >= 1"),
        (lambda: consensus(torch.zeros(2, 3)), "shape"),
        (lambda: consensus(Z, [1.0, -1.0, 1.0]), "weights"),
        (lambda: consensus(Z, [1.0]), "weights"),
        (lambda: consensus(Z, [0.0, 0.0, 0.0]), "weights"),
        (lambda: ensemble_probabilities(Z, 0.0), "temperature"),
        (lambda: entropies(torch.zeros(3)), "entropies need"),
        (lambda: within_quantile(torch.zeros(0), torch.zeros(1), 0.5), "at least one own value"),
        (lambda: above_quantile(torch.zeros(1), torch.zeros(1), 1.5), "share in 0..1"),
        (lambda: selected_mean(Z, torch.ones(2, 2, dtype=torch.bool)), "do not fit"),
        (lambda: ambiguities(torch.zeros(3)), "shape"),
    ],
)
def test_what_does_not_fit_is_refused(call, text):
    with pytest.raises(InvalidInput, match=text):
        call()
