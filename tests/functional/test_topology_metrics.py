"""V9 and P14 of FedTopo's sheet, and the controls of its section 7."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motley.errors import InvalidInput
from motley.functional.topology import aggregate, pair_mask, relations, reliability, sum_relations
from motley.functional.topology_controls import constant_relations, pair_order, shuffled_relations
from motley.functional.topology_metrics import (
    global_prototypes,
    others_prototypes,
    others_relations,
    paired_means,
    prototype_discrepancy,
    relation_discrepancy,
    similarity,
)

from . import fedtopo_numbers as sheet
from .closeness import assert_near, float64

SEEDS = st.integers(0, 2**31)
COUNTS = torch.tensor([sheet.N1, sheet.N2, sheet.N3])
PROTOTYPES = float64([sheet.P1, sheet.P2, sheet.P3])
RELATIONS = float64([sheet.R1, sheet.R2, sheet.R3])


def assert_clients(found, expected):
    for client, value in expected.items():
        if value is None:
            assert found[client - 1] is None
        else:
            assert_near(found[client - 1], value)


def test_v9_prototypes():
    whole = global_prototypes(PROTOTYPES, COUNTS)
    assert_near(whole, sheet.P_GLOBAL)
    found = prototype_discrepancy(PROTOTYPES, whole)
    assert_clients(found.per_client, sheet.D_P)
    assert_near(found.per_class, [*sheet.D_P_PER_CLASS.values(), math.nan])


def test_v9_relations():
    found = relation_discrepancy(RELATIONS, float64(sheet.RT), float64(sheet.S_ALL))
    assert_clients(found.plain, sheet.D_R)
    assert_clients(found.scaled, sheet.D_RS)
    assert_clients(found.normalised, sheet.D_RS_NORM)
    # By hand: pair (0, 1) is held by clients 1 and 2.
    rt = sheet.RT[0][1]
    assert_near(found.per_pair[0, 1], (abs(sheet.R1[0][1] - rt) + abs(sheet.R2[0][1] - rt)) / 2)
    assert found.per_pair[0, 3].isnan()
    assert found.per_pair.diagonal().isnan().all()


def test_v9_means_leave_clients_without_pairs_out():
    found = relation_discrepancy(RELATIONS, float64(sheet.RT), float64(sheet.S_ALL))
    prototypes = prototype_discrepancy(PROTOTYPES, global_prototypes(PROTOTYPES, COUNTS))
    means = paired_means(prototypes.per_client, found.plain, found.scaled)
    assert_near(list(means.means), sheet.MEANS_WITH_PAIRS)
    assert means.left_out == 1


def test_a_mean_over_nobody_is_none():
    assert paired_means([None, None], [1.0, 2.0]).means == (None, None)
    assert paired_means([None, None], [1.0, 2.0]).left_out == 2
    with pytest.raises(InvalidInput, match="length"):
        paired_means([1.0], [1.0, 2.0])


def test_uniform_global_prototypes():
    # Class 0: clients 1 and 2, (4, 1, 0.5) and (2, 1, 0).
    assert_near(global_prototypes(PROTOTYPES, COUNTS, weighting="uniform")[0], [3.0, 1.0, 0.25])


@given(seed=SEEDS)
def test_p14_the_metrics_keep_their_bounds(seed):
    draw = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 9, (5, 6), generator=draw) * (torch.rand(5, 6, generator=draw) < 0.5)
    prototypes = torch.rand(5, 6, 4, dtype=torch.float64, generator=draw).masked_fill(
        (counts == 0).unsqueeze(2), torch.nan
    )
    own = torch.stack([relations(p, n) for p, n in zip(prototypes, counts, strict=True)])
    sums = sum_relations(dict(enumerate(zip(own, counts, strict=True))), 6)
    found = relation_discrepancy(own, aggregate(sums), reliability(sums.support))
    for client, number in enumerate((counts > 0).sum(dim=1).tolist()):
        assert (found.plain[client] is None) == (number < 2)
        assert (found.scaled[client] is None) == (number < 2)
        if number > 1:
            assert 0 <= found.scaled[client] <= found.plain[client] <= 1
            assert 0 <= found.normalised[client] <= 1


@given(seed=SEEDS)
def test_p14_identical_clients_do_not_differ(seed):
    draw = torch.Generator().manual_seed(seed)
    prototypes = torch.rand(6, 4, dtype=torch.float64, generator=draw).expand(3, 6, 4)
    counts = torch.randint(1, 9, (3, 6), generator=draw)
    own = torch.stack([relations(p, n) for p, n in zip(prototypes, counts, strict=True)])
    sums = sum_relations(dict(enumerate(zip(own, counts, strict=True))), 6)
    distances = prototype_discrepancy(prototypes, global_prototypes(prototypes, counts)).per_client
    assert max(distances) <= 1e-12
    assert max(relation_discrepancy(own, aggregate(sums), reliability(sums.support)).plain) <= 3e-8


def test_the_others_are_everybody_but_the_client():
    without = others_prototypes(PROTOTYPES, COUNTS)
    for client in range(3):
        rest = [k for k in range(3) if k != client]
        expected = global_prototypes(PROTOTYPES[rest], COUNTS[rest])
        assert_near(without[client], expected.tolist())
        sums = sum_relations({k: (RELATIONS[k], COUNTS[k]) for k in rest}, 4)
        mask = torch.stack([pair_mask(COUNTS[k]) for k in rest]).any(dim=0)
        found = others_relations(RELATIONS, COUNTS)[client]
        assert torch.equal(found.isnan(), ~mask)
        assert_near(found[mask], aggregate(sums)[mask].tolist(), 1e-8)


def test_without_its_own_part_a_client_has_only_shared_pairs():
    reference = others_relations(RELATIONS, COUNTS)
    found = relation_discrepancy(RELATIONS, reference, float64(sheet.S_ALL))
    # Clients 1 and 2 share pair (0, 1) alone; the distance is R1 - R2 for both.
    gap = sheet.R2[0][1] - sheet.R1[0][1]
    assert_near(found.plain[0], gap, 3e-8)  # epsilon over a weight of 0.75
    assert_near(found.plain[1], gap, 3e-8)
    assert found.plain[2] is None
    # Client 1's D^p: classes 0 and 1 against client 2 alone.
    distances = prototype_discrepancy(PROTOTYPES, others_prototypes(PROTOTYPES, COUNTS))
    expected = [1 - similarity(PROTOTYPES[0, c], PROTOTYPES[1, c]).item() for c in (0, 1)]
    assert_near(distances.per_client[0], sum(expected) / 2)


def test_controls_are_the_same_functions_on_other_inputs():
    everything = torch.ones(4, 4, dtype=torch.bool)
    order = pair_order(4, torch.Generator().manual_seed(1))
    permuted = shuffled_relations(float64(sheet.S_ALL), everything, order)
    found = relation_discrepancy(RELATIONS, float64(sheet.RT), permuted)
    assert found.plain == relation_discrepancy(RELATIONS, float64(sheet.RT), float64(sheet.S_ALL)).plain
    seen = float64(sheet.W) > 0
    constant = constant_relations(float64(sheet.RT), seen)
    mean = (sheet.RT[0][1] + sheet.RT[0][2] + sheet.RT[1][2]) / 3
    found = relation_discrepancy(RELATIONS, constant, permuted)
    assert_near(found.plain[0], abs(sheet.R1[0][1] - mean))


def test_no_reliability_gives_no_normalised_discrepancy():
    found = relation_discrepancy(RELATIONS, float64(sheet.RT), torch.zeros(4, 4))
    assert found.normalised == (None, None, None)
    assert found.scaled[:2] == (0.0, 0.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: global_prototypes(torch.ones(2, 3, 4), torch.ones(2, 2)),
        lambda: others_prototypes(torch.ones(3, 4), torch.ones(3)),
        lambda: others_relations(torch.ones(2, 3, 3), torch.ones(2, 2)),
        lambda: relation_discrepancy(torch.ones(2, 3, 3), torch.ones(2, 2), torch.ones(3, 3)),
    ],
)
def test_shapes_must_fit(call):
    with pytest.raises(InvalidInput):
        call()
