import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motley.errors import InvalidInput
from motley.functional.distillation import distillation_loss

from . import crad_numbers as sheet
from .closeness import assert_near, float64


def test_eq9_loss_and_gradient():
    logits = float64(sheet.student).requires_grad_()
    plain = torch.nn.functional.cross_entropy(logits, torch.tensor(sheet.y))
    distilled = distillation_loss(logits, float64(sheet.target), sheet.T)
    assert_near(plain.detach(), sheet.ce)
    assert_near(distilled.detach() / sheet.T**2, sheet.kl)
    loss = (1 - sheet.lam) * plain + sheet.lam * distilled
    loss.backward()
    assert_near(loss.detach(), sheet.loss)
    assert_near(logits.grad, sheet.grad_student)


@pytest.mark.parametrize("rows", [1, 2])
def test_c4_the_divergence_is_summed_over_classes_and_averaged_over_samples(rows):
    target = float64([[0.0, 0.25, 0.75]] * rows)
    found = distillation_loss(torch.zeros(rows, 3, dtype=torch.float64), target, 2.0)
    assert round(found.item(), 6) == 2.145109


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scores", [[1e4, -1e4, 0.0], [-1e4, -1e4, -1e4], [1e4, 1e4, -1e4]])
@pytest.mark.parametrize("target", [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.25, 0.75]])
def test_c4_huge_scores_give_finite_loss_and_gradient(dtype, scores, target):
    logits = torch.tensor([scores], dtype=dtype, requires_grad=True)
    loss = distillation_loss(logits, torch.tensor([target], dtype=dtype), 2.0)
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()
    assert loss.item() >= 0


@given(seed=st.integers(0, 2**31), temperature=st.floats(0.5, 10))
def test_the_gradient_has_the_closed_form(seed, temperature):
    draw = torch.Generator().manual_seed(seed)
    logits = torch.randn(5, 4, dtype=torch.float64, generator=draw).requires_grad_()
    target = torch.softmax(3 * torch.randn(5, 4, dtype=torch.float64, generator=draw), dim=1)
    distillation_loss(logits, target, temperature).backward()
    expected = (torch.softmax(logits.detach() / temperature, dim=1) - target) * temperature / 5
    assert (logits.grad - expected).abs().max() <= 1e-12


def test_a_student_like_the_target_has_no_loss():
    logits = float64([[1.0, -2.0, 0.5]])
    assert abs(distillation_loss(logits, torch.softmax(logits / 3, dim=1), 3.0).item()) <= 1e-12


def test_the_target_carries_no_gradient():
    target = torch.tensor([[0.5, 0.5]], requires_grad=True)
    loss = distillation_loss(torch.zeros(1, 2, requires_grad=True), target, 1.0)
    loss.backward()
    assert target.grad is None


def test_half_precision_is_raised():
    loss = distillation_loss(torch.zeros(1, 2, dtype=torch.float16), torch.tensor([[0.5, 0.5]]), 1.0)
    assert loss.dtype == torch.float32


def test_shapes_and_temperature_are_checked():
    with pytest.raises(InvalidInput, match="shape"):
        distillation_loss(torch.zeros(1, 2), torch.zeros(1, 3), 1.0)
    for temperature in (0.0, -1.0):
        with pytest.raises(InvalidInput, match="temperature"):
            distillation_loss(torch.zeros(1, 2), torch.zeros(1, 2), temperature)
