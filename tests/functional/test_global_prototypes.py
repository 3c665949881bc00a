import pytest
import torch
from torch.nn.functional import cross_entropy

from motley.errors import InvalidInput
from motley.functional.global_prototypes import nearest, prototype_loss

from . import server_numbers as sheet
from .closeness import assert_near, float64

HAVE = torch.tensor([label in sheet.pr_have for label in range(3)])
ALL = torch.tensor([True] * 3)


def test_fedproto_loss_and_gradient():
    z, y = float64(sheet.pr_z).requires_grad_(), torch.tensor(sheet.pr_y)
    mse = prototype_loss(z, y, float64(sheet.pr_uniform).requires_grad_(), HAVE)
    plain = cross_entropy(float64(sheet.pr_logits), y)
    (sheet.pr_lambda * mse).backward()
    assert_near(mse.detach(), sheet.pr_mse)
    assert_near(plain, sheet.pr_ce)
    assert_near(plain + sheet.pr_lambda * mse.detach(), sheet.pr_loss)
    assert_near(z.grad, sheet.pr_grad_z)


def test_the_prototypes_carry_no_gradient():
    g = float64(sheet.pr_uniform).requires_grad_()
    z = float64(sheet.pr_z).requires_grad_()
    prototype_loss(z, torch.tensor(sheet.pr_y), g, HAVE).backward()
    assert g.grad is None


def test_a_missing_prototype_may_hold_anything():
    table = float64(sheet.pr_uniform)
    table[2] = torch.nan
    z = float64(sheet.pr_z).requires_grad_()
    loss = prototype_loss(z, torch.tensor(sheet.pr_y), table, HAVE)
    loss.backward()
    assert_near(loss.detach(), sheet.pr_mse)
    assert_near(z.grad / 1, [[value / sheet.pr_lambda for value in row] for row in sheet.pr_grad_z])


def test_fedproto_nearest():
    scores = nearest(float64(sheet.pr_query), float64(sheet.pr_uniform), ALL)
    assert_near(scores**2, sheet.pr_sqdist)
    assert bool((scores <= 0).all())
    assert scores.argmax(dim=1).tolist() == sheet.pr_pred


def test_classes_without_prototype_are_no_candidates():
    table = float64(sheet.pr_uniform)
    table[2] = torch.nan
    scores = nearest(float64(sheet.pr_query), table, HAVE)
    assert bool((scores[:, 2] == -torch.inf).all())
    assert scores.argmax(dim=1).tolist() == [1, 0]


def test_the_lower_class_wins_a_tie():
    assert nearest(torch.zeros(1, 2), torch.ones(3, 2), ALL).argmax(dim=1).tolist() == [0]


def test_distances_of_long_features_are_exact_enough():
    # By expanding the square, float32 gives 0 or NaN here: the squares are 1e6 times the difference.
    z = torch.full((40, 512), 1000.0)
    g = z[:30].clone()
    g[:, 0] += 0.25
    torch.testing.assert_close(nearest(z, g, torch.ones(30, dtype=torch.bool)), torch.full((40, 30), -0.25))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(InvalidInput, match="one width"):
        nearest(torch.zeros(1, 2), torch.zeros(3, 4), ALL)
    with pytest.raises(InvalidInput, match="one width"):
        prototype_loss(torch.zeros(1, 2), torch.tensor([0]), torch.zeros(3, 4), ALL)
    with pytest.raises(InvalidInput, match="no class has a prototype"):
        nearest(torch.zeros(1, 2), torch.zeros(3, 2), ~ALL)
