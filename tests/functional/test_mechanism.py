"""The mechanism study: V9 of FedTopo's sheet through it, and its controls by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motley.errors import InvalidInput
from motley.functional.mechanism import (
    ALONE,
    CONSTANT,
    NORMALISED,
    OTHERS_CONSTANT,
    OWN_REMOVED,
    PERMUTED,
    UNSMOOTHED,
    observed_pairs,
    study_mechanism,
)
from motley.functional.topology import relations

from . import fedtopo_numbers as sheet
from .closeness import assert_near, float64

COUNTS = torch.tensor([sheet.N1, sheet.N2, sheet.N3])
PROTOTYPES = float64([sheet.P1, sheet.P2, sheet.P3])
RELATIONS = float64([sheet.R1, sheet.R2, sheet.R3])


def study(prototypes=PROTOTYPES, local=RELATIONS, counts=COUNTS, **changes):
    usual = {"relations": None, "reliability": float64(sheet.S_ALL), "draws": 19, "generator": torch.Generator()}
    return study_mechanism(prototypes, local, counts, **(usual | changes))


def control(found, measure, name):
    return next(one for one in found.controls if (one.measure, one.name) == (measure, name))


def test_v9_through_the_study():
    found = study()
    assert_near(found.current, sheet.RT)
    assert_near(found.relations, sheet.RT)
    assert_near(torch.tensor(found.means.means, dtype=torch.float64), sheet.MEANS_WITH_PAIRS)
    assert (found.means.left_out, found.left_out) == (1, (2,))  # the third client has one class
    for client, value in sheet.D_RS_NORM.items():
        if value is not None:
            assert_near(found.pairs.normalised[client - 1], value)


def test_every_control_is_held_against_its_measure_over_the_same_clients():
    found = study()
    plain = sum(value for value in sheet.D_R.values() if value is not None) / 2
    fair = sum(value for value in sheet.D_RS_NORM.values() if value is not None) / 2
    normalised = control(found, "D_r", NORMALISED)
    assert (normalised.value, normalised.own, normalised.clients) == (pytest.approx(fair), pytest.approx(plain), 2)
    # Constant: the three observed relations become their mean m; client 1 has pair (0, 1), client 2 all three.
    one, two, three = sheet.RT[0][1], sheet.RT[0][2], sheet.RT[1][2]
    mean = (one + two + three) / 3
    own = [abs(sheet.R2[a][b] - mean) for a, b in ((0, 1), (0, 2), (1, 2))]
    expected = (abs(sheet.R1[0][1] - mean) + sum(own) / 3) / 2
    constant = control(found, "D_r", CONSTANT)
    assert (constant.value, constant.own) == (pytest.approx(expected, abs=1e-9), pytest.approx(plain, abs=1e-9))
    # Without the own part only the pair (0, 1) has another holder: each client is held against the other one.
    apart = abs(sheet.R1[0][1] - sheet.R2[0][1])
    removed = control(found, "D_r", OWN_REMOVED)
    both = (abs(sheet.R1[0][1] - sheet.RT[0][1]) + abs(sheet.R2[0][1] - sheet.RT[0][1])) / 2
    assert removed.value == pytest.approx(apart, abs=1e-7)
    assert (removed.own, removed.clients) == (pytest.approx(both, abs=1e-9), 2)
    # The others of client 1 are client 2 with three pairs, those of client 2 client 1 with one.
    level = (sheet.R2[0][1] + sheet.R2[0][2] + sheet.R2[1][2]) / 3
    flat = control(found, ALONE, OTHERS_CONSTANT)
    assert flat.value == pytest.approx((abs(sheet.R1[0][1] - level) + apart) / 2, abs=1e-7)
    assert flat.own == removed.value
    assert control(found, "D_p", OWN_REMOVED).clients == 3
    assert not [one for one in found.controls if one.name == UNSMOOTHED]  # there is no server to hold it against


def test_the_relations_of_a_server_are_what_is_measured_against():
    served = float64(sheet.RG1)
    found = study(relations=served)
    assert_near(found.pairs.plain[0], abs(sheet.R1[0][1] - sheet.RG1[0][1]))
    unsmoothed = control(found, "D_r", UNSMOOTHED)
    assert unsmoothed.value == pytest.approx(sum(v for v in sheet.D_R.values() if v is not None) / 2, abs=1e-9)
    assert unsmoothed.own == pytest.approx(found.means.means[1])


def test_a_permutation_of_equal_reliabilities_changes_nothing():
    flat = torch.where(float64(sheet.S_ALL) > 0, 0.5, 0.0)
    permuted = control(study(reliability=flat), "D_rs_norm", PERMUTED)
    assert permuted.value == pytest.approx(permuted.own)
    assert (permuted.low, permuted.high) == (pytest.approx(permuted.own), pytest.approx(permuted.own))
    assert permuted.own == pytest.approx(control(study(reliability=flat), "D_r", NORMALISED).own)


def test_permuted_reliabilities_are_the_permutations_of_the_observed_ones():
    # Client 2 alone, three pairs: the six permutations of S by hand, and nothing else is drawn.
    local, counts = RELATIONS[1:2], COUNTS[1:2]
    terms = [abs(sheet.R2[a][b] - sheet.RG1[a][b]) for a, b in ((0, 1), (0, 2), (1, 2))]
    weights = [sheet.S_ALL[0][1], sheet.S_ALL[0][2], sheet.S_ALL[1][2]]
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    possible = [sum(terms[i] * weights[order[i]] for i in range(3)) / sum(weights) for order in orders]
    found = control(
        study(PROTOTYPES[1:2], local, counts, relations=float64(sheet.RG1), draws=600), "D_rs_norm", PERMUTED
    )
    assert found.value == pytest.approx(sum(possible) / 6, abs=3e-3)
    assert min(possible) - 1e-9 <= found.low <= found.high <= max(possible) + 1e-9
    lower = sum(value <= possible[0] + 1e-12 for value in possible) / 6
    assert found.p == pytest.approx(lower, abs=0.08)


def test_nobody_with_a_pair_gives_none_and_no_error():
    lonely = torch.tensor([[3, 0, 0], [0, 2, 0]])
    points = torch.where((lonely > 0).unsqueeze(2), torch.eye(3, dtype=torch.float64), torch.nan)
    local = torch.stack([relations(points[k], lonely[k]) for k in range(2)])
    found = study(points, local, lonely, reliability=torch.eye(3, dtype=torch.float64))
    assert found.left_out == (0, 1)
    assert found.means.means == (None, None, None)
    assert all(one.value is None for one in found.controls if one.measure != "D_p")
    assert control(found, "D_p", OWN_REMOVED).clients == 0


def test_without_a_common_width_there_is_no_distance_of_prototypes():
    found = study(prototypes=None)
    assert found.prototypes is None
    assert found.means.means == (pytest.approx(sheet.MEANS_WITH_PAIRS[1]), pytest.approx(sheet.MEANS_WITH_PAIRS[2]))
    assert not [one for one in found.controls if one.measure == "D_p"]


@given(seed=st.integers(0, 2**31), clients=st.integers(2, 5))
def test_identical_clients_lie_on_the_global_ones(seed, clients):
    points = torch.rand(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    counts = torch.tensor([5, 3, 2, 7]).expand(clients, 4)
    local = relations(points, counts[0]).expand(clients, 4, 4)
    found = study(points.expand(clients, 4, 6), local, counts, reliability=torch.ones(4, 4, dtype=torch.float64))
    assert found.means.means[0] <= 1e-12
    assert found.means.means[1] <= 3e-8
    assert control(found, "D_r", OWN_REMOVED).value <= 3e-8
    assert control(found, "D_p", OWN_REMOVED).value <= 1e-12


def test_observed_pairs_are_those_that_somebody_holds():
    assert torch.equal(observed_pairs(RELATIONS), float64(sheet.W) > 0)


def test_no_draws_are_refused():
    with pytest.raises(InvalidInput, match="at least 1 draw"):
        study(draws=0)
    assert math.isfinite(control(study(draws=1), "D_rs_norm", PERMUTED).value)
