# ruff: noqa: NPY002  (the global generators are what is watched here)
import gc
import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import motley
from motley.engine.runs import Watch
from motley.errors import InvalidConfig, InvalidInput, InvalidRunFolder, RunFailed
from motley.methods.fedtopo import FedTopo
from motley.methods.fedtopo_wire import Relations
from motley.methods.local import Local

SPLIT = {"test_fraction": 0.4, "validation_fraction": 0.3}


@pytest.fixture
def play(tiny, tmp_path):
    def run(method: str = "local", **options: object):
        return tiny.play(method, tmp_path / f"run-{len(list(tmp_path.iterdir()))}", **options)

    return run


def round_rows(record) -> list[dict]:
    return [row for row in record.rows if row["kind"] == "round"]


def client_rows(record) -> list[dict]:
    return [row for row in record.rows if row["kind"] == "client"]


def test_a_run_evaluates_before_round_1_at_its_interval_and_at_the_end(play):
    record = play(rounds=5, eval_every=3)
    assert [row["round"] for row in round_rows(record)] == [0, 1, 2, 3, 4, 5]
    assert [row["round"] for row in round_rows(record) if row["metrics"]] == [0, 3, 5]
    first = [row for row in client_rows(record) if row["round"] == 0]
    assert [(row["client"], row["active"], row["train"], row["traffic"]) for row in first] == [
        (client, False, None, {}) for client in range(4)
    ]
    assert all(row["scores"] for row in first)
    unevaluated = [row for row in client_rows(record) if row["round"] == 1]
    assert len(unevaluated) == 4
    assert not any(row["scores"] for row in unevaluated)


def test_the_metrics_of_a_round_follow_from_its_rows(play):
    record = play("fedtopo", **SPLIT)
    for row in round_rows(record):
        for name, label in (("test_local", "local_accuracy"), ("validation", "validation_accuracy")):
            held = [
                sum(one["scores"][name]["correct"]) / sum(one["scores"][name]["count"])
                for one in client_rows(record)
                if one["round"] == row["round"] and name in one["scores"]
            ]
            assert row["metrics"][label] == pytest.approx(sum(held) / len(held), abs=1e-12)


def test_d4_the_selected_round_is_the_first_with_the_best_validation_mean(play):
    record = play(rounds=8, **SPLIT)
    evaluated = round_rows(record)
    best = max(row["metrics"]["validation_accuracy"] for row in evaluated)
    first = next(row for row in evaluated if row["metrics"]["validation_accuracy"] == best)
    summary = record.summary
    assert summary["selected"] == {"round": first["round"], **first["metrics"]}
    assert summary["last"] == {"round": 8, **evaluated[-1]["metrics"]}
    oracle = max(row["metrics"]["local_accuracy"] for row in evaluated)
    assert summary["best_test_round"]["local_accuracy"] == oracle
    assert "oracle" in summary["rule"]


def test_d4_without_validation_data_no_round_is_selected(play):
    assert play().summary["selected"] is None


def test_d1_the_seed_of_the_run_leaves_the_partition_alone_and_changes_the_rest(play, tiny):
    usual = {"partition": "dirichlet:0.5", "clients": 3, "min_samples": 5}
    one, other = play(seed=0, **usual), play(seed=1, **usual)
    with np.load(one.path / "partition.npz") as a, np.load(other.path / "partition.npz") as b:
        assert set(a.files) == set(b.files)
        assert all(np.array_equal(a[name], b[name]) for name in a.files)
    assert one.summary["partition"]["digest"] == other.summary["partition"]["digest"]
    assert tiny.rows(one) != tiny.rows(other)
    assert one.rows[0]["scores"]["test_local"]["loss"] != other.rows[0]["scores"]["test_local"]["loss"]
    orders = [[row["train"]["order"] for row in client_rows(record) if row["train"]] for record in (one, other)]
    assert set(orders[0]).isdisjoint(orders[1])
    another = play(seed=0, partition_seed=2, **usual)
    assert another.summary["partition"]["digest"] != one.summary["partition"]["digest"]


@pytest.mark.parametrize("method", ["fedtopo", "crad"])
def test_d1_a_whole_run_leaves_the_global_generators_untouched(play, method):
    def states() -> tuple[object, ...]:
        return random.getstate(), str(np.random.get_state()), torch.random.get_rng_state().tolist()

    before = states()
    play(method, participation=0.5, augment="crop-flip", **SPLIT)
    assert states() == before


