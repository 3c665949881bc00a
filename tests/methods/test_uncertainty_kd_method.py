"""Uncertainty-KD through its own verbs: the worked numbers of CRAD's sheet, section 4."""

import pytest
import torch
from functional import crad_numbers as sheet
from table_students import FLOAT32, float64, state, student, told_target

from motley.methods.distillation import Model
from motley.methods.registry import find_method
from motley.methods.uncertainty_kd import UncertaintyKD, UncertaintyKDOptions


def learn(tiny, rows=sheet.z, round=1, **options):
    client = student(tiny, sheet.student, sheet.y)
    messages = {peer: Model(state(z)) for peer, z in enumerate(rows, start=1)}
    UncertaintyKD(UncertaintyKDOptions(**options)).peer_round(client, messages, round, tiny.draws)
    return client


def target(client):
    return told_target(client, sheet.student, temperature=sheet.T, loss_weight=sheet.lam)


def test_softmax_of_the_entropies_gives_the_target_of_the_sheet(tiny):
    torch.testing.assert_close(target(learn(tiny)), float64(sheet.uncertainty_target), rtol=0, atol=FLOAT32)


def test_the_form_information_uses_the_other_weights_of_the_sheet(tiny):
    expected = (float64(sheet.w_logC_minus_H)[:, :, None] * float64(sheet.q)).sum(dim=0)
    torch.testing.assert_close(target(learn(tiny, form="information")), expected, rtol=0, atol=FLOAT32)


@pytest.mark.parametrize("form", ["softmax", "information"])
def test_peers_that_say_nothing_weigh_alike(tiny, form):
    found = target(learn(tiny, rows=[[[0.0] * 3] * 2] * 3, form=form))
    torch.testing.assert_close(found, torch.full_like(found, 1 / 3), rtol=0, atol=FLOAT32)


@pytest.mark.parametrize("form", ["softmax", "information"])
def test_the_order_of_the_peers_does_not_matter(tiny, form):
    one, other = learn(tiny, form=form), learn(tiny, rows=sheet.z[::-1], form=form)
    torch.testing.assert_close(one.model.state_dict(), other.model.state_dict(), rtol=0, atol=1e-6)


def test_alone_and_in_the_warm_up_the_loss_is_the_cross_entropy(tiny):
    for client in (learn(tiny, rows=[]), learn(tiny, round=2, warmup_rounds=2)):
        assert client.journal["train"]["terms"] == {"cross_entropy": pytest.approx(sheet.ce, abs=FLOAT32)}
    assert "distillation" in learn(tiny, round=3, warmup_rounds=2).journal["train"]["terms"]


@pytest.mark.parametrize("name", ["uncertainty-kd", "fedmkd"])
def test_lambda_0_is_local_bit_for_bit(tiny, tmp_path, name):
    usual = {"test_fraction": 0.4, "validation_fraction": 0.3, "rounds": 3}
    made = tiny.play(name, tmp_path / "taught", loss_weight=0.0, **usual)
    alone = tiny.play("local", tmp_path / "alone", **usual)
    tiny.assert_same_tensors(tiny.weights(made), tiny.weights(alone))


def test_what_travels_is_a_model():
    assert find_method("uncertainty-kd").sends == {"peers": Model}
