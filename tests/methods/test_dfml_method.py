"""DFML through its own verbs and through runs: the worked numbers of its sheet (section 7), identity 3, its edges."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from small_federation import C, clients_for, made, states
from table_students import FLOAT32, float64, state, student
from torch.nn.functional import cross_entropy

import motley
from motley.draws import Draws
from motley.engine.runs import Watch
from motley.errors import InvalidConfig, RunFailed
from motley.functional.mutual import cyclic_balance, mutual_divergences, mutual_shares
from motley.methods.dfml import DFML, DFMLOptions
from motley.methods.dfml_group import MutualGroup
from motley.methods.distillation import Model

Z = [[[2.0, 0.0, -1.0], [0.0, 1.0, 0.0]], [[0.0, 3.0, 0.0], [1.0, 1.0, -2.0]], [[1.0, 0.0, 4.0], [2.0, -2.0, 0.0]]]
KL_EQUAL = [1.466004597874, 1.501019917022, 2.312740799399]
WSM_Z, WSM_Y = [[2.0, 1.0, 0.0], [0.0, 1.0, 3.0]], [0, 2]
WSM = 0.087757681308  # proportions 1/2, 0, 1/2
ALPHA = [0.0, 0.095491502813, 0.345491502813, 0.654508497187, 0.904508497187, 1.0]
ALPHA = ALPHA + ALPHA[-2::-1]
SPLIT = {"test_fraction": 0.4, "validation_fraction": 0.3}


def method(**options) -> DFML:
    return DFML(DFMLOptions(**({"start_epochs": 0} | options)))


def turn(tiny, labels, *, round: int, options=None, rows=Z, **training):
    """Let client 0 aggregate tables with these logits, of equal size; return the turn's answers by owner."""
    client = student(tiny, rows[0], labels, **training)
    inbox = {peer: Model(state(rows[peer])) for peer in range(1, len(rows))}
    back = method(**(options or {})).aggregate(client, inbox, round, tiny.draws)
    return client, back


def terms(returned) -> dict[str, float]:
    return returned.journal["train"]["terms"]


def test_the_mutual_terms_are_those_of_the_sheet(tiny):
    client, back = turn(tiny, [0, 2], round=5)  # alpha = 1
    for owner, expected in enumerate(KL_EQUAL):
        assert terms(back[owner])["distillation"] == pytest.approx(expected, abs=FLOAT32)
        assert terms(back[owner])["cross_entropy"] == 0.0
        assert back[owner].journal["alpha"] == 1.0
        assert back[owner].journal["aggregator"] == client.id


def test_an_aggregator_alone_minimises_the_weighted_softmax_of_the_sheet(tiny):
    for round in (5, 10):  # alpha 1 and 0
        _, back = turn(tiny, WSM_Y, round=round, rows=[WSM_Z])
        assert terms(back[0]) == pytest.approx({"cross_entropy": WSM}, abs=FLOAT32)


@pytest.mark.parametrize("round", range(1, 11))
def test_alpha_of_a_round_is_that_of_the_cycle(tiny, round):
    _, back = turn(tiny, [0, 2], round=round)
    assert back[1].journal["alpha"] == pytest.approx(ALPHA[round], abs=1e-9)


@pytest.mark.parametrize("round", [3, 5])
def test_every_model_moves_by_the_gradient_of_its_own_loss(tiny, round):
    # Tables at rate 1: the step is the gradient. By hand, in float64, with all teachers held fast.
    client, back = turn(tiny, [0, 2], round=round)
    z = float64(Z).requires_grad_()
    alpha = ALPHA[round]
    labels, prior = torch.tensor([0, 2]), torch.tensor([math.log(0.5), -math.inf, math.log(0.5)])
    taught = torch.softmax(z.detach(), dim=2)
    for i in range(3):
        wsm = cross_entropy(z[i] + prior, labels)
        kl = sum(
            0.5 * (taught[m] * (taught[m].log() - torch.log_softmax(z[i], dim=1))).sum(dim=1).mean()
            for m in range(3)
            if m != i
        )
        (gradient,) = torch.autograd.grad((1 - alpha) * wsm + alpha * kl, z)
        now = client.model.state_dict() if i == 0 else back[i].message.weights
        (rows,) = now.values()
        torch.testing.assert_close(rows.double(), (z - gradient)[i].detach(), rtol=0, atol=FLOAT32)


def test_larger_models_teach_more(tiny):
    clients = clients_for(tiny, "dfml")
    received = {one.id: one.task.template(one.id) for one in clients[1:]}
    group = MutualGroup(clients[0], received, 0.5)
    sizes = [sum(p.numel() for p in model.parameters()) for model in (clients[0].model, *received.values())]
    assert len(set(sizes)) == 2
    logits = torch.randn(3, 4, C, generator=torch.Generator().manual_seed(0))
    y = clients[0].shard.train.y[:4]
    found = group._terms(logits, [0, 1, 2], y)
    expected = 0.5 * mutual_divergences(logits, mutual_shares(sizes))
    for value, owner in zip(expected, found.values(), strict=True):
        assert owner["distillation"] == value