def test_c7_every_participant_of_round_10_has_the_rate_of_round_10(play):
    record = play(rounds=10, lr=0.05, lr_decay=0.9, participation=0.5, eval_every=10)
    rates = {row["train"]["lr"] for row in client_rows(record) if row["round"] == 10 and row["active"]}
    assert len(rates) == 1
    assert rates.pop() == pytest.approx(0.019371, abs=5e-7)
    taken = [sum(row["active"] for row in client_rows(record) if row["client"] == client) for client in range(4)]
    assert len(set(taken)) > 1  # though some took part more often than others


def test_e1_no_model_is_written_when_checkpoints_are_off(play, tiny):
    samples = tuple((6, 5, 7, 0) for _ in range(8))
    written = Path("/proc/self/io")
    before = int(written.read_text().split()[3]) if written.exists() else 0
    record = play("crad", data=tiny.dataset(samples), rounds=5, checkpoint_every=0, **SPLIT)
    after = int(written.read_text().split()[3]) if written.exists() else 0
    names = {path.name for path in record.path.rglob("*")}
    assert names == {"config.toml", "partition.npz", "rounds.jsonl", "summary.json", "clients.csv", "log.txt"}
    assert sum(path.stat().st_size for path in record.path.rglob("*")) < 200_000
    assert after - before < 1_000_000


@pytest.mark.parametrize("method", ["fedtopo", "crad"])
def test_e2_nothing_is_held_from_round_to_round(play, method):
    held = {}

    def count(row) -> None:
        if row.round in (5, 15):
            gc.collect()
            tensors = [one for one in gc.get_objects() if type(one) in (torch.Tensor, torch.nn.Parameter)]
            held[row.round] = len(tensors), sum(one.numel() * one.element_size() for one in tensors)

    play(method, rounds=15, eval_every=5, checkpoint_every=5, watch=Watch(finished_round=count), **SPLIT)
    assert held[15][0] <= held[5][0]
    assert held[15][1] <= 1.05 * held[5][1]


def test_the_rows_hold_plain_numbers(play):
    record = play("crad", **SPLIT)
    text = (record.path / "rounds.jsonl").read_text(encoding="utf-8")
    assert len(text.splitlines()) == len(record.rows)
    assert "NaN" not in text
    assert "tensor(" not in text
    assert json.loads((record.path / "summary.json").read_bytes()) == record.summary


def test_the_summary_says_how_many_take_part(play):
    assert play(participation=0.6).summary["participation"] == "2 of 4 (0.6, rounded down)"
    assert play(participation=3).summary["participation"] == "3 of 4"


def test_f2_a_folder_that_holds_something_is_never_touched(play, tiny, tmp_path):
    record = play()
    before = {path: path.read_bytes() for path in record.path.rglob("*") if path.is_file()}
    with pytest.raises(InvalidRunFolder, match="exists and is not empty; continue it with 'motley resume"):
        tiny.play("local", record.path)
    assert {path: path.read_bytes() for path in record.path.rglob("*") if path.is_file()} == before
    assert {path.name for path in tmp_path.iterdir()} == {"run-0"}


@pytest.mark.parametrize(
    ("method", "options", "text"),
    [
        ("crad", {"exchange": "server"}, "crad has no server"),
        ("crad", {"exchange": "replicated"}, "crad has no server"),
        ("fedtopo", {"exchange": "peers"}, "among peers it runs with 'replicated'"),
        ("local", {"participation": 9}, "9 clients, but there are 4"),
        ("local", {"device": "cuda:7"}, "this machine does not have"),
        ("fedtopo", {"negatives": 0}, "fedtopo.negatives is 0"),
        ("fedtopo", {"oops": 0}, "unknown option 'oops'"),
    ],
)
def test_a_mistake_of_the_user_makes_no_folder(play, tmp_path, method, options, text):
    with pytest.raises(InvalidConfig, match=text):
        play(method, **options)
    assert not list(tmp_path.iterdir())


def test_an_error_of_motley_in_a_clients_round_names_client_and_round(play, monkeypatch):
    def refuse(*_: object) -> None:
        raise InvalidInput("the counts are wrong")

    monkeypatch.setattr(Local, "client_round", refuse)
    with pytest.raises(RunFailed, match="client 0 failed in round 1: InvalidInput: the counts are wrong"):
        play()


def test_an_exception_of_the_server_ends_the_run_as_a_failure(play, monkeypatch, tmp_path):
    def broken(*_: object) -> None:
        raise ZeroDivisionError("nobody")

    monkeypatch.setattr(FedTopo, "server_round", broken)
    with pytest.raises(RunFailed, match="ZeroDivisionError: nobody; 0 finished rounds are kept"):
        play("fedtopo")
    record = motley.load_run(tmp_path / "run-0")
    assert record.summary["status"] == "failed"
    assert [row["round"] for row in round_rows(record)] == [0]


