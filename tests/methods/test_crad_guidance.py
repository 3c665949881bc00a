"""CRAD under guidance: FedTopo's equations played by peers for themselves, and the bits of CRAD without it."""

import copy
import shutil
from dataclasses import replace

import pytest
import torch
from small_federation import C, clients_for, made, states

import motley
from motley.engine.runs import Watch
from motley.errors import InvalidConfig, InvalidMessage, MotleyWarning
from motley.functional import topology
from motley.functional.topology_guidance import guidance
from motley.methods.crad import Crad, CradOptions
from motley.methods.crad_guidance import guided, own_part, unpack_part, update_topology
from motley.training.local import Step
from motley.training.statistics import local_prototypes

SPLIT = {"test_fraction": 0.4, "validation_fraction": 0.3}
GUIDED = {"guidance_weight": 0.5}


def play(tiny, method, rounds, active=(0, 1, 2)):
    """Return clients after rounds of a method among peers, and what they sent in each of these rounds."""
    clients = clients_for(tiny, "crad")
    for client in clients:
        method.start(client, tiny.draws)
    sent = []
    for round in range(1, rounds + 1):
        sent.append({peer: method.snapshot(clients[peer], round) for peer in active})
        for peer in active:
            inbox = {other: message for other, message in sent[-1].items() if other != peer}
            method.peer_round(clients[peer], inbox, round, tiny.draws)
    return clients, sent


def test_what_travels_and_from_which_round_on(tiny):
    clients, sent = play(tiny, made("crad", **GUIDED), 2)
    _, plain = play(tiny, made("crad"), 2)
    for peer in range(3):
        assert sent[0][peer].topology == {}
        assert sent[0][peer].num_scalars == plain[0][peer].num_scalars
        assert sent[1][peer].num_scalars == plain[1][peer].num_scalars + C * C + C  # 110 with ten classes
        sent[1][peer].check(f"peer {peer}", C=C)
        relations, counts = unpack_part(sent[1][peer].topology)
        assert torch.equal(counts.long(), clients[peer].shard.counts)
        assert torch.equal(relations.isnan(), ~topology.pair_mask(clients[peer].shard.counts))


def test_the_relations_are_those_of_the_snapshot(tiny):
    method = made("crad", **GUIDED)
    clients, _ = play(tiny, method, 1)
    for client in clients:
        expected = topology.relations(local_prototypes(client), client.shard.counts)
        found, _ = unpack_part(method.snapshot(client, 2).topology)
        torch.testing.assert_close(found, expected.float().double(), equal_nan=True, rtol=0, atol=0)


def test_all_peers_smooth_the_same_topology_as_fedtopos_server(tiny):
    method = made("crad", **GUIDED)
    clients, sent = play(tiny, method, 4)
    expected = torch.eye(C, dtype=torch.float64)
    for messages in sent[1:]:
        sums = topology.sum_relations({peer: unpack_part(one.topology) for peer, one in messages.items()}, C)
        expected = topology.smooth(expected, topology.aggregate(sums), topology.observed(sums), rho=0.7)
    for client in clients:
        assert torch.equal(client.memory["topology"], expected)
    chosen = update_topology(clients[0], {1: own_part(clients[1])})
    held = clients[0].shard.counts > 0
    sums = topology.sum_relations({peer: unpack_part(own_part(clients[peer])) for peer in (0, 1)}, C)
    again = topology.smooth(expected, topology.aggregate(sums), topology.observed(sums), rho=0.7)
    assert torch.equal(chosen, guidance(again, topology.reliability(sums.support), held, q=3).float())


def test_guidance_moves_the_weights_from_round_2_on_and_weight_0_has_the_bits_of_crad(tiny):
    without, _ = play(tiny, made("crad"), 3)
    off, _ = play(tiny, Crad(CradOptions(guidance_weight=0.0)), 3)
    tiny.assert_same_tensors(states(off), states(without))
    assert all(client.memory == {} for client in off)
    guided, _ = play(tiny, made("crad", **GUIDED), 3)
    for one, other in zip(guided, without, strict=True):
        assert one.journal["train"]["terms"]["topology"] > 0
        assert one.journal["guidance_max"] > 0
        moved = [
            key
            for key, tensor in one.model.state_dict().items()
            if tensor.is_floating_point() and not torch.equal(tensor, other.model.state_dict()[key])
        ]
        assert moved


def test_the_gradient_of_the_guided_term_is_that_of_fedtopos(tiny):
    # Eq. 12 by hand: d/do weight CE(o + B[y], y) = weight (softmax(o + B[y]) - y).
    clients = clients_for(tiny, "crad")

    chosen = torch.tensor([[0.0, 0.5, 0.25], [0.5, 0.0, 0.0], [0.25, 0.0, 0.0]])
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 3.0]], requires_grad=True)
    y = torch.tensor([0, 2])
    step = Step(clients[0].shard.train.x[:2], y, torch.arange(2), None, logits, None)
    guided(chosen, 0.4)(step)["topology"].backward()
    raised = torch.softmax(torch.tensor([[2.0, 1.5, 0.25], [0.25, 1.0, 3.0]]), dim=1)
    torch.testing.assert_close(logits.grad, 0.4 * (raised - torch.eye(3)[y]) / 2, rtol=0, atol=1e-6)