def test_identity_3_without_alpha_and_with_even_classes_all_models_learn_from_labels_alone(tiny):
    even = [[0, 1, 2, 0, 1, 2], [1, 2, 2, 2, 1, 2], [2, 0, 0, 0]]
    clients = clients_for(tiny, "dfml", labels=even)
    plain = clients_for(tiny, "dfml", labels=even)
    inbox = {one.id: Model(dict(one.model.state_dict())) for one in clients[1:]}
    back = method(alpha_max=0.0).aggregate(clients[0], inbox, 3, tiny.draws)
    # Each model on the aggregator's samples, with the plain cross-entropy, in the order of the turn. The two networks
    # without dropout are compared; a third draws from the generator of the turn.
    order = Draws(tiny.draws.address("mutual", round=3, client=0)).generator("shuffle", round=3, client=0)
    index = torch.randperm(6, generator=order)
    for number in (0, 2):
        model = plain[number].model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for part in (index[:4], index[4:]):
            optimizer.zero_grad()
            cross_entropy(model(plain[0].shard.train.x[part].float()), plain[0].shard.train.y[part]).backward()
            optimizer.step()
        now = clients[0].model.state_dict() if number == 0 else back[number].message.weights
        for name, tensor in model.state_dict().items():
            torch.testing.assert_close(now[name], tensor, rtol=1e-5, atol=1e-6)
        assert "distillation" not in terms(back[number])


@given(seed=st.integers(0, 2**31), each=st.integers(1, 3), number=st.integers(1, 4), round=st.integers(1, 10))
@settings(max_examples=40)
def test_identity_3_every_model_moves_by_the_gradient_of_the_plain_cross_entropy(tiny, seed, each, number, round):
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(C).repeat(each)[torch.randperm(C * each, generator=draw)]
    z = (3 * torch.randn(number, C * each, C, generator=draw)).double()
    client, back = turn(tiny, labels.tolist(), round=round, options={"alpha_max": 0.0}, rows=z.tolist())
    for owner in range(number):
        own = z[owner].clone().requires_grad_()
        loss = cross_entropy(own, labels)
        (gradient,) = torch.autograd.grad(loss, own)
        (rows,) = (client.model.state_dict() if owner == 0 else back[owner].message.weights).values()
        torch.testing.assert_close(rows.double(), (own - gradient).detach(), rtol=0, atol=FLOAT32)
        assert terms(back[owner]) == {"cross_entropy": pytest.approx(loss.item(), abs=FLOAT32)}


def test_one_class_teaches_no_labels_but_the_models_teach_each_other(tiny):
    client, back = turn(tiny, [1, 1], round=3)
    assert terms(back[0])["cross_entropy"] == 0.0
    assert terms(back[0])["distillation"] > 0
    assert not torch.equal(client.model.backbone.module.rows.detach(), torch.tensor(Z[0]))


def test_a_model_that_is_not_finite_leaves_the_others_as_they_are_without_it(tiny):
    broken = [[[math.nan] * 3] * 2 if owner == 1 else rows for owner, rows in enumerate(Z)]
    client, back = turn(tiny, [0, 2], round=3, rows=broken)
    assert back[1].message is None
    assert back[1].missing == "the loss term 'cross_entropy' is not finite"
    without, others = turn(tiny, [0, 2], round=3, rows=[Z[0], Z[2]])
    assert torch.equal(client.model.backbone.module.rows, without.model.backbone.module.rows)
    for name, tensor in others[1].message.weights.items():
        assert torch.equal(back[2].message.weights[name], tensor)


def test_an_aggregator_that_is_not_finite_trains_the_others(tiny):
    _, back = turn(tiny, [0, 2], round=3, rows=[[[math.inf] * 3] * 2, Z[1], Z[2]])
    assert back[0].missing == "the loss term 'cross_entropy' is not finite"
    assert terms(back[1])["distillation"] > 0
    assert back[2].message is not None


def test_if_no_model_is_finite_all_are_left_out(tiny):
    _, back = turn(tiny, [0, 2], round=3, rows=[[[math.nan] * 3] * 2] * 3)
    assert all(one.missing and one.message is None for one in back.values())


