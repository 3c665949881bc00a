"""Faulty peers, simulated (case G7): who they are, what they send, and what stands in the record."""

import copy
import shutil
from itertools import pairwise

import pytest
import torch

import motley
from motley.cli.main import main
from motley.engine.config import ConfigFile, resolve
from motley.engine.faults import FaultyPeers, bad_peers
from motley.engine.runs import Watch
from motley.engine.trace import tracing
from motley.errors import InvalidConfig, InvalidMessage
from motley.methods.registry import find_method
from motley.models.split import SplitModel
from motley.options import FaultOptions
from motley.report.accounts import faults_section
from motley.report.facts import facts_of_run

C = 3
SPLIT = {"test_fraction": 0.4, "validation_fraction": 0.3}
BAD = 0  # of the clients made here


@pytest.fixture
def clients(tiny):
    def made(number: int) -> SplitModel:
        with tiny.draws.scope("init", client=number):
            return SplitModel.from_module(tiny.model(number, (1, 4, 4), C), num_classes=C)

    templates = [made(0), made(1)]

    def build(number: int):
        x = torch.rand(12, 1, 4, 4, generator=torch.Generator().manual_seed(number))
        settings = {"num_classes": C, "client_id": number, "validation": (x, [0, 0, 0, 1] * 3), "lr": 0.1}
        return tiny.client(x, [0, 1, 2] * 4, made(number), template=templates.__getitem__, **settings)

    return [build(0), build(1)]


def faulty(tiny, clients, kind: str, name: str = "crad", **options) -> FaultyPeers:
    """Return a method of which client 0 is faulty; before round 1 it had the weights 0."""
    entry = find_method(name)

    def untrained(client_id: int) -> SplitModel:
        model = copy.deepcopy(clients[client_id].model)
        with torch.no_grad():
            for tensor in model.parameters():
                tensor.zero_()
        return model

    faults = FaultOptions(bad_peers=1, bad_kind=kind, **options)
    return FaultyPeers(entry.method(entry.options()), faults, (BAD,), untrained, tiny.draws)


def answers(client, weights) -> torch.Tensor:
    model = copy.deepcopy(client.model)
    model.load_state_dict(dict(weights))
    model.eval()
    with torch.no_grad():
        return model(client.shard.validation.x)


def test_a_liar_names_the_next_class_and_tells_how_that_does(tiny, clients):
    sent = faulty(tiny, clients, "lying").snapshot(clients[BAD], 1)
    truth = answers(clients[BAD], clients[BAD].model.state_dict())
    said = answers(clients[BAD], sent.weights)
    torch.testing.assert_close(said, truth.roll(1, dims=1))
    guess, y = said.argmax(dim=1), clients[BAD].shard.validation.y
    assert sent.counts.tolist() == [9, 3, 0]
    right = [float((guess[y == c] == c).float().mean()) if c < 2 else 0.5 for c in range(C)]
    assert sent.accuracies.tolist() == pytest.approx(right)


def test_a_constant_model_names_one_class_whatever_it_sees(tiny, clients):
    method = faulty(tiny, clients, "constant")
    said = answers(clients[BAD], method.snapshot(clients[BAD], 1).weights)
    assert torch.equal(said, said[:1].expand(said.shape))
    assert sorted(said[0].tolist()) == [0.0, 0.0, 10.0]
    again = answers(clients[BAD], method.snapshot(clients[BAD], 7).weights)
    assert torch.equal(said, again)


def test_an_untrained_peer_sends_what_it_had_before_round_1(tiny, clients):
    sent = faulty(tiny, clients, "untrained").snapshot(clients[BAD], 5)
    assert not any(bool(tensor.any()) for name, tensor in sent.weights.items() if name.endswith("weight"))
    assert sent.accuracies.tolist() == [1.0, 0.0, 0.5]  # all logits are 0, and the lower class wins


@pytest.mark.parametrize("kind", ["untrained", "constant", "lying"])
def test_a_faulty_peer_trains_as_an_honest_one_and_others_send_what_they_have(tiny, clients, kind):
    method, honest = faulty(tiny, clients, kind), find_method("crad")
    plain = honest.method(honest.options())
    twin = copy.deepcopy(clients[BAD])
    before = {name: tensor.clone() for name, tensor in clients[BAD].model.state_dict().items()}
    sent = {peer.id: method.snapshot(peer, 1) for peer in clients}
    tiny.assert_same_tensors(dict(clients[BAD].model.state_dict()), before)
    tiny.assert_same_tensors(sent[1].tensors(), plain.snapshot(clients[1], 1).tensors())
    method.peer_round(clients[BAD], {1: sent[1]}, 1, tiny.draws)
    plain.peer_round(twin, {1: sent[1]}, 1, tiny.draws)
    tiny.assert_same_tensors(dict(clients[BAD].model.state_dict()), dict(twin.model.state_dict()))


