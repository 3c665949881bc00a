import json
import math
import threading

import numpy as np
import pytest

from motley.errors import InvalidRunFolder
from motley.record.files import dump_json, write_bytes
from motley.record.folder import RunFolder, fresh_path
from motley.record.load import load_run, read_json
from motley.record.rows import RoundRow
from motley.record.summary import client_table, summarise

FILES = {"config.toml": b'method = "local"\n', "partition.npz": b"x", "rounds.jsonl": b""}


def test_a_folder_is_made_with_its_first_files_in_one_step(tmp_path):
    folder = RunFolder.create(tmp_path / "deep" / "down" / "run", FILES)
    assert {path.name for path in folder.path.iterdir()} == {*FILES}
    assert {path.name for path in folder.path.parent.iterdir()} == {"run"}
    assert folder.path.stat().st_mode & 0o777 == 0o755


def test_f2_a_folder_that_is_not_empty_is_refused_and_an_empty_one_is_taken(tmp_path):
    (tmp_path / "empty").mkdir()
    RunFolder.create(tmp_path / "empty", FILES)
    with pytest.raises(InvalidRunFolder, match=r"exists and is not empty; continue it with 'motley resume .*empty'"):
        RunFolder.create(tmp_path / "empty", {"config.toml": b"other"})
    assert (tmp_path / "empty" / "config.toml").read_bytes() == FILES["config.toml"]
    assert {path.name for path in tmp_path.iterdir()} == {"empty"}


def test_a_file_in_the_way_is_refused(tmp_path):
    (tmp_path / "run").write_text("mine")
    for path in (tmp_path / "run", tmp_path / "run" / "below"):
        with pytest.raises(InvalidRunFolder, match="choose another with --out"):
            RunFolder.create(path, FILES)
    assert (tmp_path / "run").read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


def test_f2_two_fresh_folders_in_the_same_second_differ(tmp_path):
    paths = []
    for _ in range(3):
        paths.append(fresh_path(tmp_path, "fedtopo"))
        RunFolder.create(paths[-1], FILES)
    assert len(set(paths)) == 3