def test_every_model_is_clipped_for_itself(tiny):
    free, loose = turn(tiny, [0, 2], round=3), turn(tiny, [0, 2], round=3, clip_norm=100.0)
    (now,), (other,) = free[1][2].message.weights.values(), loose[1][2].message.weights.values()
    assert torch.equal(now, other)
    _, back = turn(tiny, [0, 2], round=3, clip_norm=0.01)
    for owner in (1, 2):
        (rows,) = back[owner].message.weights.values()
        assert float((rows - torch.tensor(Z[owner])).norm()) == pytest.approx(0.01, rel=1e-3)


def test_what_was_sent_stays_as_it_was(tiny):
    sent = {peer: Model(state(Z[peer])) for peer in (1, 2)}
    client = student(tiny, Z[0], [0, 2])
    method().aggregate(client, sent, 3, tiny.draws)
    for peer, message in sent.items():
        (rows,) = message.weights.values()
        assert torch.equal(rows, torch.tensor(Z[peer]))


def test_the_plan_draws_aggregators_and_their_senders_by_address(tiny):
    everybody = list(range(12))
    (only,) = method().plan(everybody, 1, tiny.draws)
    assert len(only.senders) == 9
    assert list(only.senders) == sorted(set(only.senders))
    assert only.aggregator not in only.senders
    turns = method(aggregators="all", senders=3).plan(everybody, 1, tiny.draws)
    assert sorted(one.aggregator for one in turns) == everybody
    assert turns[0].aggregator == only.aggregator
    assert len({one.senders for one in turns}) > 1
    assert turns != method(aggregators="all", senders=3).plan(everybody, 2, tiny.draws)
    assert turns == method(aggregators=40, senders=3).plan(everybody, 1, tiny.draws)
    (alone,) = method().plan([7], 1, tiny.draws)
    assert (alone.aggregator, alone.senders) == (7, ())


def test_a_client_learns_alone_when_it_first_takes_part(tiny):
    clients, plain = clients_for(tiny, "dfml"), clients_for(tiny, "local")
    starting = method(start_epochs=2)
    local = made("local")
    first = starting.snapshot(clients[1], 4, tiny.draws)
    alone = plain[1]
    alone.training = type(alone.training)(lr=0.1, batch_size=4, local_epochs=2)
    local.client_round(alone, local.broadcast(local.start(alone.task, tiny.draws), 1), 4, tiny.draws)
    for name, tensor in alone.model.state_dict().items():
        assert torch.equal(first.weights[name], tensor)
    second = starting.snapshot(clients[1], 5, tiny.draws)
    assert all(torch.equal(tensor, second.weights[name]) for name, tensor in first.weights.items())
    before = states(clients[:1])
    method().snapshot(clients[0], 1, tiny.draws)
    assert all(torch.equal(tensor, before[name]) for name, tensor in states(clients[:1]).items())


@pytest.mark.parametrize(
    ("period", "peaks"), [(10, {5, 15}), (4, {2, 6, 10, 14}), (7, {3, 10, 17}), (2, {1, 3, 5, 7, 9, 11, 13, 15, 17})]
)
def test_the_peak_model_is_that_of_the_rounds_in_which_alpha_is_highest(tiny, period, peaks):
    dfml = method(period=period)
    highest = max(cyclic_balance(t, period=period) for t in range(period))
    for round in range(18):
        client = student(tiny, Z[0], [0, 2])
        dfml.receive(client, Model(state(Z[1])), round)
        kept = [name for name in client.memory if name.startswith("peak/")]
        assert bool(kept) is (round in peaks)
        if kept:
            assert cyclic_balance(round, period=period) == pytest.approx(highest)
            assert torch.equal(client.memory[kept[0]], torch.tensor(Z[1]))


def test_current_and_peak_model_stand_beside_each_other(tiny):
    client = student(tiny, Z[0], [0, 2])
    x = client.shard.train.x
    by_current, by_peak = method(), method(evaluate="peak")
    for dfml, other in ((by_current, "peak"), (by_peak, "current")):  # before the first peak it is the current model
        assert torch.equal(dfml.predict(client, x), torch.tensor(Z[0]))
        assert torch.equal(dfml.other_predictions(client, x)[other], torch.tensor(Z[0]))
    by_current.receive(client, Model(state(Z[1])), 5)
    by_current.receive(client, Model(state(Z[2])), 6)
    now, best = torch.tensor(Z[2]), torch.tensor(Z[1])
    assert torch.equal(by_current.predict(client, x), now)
    assert torch.equal(by_current.other_predictions(client, x)["peak"], best)
    assert torch.equal(by_peak.predict(client, x), best)
    assert torch.equal(by_peak.other_predictions(client, x)["current"], now)
    assert torch.equal(client.model.backbone.module.rows.detach(), now)