@pytest.mark.parametrize("options", [{}, {"count_epsilon": 1.0}, {"weighting": "cross-entropy"}], ids=str)
def test_forged_statistics(tiny, clients, options):
    method = faulty(tiny, clients, "lying", forged_samples=5000)
    entry = find_method("crad")
    method._method = entry.method(entry.options(**options))
    method.start(clients[BAD], tiny.draws)
    sent = method.snapshot(clients[BAD], 1)
    sent.check("peer 0", C=C)
    assert sent.counts.tolist() == [5000] * C
    assert sent.accuracies.tolist() == [1.0] * C
    assert not sent.cross_entropies.any()
    model = faulty(tiny, clients, "lying", "uniform-kd", forged_samples=5000).snapshot(clients[BAD], 1)
    assert list(model.tensors()) == [f"weights/{name}" for name in clients[BAD].model.state_dict()]


@pytest.mark.parametrize("name", ["crad", "uniform-kd"])
def test_a_failing_peer_misses_every_third_round(tiny, clients, name):
    method = faulty(tiny, clients, "failing", name)
    before = {key: tensor.clone() for key, tensor in clients[BAD].model.state_dict().items()}
    for round in (1, 2, 4, 5, 7):
        method.snapshot(clients[BAD], round).check("peer 0", C=C)
    for round in (3, 6, 9):
        with pytest.raises(InvalidMessage, match=r"peer 0 sent .* is not finite; the message was refused"):
            method.snapshot(clients[BAD], round).check("peer 0", C=C)
        method.peer_round(clients[BAD], {1: method.snapshot(clients[1], round)}, round, tiny.draws)
    tiny.assert_same_tensors(dict(clients[BAD].model.state_dict()), before)


def config(**flags):
    return resolve("crad", ConfigFile(), flags, {})


def test_who_is_faulty_is_an_addressed_draw_and_fewer_are_among_more():
    drawn = [bad_peers(config(bad_peers=number), 10) for number in range(10)]
    assert [len(one) for one in drawn] == list(range(10))
    assert all(set(one) < set(other) for one, other in pairwise(drawn))
    assert bad_peers(config(bad_peers=3, bad_kind="lying", rounds=7), 10) == drawn[3]
    assert len({bad_peers(config(bad_peers=3, seed=seed), 10) for seed in range(20)}) > 10


def test_what_stands_in_the_record(tiny, tmp_path):
    record = tiny.play("crad", tmp_path / "run", bad_peers=1, bad_kind="lying", forged_samples=5000, **SPLIT)
    told = record.summary
    (bad,) = told["faults"]["clients"]
    assert told["faults"] == {"clients": [bad], "bad_peers": 1, "bad_kind": "lying", "forged_samples": 5000}
    text = f"faulty peers (simulated): {bad}, lying, and claim 5,000 validation samples of every class, all right"
    assert text in told["notes"]
    assert record.config["faults"] == {"bad_peers": 1, "bad_kind": "lying", "forged_samples": 5000}
    scores = [row["scores"]["test_local"] for row in record.rows if row["kind"] == "client" and row["round"] == 4]
    shares = [sum(one["correct"]) / sum(one["count"]) for one in scores]
    honest = [share for client, share in enumerate(shares) if client != bad]
    assert told["last"]["local_accuracy"] == pytest.approx(sum(shares) / 4)
    assert told["last"]["local_accuracy:honest"] == pytest.approx(sum(honest) / 3)
    assert told["last"]["local_accuracy:honest_worst"] == min(honest)
    (fact,) = [fact.text for fact in facts_of_run(record) if fact.name == "faulty peers"]
    assert fact == f"{bad}, lying, claiming 5,000 validation samples of every class, all right"
    (section,) = faults_section({"crad": {0: record}})
    (row,) = section.grids[0].rows
    assert row[:3] == ("crad", f"{100 * sum(honest) / 3:.2f}", f"{100 * sum(shares) / 4:.2f}")
    claims = [
        row["method"]["teachers"]["support"][row["method"]["teachers"]["peers"].index(bad)]
        for row in record.rows
        if row["kind"] == "client" and row["round"] and row["client"] != bad
    ]
    assert claims
    assert all(one == [5000.0] * 4 for one in claims)


def test_without_faulty_peers_the_record_says_nothing_of_them(tiny, tmp_path):
    record = tiny.play("crad", tmp_path / "run", bad_kind="lying", forged_samples=9, rounds=2, **SPLIT)
    plain = tiny.play("crad", tmp_path / "plain", rounds=2, **SPLIT)
    assert tiny.rows(record) == tiny.rows(plain)
    assert "faults" not in record.summary
    assert faults_section({"crad": {0: record}}) == []
    assert not any("honest" in name for name in record.summary["last"])


