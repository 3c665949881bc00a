import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motley.errors import InvalidInput
from motley.functional.contrastive import adaptive_margin, class_gaps, contrastive_loss

from . import server_numbers as sheet
from .closeness import assert_near, float64

LABELS = torch.tensor(sheet.tgp_labels)


def loss(tau: float, centres=sheet.tgp_centres, **more):
    made = float64(sheet.tgp_hat).requires_grad_()
    found = contrastive_loss(float64(sheet.tgp_protos), LABELS, made, adaptive_margin(float64(centres), tau, **more))
    found.backward()
    return found.detach(), made.grad


def test_fedtgp_centres_gaps_and_margins():
    centres = float64(sheet.tgp_centres)
    means = torch.stack([float64(sheet.tgp_protos)[label == LABELS].mean(dim=0) for label in range(3)])
    assert_near(means, sheet.tgp_centres)
    assert_near(class_gaps(centres), sheet.tgp_gap)
    assert_near(adaptive_margin(centres, 100.0), sheet.tgp_max_gap)
    assert_near(adaptive_margin(centres, 100.0, "pair"), sheet.tgp_max_pair)
    assert adaptive_margin(centres, 1.0) == adaptive_margin(centres, 1.0, "pair") == 1.0


def test_fedtgp_loss_and_gradient():
    found, gradient = loss(100.0)
    assert_near(found, sheet.tgp_loss_tau100)
    assert_near(gradient, sheet.tgp_grad_tau100)
    assert_near(loss(1.0)[0], sheet.tgp_loss_tau1)
    assert_near(loss(0.0)[0], sheet.tgp_loss_tau0)


def test_identity_14_the_loss_rises_with_tau_up_to_the_largest_gap():
    values = [loss(tau)[0].item() for tau in (0.0, 0.5, 1.0, 3.0, 6.999, 7.0)]
    assert values == sorted(set(values))
    assert loss(8.0)[0] == loss(7.0)[0]
    plain = -torch.cdist(float64(sheet.tgp_protos), float64(sheet.tgp_hat))
    assert_near(torch.nn.functional.cross_entropy(plain, LABELS), sheet.tgp_loss_tau0)


def test_gaps_leave_out_absent_classes():
    centres = float64(sheet.tgp_centres)
    centres = torch.cat([centres[:1], torch.full((1, 2), torch.nan, dtype=torch.float64), centres[1:]])
    gaps = class_gaps(centres)
    assert bool(gaps[1].isnan())
    assert_near(gaps[[0, 2, 3]], sheet.tgp_gap)
    assert_near(adaptive_margin(centres, 100.0), sheet.tgp_max_gap)


@given(order=st.permutations(range(3)))
def test_identity_15_renaming_classes_permutes_gaps_and_keeps_the_loss(order):
    back = torch.argsort(torch.tensor(order))
    assert_near(class_gaps(float64(sheet.tgp_centres)[list(order)]), [sheet.tgp_gap[c] for c in order])
    found = contrastive_loss(float64(sheet.tgp_protos), back[LABELS], float64(sheet.tgp_hat)[list(order)], 7.0)
    assert_near(found, sheet.tgp_loss_tau100)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_centre_on_a_prototype_gives_no_nan(dtype):
    # The pitfall of public code: squares by expansion go below 0, and their root is NaN.
    p = torch.full((4, 300), 31.7, dtype=dtype)
    g = torch.cat([p[:1], p[:1] + 1e-5]).requires_grad_()
    found = contrastive_loss(p, torch.tensor([0, 1, 0, 1]), g, 0.5)
    found.backward()
    assert found.isfinite()
    assert g.grad.isfinite().all()


def test_one_class_has_no_margin():
    with pytest.raises(InvalidInput, match="not 1"):
        adaptive_margin(float64([[1.0, 2.0], [float("nan")] * 2]), 1.0)