def test_a_run_evaluates_both_and_the_option_chooses_the_headline(tiny, tmp_path):
    usual = {"rounds": 4, "period": 4, "aggregators": "all", **SPLIT}
    current = tiny.play("dfml", tmp_path / "current", **usual)
    peak = tiny.play("dfml", tmp_path / "peak", evaluate="peak", **usual)
    swapped = {"test_local": "test_local:peak", "test_local:current": "test_local"}
    for one, other in zip(current.rows, peak.rows, strict=True):
        if one["kind"] == "client":
            assert one["scores"]["test_local"] == other["scores"]["test_local:current"]
            assert other["scores"]["test_local"] == one["scores"][swapped["test_local"]]
    last = [row["scores"] for row in current.rows if row["kind"] == "client" and row["round"] == 4]
    assert any(one["test_local"]["loss"] != one["test_local:peak"]["loss"] for one in last)


def test_models_are_counted_to_the_aggregator_and_back(tiny, tmp_path):
    record = tiny.play("dfml", tmp_path / "run", rounds=1, **SPLIT)
    rows = {row["client"]: row for row in record.rows if row["kind"] == "client" and row["round"] == 1}
    at = rows[0]["method"]["aggregator"]
    senders = [row["traffic"] for client, row in rows.items() if client != at]
    assert len(senders) == 3
    for traffic in senders:
        assert traffic["up_scalars"] == traffic["down_scalars"] > 0
    total = sum(traffic["up_scalars"] for traffic in senders)
    assert (rows[at]["traffic"]["up_scalars"], rows[at]["traffic"]["down_scalars"]) == (total, total)


def test_the_row_of_a_client_adds_up_its_turns(tiny, tmp_path):
    record = tiny.play("dfml", tmp_path / "run", rounds=2, aggregators="all", **SPLIT)
    samples = dict(enumerate(part["train"] for part in record.summary["samples"]))
    for row in record.rows:
        if row["kind"] == "client" and row["round"]:
            own = samples[row["client"]] if row["round"] == 1 else 0  # the start
            assert row["train"]["samples"] == sum(samples.values()) + own


def test_who_is_neither_aggregator_nor_sender_does_not_take_part(tiny, tmp_path):
    record = tiny.play("dfml", tmp_path / "run", rounds=3, senders=1, **SPLIT)
    for row in record.rows:
        if row["kind"] == "round" and row["round"]:
            assert len(row["participants"]) == 2
        if row["kind"] == "client" and not row["active"]:
            assert not row["train"]


def test_a_sender_that_an_aggregator_loses_keeps_its_model_and_is_named(tiny, tmp_path, monkeypatch):
    aggregate = DFML.aggregate

    def loses_2(self, client, inbox, round, draws):
        back = aggregate(self, client, inbox, round, draws)
        if round == 2 and 2 in inbox:
            (name, tensor), *_ = back[2].message.weights.items()
            back[2].message.weights[name] = torch.full_like(tensor, math.nan)
        return back

    monkeypatch.setattr(DFML, "aggregate", loses_2)
    held: dict = {}

    def keep(row) -> None:
        held[row.round] = states(held["clients"])

    watch = Watch(began=lambda _, federation, __: held.update(clients=federation.clients), finished_round=keep)
    record = tiny.play("dfml", tmp_path / "run", rounds=2, watch=watch, **SPLIT)
    (missing,) = record.summary["missing"]
    assert (missing["round"], missing["client"]) == (2, 2)
    assert "to peer 2 sent Model whose entry" in missing["reason"]
    for name, tensor in held[2].items():
        if name.startswith("2/"):
            assert torch.equal(tensor, held[1][name])


def test_a_lowest_alpha_above_the_highest_is_refused():
    with pytest.raises(InvalidConfig, match=r"dfml.alpha_min is 0.9, above dfml.alpha_max = 0.5; exchange the two"):
        DFMLOptions(alpha_min=0.9, alpha_max=0.5)


def test_a_turn_that_breaks_off_leaves_the_last_finished_round_behind(tiny, tmp_path, monkeypatch):
    whole = tiny.play("dfml", tmp_path / "whole", rounds=4, aggregators="all", **SPLIT)
    receive, calls = DFML.receive, []

    def stopped(self, client, message, round):
        receive(self, client, message, round)
        calls.append(round)
        if calls.count(3) == 5:  # in the middle of the second turn of round 3
            raise OSError("the network is down")

    monkeypatch.setattr(DFML, "receive", stopped)
    with pytest.raises(RunFailed, match="the network is down; 2 finished rounds"):
        tiny.play("dfml", tmp_path / "broken", rounds=4, aggregators="all", checkpoint_every=10, **SPLIT)
    monkeypatch.setattr(DFML, "receive", receive)
    resumed = motley.resume(tmp_path / "broken", data=tiny.dataset(), models=tiny.models_for("dfml"))
    assert tiny.rows(resumed) == tiny.rows(whole)
    tiny.assert_same_tensors(tiny.weights(resumed), tiny.weights(whole))