@pytest.mark.parametrize("method", ["crad", "uniform-kd", "uncertainty-kd", "fedmkd", "feddf"])
def test_a_run_with_a_peer_that_fails_every_third_round_goes_on_without_it(tiny, tmp_path, method):
    # Case G5 in a simulation: the round of the others is that of a federation in which it is not there.
    record = tiny.play(method, tmp_path / "run", rounds=7, bad_peers=1, bad_kind="failing", **SPLIT)
    assert record.summary["status"] == "finished"
    (bad,) = record.summary["faults"]["clients"]
    assert [(one["round"], one["client"]) for one in record.summary["missing"]] == [(3, bad), (6, bad)]
    assert all("is not finite; the message was refused" in one["reason"] for one in record.summary["missing"])
    rows = [row for row in record.rows if row["kind"] == "client" and row["round"]]
    assert [row["round"] for row in rows if row["client"] == bad and row["train"] is None] == [3, 6]
    if method == "crad":
        taught = {row["round"]: row["method"]["teachers"]["peers"] for row in rows if row["client"] == (bad + 1) % 4}
        assert [round for round, peers in taught.items() if bad not in peers] == [3, 6]


@pytest.mark.parametrize("kind", ["untrained", "constant", "lying", "failing"])
def test_d3_resumed_and_with_two_workers_it_gives_the_same_bits(tiny, tmp_path, kind, monkeypatch):
    usual = SPLIT | {"rounds": 5, "checkpoint_every": 2, "bad_peers": 2, "bad_kind": kind, "forged_samples": 50}

    def keep(row) -> None:
        if row.round == 3:
            shutil.copytree(tmp_path / "whole", tmp_path / "cut")

    whole = tiny.play("crad", tmp_path / "whole", **usual, watch=Watch(finished_round=keep))
    resumed = motley.resume(tmp_path / "cut", data=tiny.dataset(), models=tiny.models_for("crad"))
    assert tiny.rows(resumed) == tiny.rows(whole)
    if kind == "untrained":  # what needs a worker to make a model again
        monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # which a run obeys, too
        workers = tiny.play("crad", tmp_path / "workers", **usual, workers=2, threads=1)
        assert tiny.rows(workers) == tiny.rows(whole)


@pytest.mark.parametrize(
    ("method", "options", "text"),
    [
        ("crad", {"bad_peers": 4}, "faults.bad_peers is 4, but there are 4 clients, of which one must be honest"),
        ("fedtopo", {"bad_peers": 1}, "faults.bad_peers is 1, but faulty are peers that send models to each other"),
        ("crad", {"bad_peers": -1}, "faults.bad_peers is -1; it must be 0 or larger"),
        ("crad", {"bad_kind": "evil"}, "faults.bad_kind is 'evil'; it must be one of"),
        ("crad", {"forged_samples": 2**40}, "faults.forged_samples is 1099511627776; it must be 1000000000 or smaller"),
    ],
)
def test_mistakes_are_one_sentence_and_make_no_folder(tiny, tmp_path, method, options, text):
    with pytest.raises(InvalidConfig, match=text):
        tiny.play(method, tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_a_model_without_a_linear_last_layer_cannot_lie(tiny, tmp_path):
    class Answers(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rows = torch.nn.Parameter(torch.zeros(4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1).mean(dim=1, keepdim=True) * self.rows

    def scores(client_id, shape, num_classes):
        return SplitModel.from_module(Answers(), num_classes=num_classes, scores_only=True)

    usual = {"models": scores, "rounds": 1, "bad_peers": 1}
    with pytest.raises(InvalidConfig, match=r"need a linear last layer, which the Answers of client \d does not have"):
        tiny.play("uniform-kd", tmp_path / "lying", bad_kind="lying", **usual)
    tiny.play("uniform-kd", tmp_path / "untrained", bad_kind="untrained", **usual)


def test_local_stands_beside_faulty_peers(tiny, tmp_path):
    with_them = tiny.play("local", tmp_path / "one", rounds=2, bad_peers=1)
    without = tiny.play("local", tmp_path / "other", rounds=2)
    tiny.assert_same_tensors(tiny.weights(with_them), tiny.weights(without))
    assert "local_accuracy:honest" in with_them.summary["last"]


def test_from_the_command_line_to_the_trace(tmp_path, capsys):
    small = ["--protocol", "global", "--clients", "4", "--data-limit", "700", "--rounds", "2", "--device", "cpu"]
    faults = ["--bad-peers", "1", "--bad-kind", "lying", "--forged-samples", "5000"]
    assert main(["run", "crad", *small, *faults, "--out", str(tmp_path / "run")]) == 0
    (bad,) = motley.load_run(tmp_path / "run").summary["faults"]["clients"]
    assert "Without the faulty peers" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    with tracing(tmp_path / "run") as tracer:
        found = tracer.trace((bad + 1) % 4, 0).trace
    (liar,) = [one for one in found.teachers if one.teacher == bad]
    assert (liar.count, liar.accuracy) == (5000, 1.0)
    assert f"  faulty peers (simulated): {bad}, lying, and claim 5,000 validation" in capsys.readouterr().err
    assert main(["run", "crad", *small, "--bad-peers", "4", "--out", str(tmp_path / "none")]) == 2
    assert "faults.bad_peers is 4, but there are 4 clients" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
