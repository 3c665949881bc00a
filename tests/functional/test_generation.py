import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import linear, log_softmax

from motley.errors import InvalidInput
from motley.functional.generation import (
    diversity_penalty,
    holder_shares,
    label_frequencies,
    teaching_by_label,
    teaching_by_logit,
)

# Section 4 of server_methods.md: two heads, four generated features.
COUNTS = [[4, 0, 2], [2, 3, 4]]
W = [[[0.5, -0.5], [0.2, 0.1], [-0.3, 0.4]], [[0.1, 0.6], [-0.2, 0.2], [0.7, -0.1]]]
B = [[0.0, 0.1, 0.2], [-0.1, 0.0, 0.3]]
Z = [[1.0, 0.0], [0.5, -1.0], [2.0, 1.0], [-1.0, 0.5]]
Y = [0, 1, 2, 1]
EPS = [[0.1, 0.9, 0.3], [0.4, 0.2, 0.8], [0.6, 0.5, 0.1], [0.9, 0.7, 0.2]]
ALPHA = [[0.666666666667, 0.0, 0.333333333333], [0.333333333333, 1.0, 0.666666666667]]
BY_LABEL = 1.056556599652
BY_LOGIT = 1.039176055351
DIVERSITY = 0.827131435044
LOSS = 1.883688034696


def float64(rows) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def logits() -> torch.Tensor:
    return torch.stack([linear(float64(Z), float64(w), float64(b)) for w, b in zip(W, B, strict=True)])


def test_shares_of_the_holders_worked_number():
    torch.testing.assert_close(holder_shares(torch.tensor(COUNTS)), float64(ALPHA), rtol=0, atol=1e-11)


def test_teaching_by_label_worked_number_and_plain_loops():
    found = teaching_by_label(logits(), torch.tensor(Y), holder_shares(torch.tensor(COUNTS))).item()
    assert found == pytest.approx(BY_LABEL, abs=1e-11)
    said = log_softmax(logits(), dim=2)
    alpha = [[4 / 6, 0, 2 / 6], [2 / 6, 1, 4 / 6]]
    looped = sum(-alpha[k][y] * said[k, i, y].item() / 4 for k in range(2) for i, y in enumerate(Y))
    assert found == pytest.approx(looped, abs=1e-12)


def test_teaching_by_logit_worked_number():
    found = teaching_by_logit(logits(), torch.tensor(Y), float64([6 / 15, 9 / 15])).item()
    assert found == pytest.approx(BY_LOGIT, abs=1e-11)


def test_diversity_worked_number_and_plain_loops():
    found = diversity_penalty(float64(Z), float64(EPS)).item()
    assert found == pytest.approx(DIVERSITY, abs=1e-11)
    total = 0.0
    for one, noise in zip(Z, EPS, strict=True):
        for other, its_noise in zip(Z, EPS, strict=True):
            e = sum((a - b) ** 2 for a, b in zip(noise, its_noise, strict=True)) / 3
            total += e * sum(abs(a - b) for a, b in zip(one, other, strict=True)) / 2
    assert found == pytest.approx(math.exp(-total / 16), abs=1e-12)


def test_the_loss_of_the_sheet_is_their_sum():
    taught = teaching_by_label(logits(), torch.tensor(Y), holder_shares(torch.tensor(COUNTS)))
    assert (taught + diversity_penalty(float64(Z), float64(EPS))).item() == pytest.approx(LOSS, abs=1e-11)


def test_a_head_teaches_no_class_that_its_client_lacks():
    scores = logits().requires_grad_()
    teaching_by_label(scores, torch.tensor(Y), holder_shares(torch.tensor(COUNTS))).backward()
    assert scores.grad[0, 1].tolist() == scores.grad[0, 3].tolist() == [0, 0, 0]  # label 1, client 0
    assert scores.grad[1].abs().sum(dim=1).min() > 0


def test_labels_follow_all_reports_among_the_classes_that_are_held_now():
    held = torch.tensor([True, False, True, False])
    assert label_frequencies(torch.tensor([6, 3, 2, 0]), held).tolist() == [0.75, 0.0, 0.25, 0.0]
    assert label_frequencies(torch.zeros(4, dtype=torch.int64), held).tolist() == [0.0] * 4
    assert holder_shares(torch.tensor([[0, 2], [0, 6]])).tolist() == [[0.0, 0.25], [0.0, 0.75]]


@given(seed=st.integers(0, 2**31), order=st.permutations(range(3)), factor=st.integers(1, 99), shift=st.floats(-9, 9))
def test_classes_may_be_renamed_counts_scaled_and_logits_shifted(seed, order, factor, shift):
    draw = torch.Generator().manual_seed(seed)
    scores = torch.randn(2, 4, 3, generator=draw, dtype=torch.float64)
    counts, y, renamed = torch.tensor(COUNTS), torch.tensor(Y), torch.tensor(order)
    new_y = renamed.argsort()[y]
    plain = teaching_by_label(scores, y, holder_shares(counts))
    other = teaching_by_label(scores[..., renamed] + shift, new_y, holder_shares(factor * counts[:, renamed]))
    torch.testing.assert_close(other, plain, rtol=0, atol=1e-10)
    weights = float64([0.4, 0.6])
    together = teaching_by_logit(scores, y, weights)
    torch.testing.assert_close(teaching_by_logit(scores[..., renamed] + shift, new_y, weights), together)
    assert teaching_by_label(scores, y, float64([[1.0] * 3, [0.0] * 3])).item() == pytest.approx(
        teaching_by_logit(scores, y, float64([1.0, 0.0])).item(), abs=1e-12
    )


def test_features_that_do_not_follow_the_noise_are_penalised_most():
    assert diversity_penalty(torch.ones(4, 2), torch.rand(4, 3)).item() == 1
    near, far = diversity_penalty(float64(Z), float64(EPS)), diversity_penalty(10 * float64(Z), float64(EPS))
    assert far < near < 1


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: holder_shares(torch.tensor([1, 2])), "counts must be"),
        (lambda: holder_shares(torch.tensor([[-1]])), "counts must be"),
        (lambda: label_frequencies(torch.zeros(2), torch.zeros(3)), "counts and held"),
        (lambda: teaching_by_label(torch.zeros(2, 4, 3), torch.zeros(4), torch.zeros(2, 2)), "teaching needs"),
        (lambda: teaching_by_logit(torch.zeros(2, 4, 3), torch.zeros(3), torch.zeros(2)), "teaching needs"),
        (lambda: diversity_penalty(torch.zeros(2, 4), torch.zeros(3, 4)), "as many rows"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(call, text):
    with pytest.raises(InvalidInput, match=text):
        call()