def test_f2_of_several_runs_that_want_one_folder_a_single_one_gets_it(tmp_path):
    outcomes = []
    gate = threading.Barrier(4)

    def take(number: int) -> None:
        gate.wait()
        try:
            RunFolder.create(tmp_path / "run", {"config.toml": str(number).encode()})
            outcomes.append(number)
        except InvalidRunFolder:
            outcomes.append(None)

    threads = [threading.Thread(target=take, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [one for one in outcomes if one is not None]
    assert len(winners) == 1
    assert (tmp_path / "run" / "config.toml").read_text() == str(winners[0])
    assert {path.name for path in tmp_path.iterdir()} == {"run"}


def test_f6_names_that_we_make_use_plain_letters_only(tmp_path):
    name = fresh_path(tmp_path, "memory: Größe/猫 x").name
    assert set(name) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_")


def test_rows_can_be_read_while_the_run_goes_on(tmp_path):
    folder = RunFolder.create(tmp_path / "run", FILES)
    folder.append([RoundRow(0, [])])
    assert [row["round"] for row in load_run(folder.path).rows] == [0]
    folder.append([RoundRow(1, [0])])
    assert [row["round"] for row in RunFolder.open(folder.path).rows()] == [0, 1]
    folder.rewind(0)
    folder.append([RoundRow(1, [1])])
    folder.close()
    assert [row["participants"] for row in folder.rows()] == [[], [1]]


@pytest.mark.parametrize("name", ["no folder", "empty", "config", "summary", "summary list"])
def test_what_is_no_run_folder_or_damaged_is_named(tmp_path, name):
    path = tmp_path / "run"
    if name != "no folder":
        path.mkdir()
    if name not in ("no folder", "empty"):
        (path / "rounds.jsonl").touch()
        (path / "config.toml").write_bytes(b"method = \xff" if name == "config" else FILES["config.toml"])
        (path / "summary.json").write_text("[]" if name == "summary list" else "{")
    with pytest.raises(InvalidRunFolder, match=r"is no run folder|is damaged|holds no object"):
        load_run(path)


def test_a_run_without_its_rows_is_an_error_that_names_the_file(tmp_path):
    path = tmp_path / "run"
    path.mkdir()
    (path / "config.toml").write_bytes(FILES["config.toml"])
    with pytest.raises(InvalidRunFolder, match=r"rounds.jsonl"):
        load_run(path)


def test_json_holds_null_for_what_is_not_finite():
    values = {"a": math.nan, 1: [math.inf, 1.5, np.float32(2.5), np.int64(3)], "b": (True, None, "ä"), "c": -math.inf}
    assert json.loads(dump_json(values)) == {"a": None, "1": [None, 1.5, 2.5, 3], "b": [True, None, "ä"], "c": None}


def test_a_file_is_replaced_whole(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    write_bytes(path, b"old")

    def full(*_: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr("motley.record.files.os.fsync", full)
    with pytest.raises(OSError, match="full"):
        write_bytes(path, b"new and longer")
    assert path.read_bytes() == b"old"


def test_an_absent_json_file_is_empty(tmp_path):
    assert read_json(tmp_path / "none.json") == {}


def client(round: int, number: int, *, active: bool, correct: int, count: int, up: int) -> dict:
    return {
        "kind": "client",
        "round": round,
        "client": number,
        "active": active,
        "missing": None,
        "train": {"steps": 2, "terms": {"cross_entropy": 0.5}} if active else None,
        "traffic": {"up_scalars": up, "up_bytes": 4 * up, "down_scalars": 2 * up, "down_bytes": 8 * up},
        "scores": {"test_local": {"correct": [correct], "count": [count], "loss": 1.0}} if round != 1 else {},
    }


def rows() -> list[dict]:
    rounds = [
        {"kind": "round", "round": n, "participants": [], "missing": {}, "metrics": m, "seconds": {"train": 1.5}}
        for n, m in (
            (0, {"local_accuracy": 0.1, "validation_accuracy": 0.2}),
            (1, {}),
            (2, {"local_accuracy": 0.9, "validation_accuracy": 0.6}),
            (3, {"local_accuracy": 0.7, "validation_accuracy": 0.6}),
        )
    ]
    rounds[2]["missing"] = {"1": "the loss term 'x' is not finite"}
    clients = [
        client(n, k, active=bool(n) and (k == 0 or n == 3), correct=k + n, count=10, up=5 * k + n)
        for n in range(4)
        for k in range(2)
    ]
    return [*clients, *rounds]


def test_d4_a_summary_has_the_last_the_selected_and_the_best_test_round():
    made = summarise(rows())
    assert made["rounds"] == 3
    assert made["last"] == {"round": 3, "local_accuracy": 0.7, "validation_accuracy": 0.6}
    assert made["selected"]["round"] == 2  # the first of two rounds with the best validation mean
    assert made["best_test_round"]["round"] == 2
    assert made["missing"] == [{"round": 2, "client": 1, "reason": "the loss term 'x' is not finite"}]
    assert made["seconds"] == {"train": 4.5, "evaluate": 0.0}  # round 0 trains nobody
    # Active: client 0 in rounds 1, 2, 3 sends 1, 2, 3; client 1 in round 3 sends 8.
    assert made["traffic"]["up_scalars"] == (1 + 2 + 3 + 8) / 4
    assert made["traffic"]["down_bytes"] == 8 * (1 + 2 + 3 + 8) / 4


def test_a_summary_of_nothing_has_nulls():
    made = summarise([])
    assert (made["rounds"], made["last"], made["selected"]) == (None, None, None)
    assert made["traffic"]["up_bytes"] is None


def test_the_table_of_clients_shows_the_last_evaluated_round_and_sums_so_far():
    table = client_table(rows()).set_index("client")
    assert table.loc[0, "test_local_accuracy"] == 0.3
    assert table.loc[1, "test_local_accuracy"] == 0.4
    assert table["round"].tolist() == [3, 3]
    assert table["rounds_taken"].tolist() == [3, 1]
    assert table["steps"].tolist() == [6, 2]
    assert table["up_scalars"].tolist() == [0 + 1 + 2 + 3, 5 + 6 + 7 + 8]