def test_a_round_in_which_nobody_is_left_ends_the_run(play, tmp_path):
    held = {}

    def finished(row) -> None:
        for client in held["clients"]:
            with torch.no_grad():
                next(client.model.parameters()).fill_(float("nan"))

    watch = Watch(
        began=lambda config, federation, path: held.update(clients=federation.clients), finished_round=finished
    )
    with pytest.raises(RunFailed, match="no client finished round 1; client 0: the loss term 'cross_entropy'"):
        play(watch=watch)
    assert [row["round"] for row in round_rows(motley.load_run(tmp_path / "run-0"))] == [0, 1]


def test_an_upload_that_breaks_its_schema_is_left_out_with_the_reason(play, monkeypatch):
    sound = FedTopo.client_round

    def broken(self, client, received, round, draws):
        sent = sound(self, client, received, round, draws)
        return Relations(sent.relations + 1, sent.counts) if client.id == 1 and round == 2 else sent

    monkeypatch.setattr(FedTopo, "client_round", broken)
    record = play("fedtopo")
    reason = record.summary["missing"]
    assert [(one["round"], one["client"]) for one in reason] == [(2, 1)]
    assert "client 1 sent Relations whose entry 'relations' is above 1" in reason[0]["reason"]


def test_warnings_are_told_once_and_stored(play, tiny):
    told = []
    samples = ((9, 8, 7), (9, 8, 7), (5, 5, 0), (1, 0, 0))  # client 3 has batch norm and a single sample
    record = play(data=tiny.dataset(samples), watch=Watch(warned=told.append))
    assert [text for text in told if "client 3 has a single training sample" in text] == [
        text for text in record.summary["warnings"] if "single training sample" in text
    ]
    assert sum("single training sample" in text for text in told) == 1
    assert "warning: client 3 has a single" in (record.path / "log.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("protocol", ["local", "global"])
def test_the_global_protocol_has_a_common_test_set(play, protocol):
    record = play(protocol=protocol, partition="iid", clients=3)
    assert ("global_accuracy" in record.final) is (protocol == "global")
    if protocol == "global":
        counts = {tuple(row["scores"]["test_global"]["count"]) for row in client_rows(record) if row["scores"]}
        assert len(counts) == 1


def test_peers_learn_from_the_other_participants_of_the_round_and_never_from_themselves(play):
    record = play("crad", participation=3, **SPLIT)
    for row in round_rows(record)[1:]:
        for client in row["participants"]:
            own = next(r for r in client_rows(record) if (r["round"], r["client"]) == (row["round"], client))
            others = [peer for peer in row["participants"] if peer != client]
            assert own["method"]["teachers"]["peers"] == others
    sizes = {row["traffic"]["up_scalars"] for row in client_rows(record) if row["active"]}
    assert all(size % 2 == 0 for size in sizes)  # one snapshot to each of the two others


@pytest.mark.parametrize("method", ["crad", "uniform-kd"])
def test_who_has_no_teacher_is_told_so_with_the_reason(play, method):
    alone = client_rows(play(method, participation=1, **SPLIT))
    none = {"peers": [], "reason": "no peer sent a model that could be used"}
    assert all(row["method"]["teachers"] == none for row in alone if row["active"])
    warm = [
        row["method"].get("teachers") for row in client_rows(play(method, warmup_rounds=1, **SPLIT)) if row["active"]
    ]
    assert warm[0] == {"peers": [], "reason": "warm-up"}
    assert {"peers": [], "reason": "warm-up"} not in warm[4:]


def test_rounds_in_a_row_are_counted_over_a_resume(play, tiny, tmp_path):
    held = {}

    def finished(row) -> None:
        if row.round == 1:
            with torch.no_grad():
                next(held["clients"][2].model.parameters()).fill_(float("nan"))
        if row.round == 3:  # left out of rounds 2 and 3
            shutil.copytree(tmp_path / "run-0", tmp_path / "broken")

    watch = Watch(
        began=lambda config, federation, path: held.update(clients=federation.clients), finished_round=finished
    )
    with pytest.raises(RunFailed, match="client 2 was left out of 3 rounds in a row, last of round 4"):
        play("fedtopo", rounds=9, checkpoint_every=1, watch=watch)
    with pytest.raises(RunFailed, match="client 2 was left out of 3 rounds in a row, last of round 4"):
        motley.resume(tmp_path / "broken", data=tiny.dataset(), models=tiny.model)
