import pytest
import torch

from motley.errors import InvalidInput
from motley.functional.entanglement import entangle

from . import server_numbers as sheet
from .closeness import assert_near, float64


@pytest.mark.parametrize("client", [0, 1])
def test_fedre_weights_mixtures_and_labels(client):
    prototypes = float64(sheet.rows(sheet.re_protos[client]))
    present = ~prototypes.isnan().any(dim=1)
    vector, label = entangle(prototypes, present, float64(sheet.re_u[client]))
    assert_near(label, sheet.re_w[client])
    assert_near(label, sheet.re_y[client])
    assert_near(vector, sheet.re_z[client])


def test_draws_of_absent_classes_are_not_read():
    prototypes = float64(sheet.rows(sheet.re_protos[0]))
    vector, _ = entangle(prototypes, torch.tensor([True, False, True]), float64([0.6, 0.9, 0.2]))
    assert_near(vector, sheet.re_z[0])


def test_one_class_is_not_mixed():
    prototypes = torch.tensor([[0.1, 0.7], [torch.nan, torch.nan]])
    vector, label = entangle(prototypes, torch.tensor([True, False]), torch.tensor([0.3, 0.3]))
    assert torch.equal(vector.float(), prototypes[0])
    assert label.tolist() == [1.0, 0.0]


def test_identity_15_renaming_classes_permutes_the_soft_label():
    prototypes, order = float64(sheet.rows(sheet.re_protos[0])), [2, 0, 1]
    present = ~prototypes.isnan().any(dim=1)
    vector, label = entangle(prototypes[order], present[order], float64(sheet.re_u[0])[order])
    assert_near(label, [sheet.re_w[0][c] for c in order])
    assert_near(vector, sheet.re_z[0])


@pytest.mark.parametrize(
    ("present", "drawn"), [([False, False], [0.5, 0.5]), ([True, False], [0.0, 0.5]), ([True], [0.5, 0.5])]
)
def test_nothing_to_mix_is_refused(present, drawn):
    with pytest.raises(InvalidInput):
        entangle(torch.zeros(2, 3), torch.tensor(present), torch.tensor(drawn))
