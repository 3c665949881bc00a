"""A peer with finite weights that says what is not finite (case G7): its students do as if it had sent nothing."""

import math

import pytest
import torch
from functional import crad_numbers as sheet
from proxy_students import proxy_student
from table_students import state, student

from motley.errors import MotleyWarning, NonFiniteLoss
from motley.methods import teachers
from motley.methods.crad_wire import Snapshot
from motley.methods.distillation import Model
from motley.methods.feddf import FedDF, FedDFOptions, Trained
from motley.methods.registry import find_method

MUTE = 3
SAMPLES = [2, 0, 1]  # labels of the student's three samples


def rows(peer: int) -> list[list[float]]:
    """Return what a peer says of three samples."""
    return [*sheet.z[peer - 1], [float(peer), 0.0, 1.0]]


def inbox(name: str) -> dict:
    models = {peer: state(rows(peer)) for peer in (1, 2, 3, 4)}
    if name != "crad":
        return {peer: Model(weights) for peer, weights in models.items()}
    counts = torch.tensor([5, 5, 5], dtype=torch.int32)
    return {peer: Snapshot(weights, counts, torch.tensor([0.5, 0.75, 1.0])) for peer, weights in models.items()}


def learn(tiny, name, messages, *, options=None, round=2, **training):
    client = student(tiny, rows(1), SAMPLES, batch_size=2, lr=0.3, **training)
    entry = find_method(name)
    method = entry.method(entry.options(**(options or {})))
    method.start(client, tiny.draws)
    method.peer_round(client, messages, round, tiny.draws)
    return client


def mute(messages, *peers):
    """Let peers say what is not finite of the student's last sample; their weights pass no check, which is not asked."""
    for peer in peers:
        messages[peer].weights["backbone.module.rows"][2, 1] = math.inf
    return messages


@pytest.mark.parametrize("training", [{}, {"local_epochs": 3, "keep_optimizer": True, "momentum": 0.9}], ids=str)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("uniform-kd", {}),
        ("uncertainty-kd", {}),
        ("fedmkd", {}),
        ("crad", {}),
        ("crad", {"agreement_filter": "tempered"}),
        ("crad", {"audit": True}),
    ],
)
def test_the_round_has_the_bits_of_one_in_which_that_peer_sent_nothing(tiny, name, options, training):
    with pytest.warns(MotleyWarning, match=f"peer {MUTE} answers with numbers that are not finite"):
        found = learn(tiny, name, mute(inbox(name), MUTE), options=options, **training)
    without = {peer: message for peer, message in inbox(name).items() if peer != MUTE}
    expected = learn(tiny, name, without, options=options, **training)
    assert found.journal.pop("not_finite") == [MUTE]
    assert found.journal == expected.journal
    tiny.assert_same_tensors(dict(found.model.state_dict()), dict(expected.model.state_dict()))
    tiny.assert_same_tensors(found.memory, expected.memory)


@pytest.mark.parametrize("name", ["uniform-kd", "crad"])
def test_a_student_of_such_peers_alone_trains_on_its_labels(tiny, name):
    with pytest.warns(MotleyWarning):
        found = learn(tiny, name, mute(inbox(name), 1, 2, 3, 4))
    assert found.journal["not_finite"] == [1, 2, 3, 4]
    assert list(found.journal["train"]["terms"]) == ["cross_entropy"]
    tiny.assert_same_tensors(dict(found.model.state_dict()), dict(learn(tiny, name, {}).model.state_dict()))


def test_a_peer_that_falls_silent_in_a_later_epoch_takes_back_what_it_taught(tiny, monkeypatch):
    asked = []
    plain = teachers.teacher_logits

    def fails_in_epoch_2(task, peer, weights, x, *, batch_size):
        asked.append(peer)
        said = plain(task, peer, weights, x, batch_size=batch_size)
        return said * math.nan if peer == MUTE and asked.count(MUTE) == 2 else said

    monkeypatch.setattr(teachers, "teacher_logits", fails_in_epoch_2)
    with pytest.warns(MotleyWarning):
        found = learn(tiny, "crad", inbox("crad"), local_epochs=2)
    monkeypatch.undo()
    without = {peer: message for peer, message in inbox("crad").items() if peer != MUTE}
    expected = learn(tiny, "crad", without, local_epochs=2)
    tiny.assert_same_tensors(dict(found.model.state_dict()), dict(expected.model.state_dict()))


def test_a_student_whose_own_memory_is_not_finite_is_left_out_as_before(tiny):
    client = student(tiny, [[math.inf, 0.0, 0.0]] * 3, SAMPLES)
    entry = find_method("fedmkd")
    with pytest.raises(NonFiniteLoss, match="the loss term 'distillation' is not finite"):
        entry.method(entry.options()).peer_round(client, inbox("fedmkd"), 1, tiny.draws)


def test_nobody_is_asked_in_the_warm_up(tiny):
    found = learn(tiny, "crad", mute(inbox("crad"), MUTE), options={"warmup_rounds": 2})
    assert "not_finite" not in found.journal


def test_feddf_distils_from_the_others(tiny):
    def distilled(messages):
        client = proxy_student(tiny, [[2.0, 0.0, -1.0], [0.0, 1.0, 0.0]])
        FedDF(FedDFOptions(distill_steps=3)).peer_round(client, messages, 2, tiny.draws)
        return client

    def sent(*peers):
        return {peer: Trained(state(rows(peer)), torch.tensor(1, dtype=torch.int32)) for peer in peers}

    spoilt = sent(1, 2)
    spoilt[1].weights["backbone.module.rows"][0, 1] = math.nan
    with pytest.warns(MotleyWarning, match="peer 1 answers"):
        found = distilled(spoilt)
    assert found.journal["not_finite"] == [1]
    tiny.assert_same_tensors(dict(found.model.state_dict()), dict(distilled(sent(2)).model.state_dict()))