def test_in_the_warm_up_relations_are_gathered_and_do_not_guide(tiny):
    clients, _ = play(tiny, made("crad", warmup_rounds=3, **GUIDED), 3)
    plain, _ = play(tiny, made("crad", warmup_rounds=3), 3)
    tiny.assert_same_tensors(states(clients), states(plain))
    assert not torch.equal(clients[0].memory["topology"], torch.eye(C, dtype=torch.float64))


def test_whose_relations_did_not_arrive_is_not_in_the_sums(tiny):
    clients, sent = play(tiny, made("crad", **GUIDED), 2)
    known = {1: sent[1][1].topology}
    one = update_topology(replace(clients[0], memory=dict(clients[0].memory)), known)
    other = update_topology(replace(clients[0], memory=dict(clients[0].memory)), {**known, 2: {}})
    assert torch.equal(one, other)


def test_a_peer_that_says_what_is_not_finite_leaves_no_trace_in_the_topology(tiny):
    method = made("crad", **GUIDED)
    clients, _ = play(tiny, method, 3)
    inbox = {peer: method.snapshot(clients[peer], 4) for peer in (1, 2)}
    student = clients[0]
    twin = replace(student, model=copy.deepcopy(student.model), memory=dict(student.memory), journal={})
    inbox[2].weights["head.weight"].fill_(3e38)
    with pytest.warns(MotleyWarning, match="peer 2 answers with numbers that are not finite"):
        method.peer_round(student, inbox, 4, tiny.draws)
    method.peer_round(twin, {1: inbox[1]}, 4, tiny.draws)
    tiny.assert_same_tensors(dict(student.model.state_dict()), dict(twin.model.state_dict()))
    tiny.assert_same_tensors(student.memory, twin.memory)


def spoilt(message, **changes):
    return replace(message, topology={**message.topology, **changes})


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"relations": torch.full((C, C), 0.5), "counts": torch.ones(C)}, "must be 1 on the diagonal"),
        ({"relations": torch.ones(C, C) * 2, "counts": torch.ones(C)}, "outside of"),
        ({"relations": torch.ones(C, C)}, "is given although a class is not held"),
        ({"relations": torch.eye(C + 1)}, "have shape"),
        ({"counts": torch.tensor([1.0, -1.0, 0.0])}, "counts must be finite and >= 0"),
        ({"counts": torch.ones(C + 1)}, "have shape"),
        ({"relations": torch.full((C, C), torch.nan)}, "is not finite"),
        ({"topology": torch.ones(1)}, "come with the entries"),
    ],
    ids=str,
)
def test_g7_relations_that_nobody_can_have_are_refused(tiny, changes, reason):
    _, sent = play(tiny, made("crad", **GUIDED), 2)
    with pytest.raises(InvalidMessage, match=rf"peer 1 sent Snapshot .*{reason}"):
        spoilt(sent[1][1], **changes).check("peer 1", C=C)


def test_it_needs_features_and_excludes_noised_counts(tiny, tmp_path):
    with pytest.raises(InvalidConfig, match=r"crad.guidance_weight sends training counts"):
        CradOptions(guidance_weight=1.0, count_epsilon=1.0)
    client = clients_for(tiny, "crad")[0]
    client.model.has_features = False
    with pytest.raises(InvalidConfig, match=r"crad.guidance_weight needs features, but of the model of client 0"):
        made("crad", **GUIDED).start(client, tiny.draws)


def test_d3_a_resumed_run_and_two_workers_give_the_bits_of_the_unbroken_one(tiny, tmp_path, monkeypatch):
    usual = SPLIT | GUIDED | {"rounds": 5, "checkpoint_every": 2, "participation": 0.5}

    def keep(row) -> None:
        if row.round == 3:
            shutil.copytree(tmp_path / "whole", tmp_path / "cut")

    whole = tiny.play("crad", tmp_path / "whole", **usual, watch=Watch(finished_round=keep))
    resumed = motley.resume(tmp_path / "cut", data=tiny.dataset(), models=tiny.models_for("crad"))
    assert tiny.rows(resumed) == tiny.rows(whole)
    tiny.assert_same_tensors(tiny.weights(resumed), tiny.weights(whole))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # which a run obeys, too
    workers = tiny.play("crad", tmp_path / "workers", **usual, workers=2, threads=1)
    tiny.assert_same_tensors(tiny.weights(workers), tiny.weights(whole))
    terms = [row["train"]["terms"] for row in whole.rows if row["kind"] == "client" and row["active"]]
    assert any(one.get("topology", 0) > 0 for one in terms)
