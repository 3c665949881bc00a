import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import motley
from motley.engine.runs import Watch
from motley.errors import InvalidConfig, InvalidRunFolder, RunFailed

USUAL = {"rounds": 6, "checkpoint_every": 2, "participation": 0.5, "warmup_rounds": 1, "momentum": 0.9}


@pytest.fixture
def begun(tiny, tmp_path):
    """A whole run of six rounds, and the state of its folder after each round as a SIGKILL would leave it."""

    def keep(row) -> None:
        shutil.copytree(tmp_path / "whole", tmp_path / f"after-{row.round}")

    def build(**options: object):
        return tiny.play("fedtopo", tmp_path / "whole", **(USUAL | options), watch=Watch(finished_round=keep))

    return build


@pytest.fixture
def resume(tiny):
    def run(path, **more: object):
        return motley.resume(path, **({"data": tiny.dataset(), "models": tiny.model} | more))

    return run


def assert_same_run(tiny, one, other) -> None:
    assert tiny.rows(one) == tiny.rows(other)
    tiny.assert_same_tensors(tiny.weights(one), tiny.weights(other))


AS_PUBLISHED = {"shuffle": False, "last_batch": "drop", "class_means": "batches", "init_seed": 5, "same_start": True}


@pytest.mark.parametrize(
    "options", [{"keep_optimizer": True}, {"wire": "sparse"}, {"exchange": "replicated"}, AS_PUBLISHED], ids=str
)
def test_d3_resumed_runs_equal_the_unbroken_one(begun, resume, tiny, tmp_path, options):
    whole = begun(**options)
    for round in (1, 3, 4):
        resumed = resume(tmp_path / f"after-{round}")
        assert_same_run(tiny, resumed, whole)
        rounds = [row["round"] for row in resumed.rows if row["kind"] == "round"]
        assert rounds == list(range(7))  # each once
        assert resumed.summary["status"] == "finished"
        done = f"resumed after round {round // 2 * 2}" if round > 1 else ""
        assert done in (resumed.path / "log.txt").read_text(encoding="utf-8")


def test_d3_a_resumed_run_can_be_broken_again(begun, resume, tiny, tmp_path):
    whole = begun()

    def stop(row) -> None:
        raise OSError("power cut")

    for _ in range(3):
        with pytest.raises(RunFailed, match="power cut"):
            resume(tmp_path / "after-1", watch=Watch(finished_round=stop))
    assert_same_run(tiny, resume(tmp_path / "after-1"), whole)


def test_f5_a_cut_line_and_a_damaged_checkpoint_do_not_stop_a_resume(begun, resume, tiny, tmp_path):
    whole, path = begun(), tmp_path / "after-5"
    with (path / "rounds.jsonl").open("ab") as file:
        file.write(b'{"kind": "round", "rou')
    (path / "checkpoints" / "round-000004.safetensors").write_bytes(b"")
    (path / "checkpoints" / "round-000006.safetensors.part").write_bytes(b"\1" * 64)
    told = []
    resumed = resume(path, watch=Watch(warned=told.append))
    assert_same_run(tiny, resumed, whole)
    assert any("round-000004 was passed over: it is empty" in text for text in told)
    assert any("rounds.jsonl, line" in text for text in told)
    assert "resumed after round 2" in (path / "log.txt").read_text(encoding="utf-8")


def test_f5_without_a_whole_checkpoint_a_resume_is_an_error_and_changes_nothing(begun, resume, tmp_path):
    begun()
    path = tmp_path / "after-5"
    for one in (path / "checkpoints").glob("*.safetensors"):
        one.write_bytes(one.read_bytes()[:50])
    before = {one: one.read_bytes() for one in path.rglob("*") if one.is_file()}
    with pytest.raises(InvalidRunFolder, match=r"no checkpoint in .* is whole"):
        resume(path)
    assert {one: one.read_bytes() for one in path.rglob("*") if one.is_file()} == before


def test_rows_that_end_before_the_checkpoint_are_not_papered_over(begun, resume, tiny, tmp_path):
    whole, path = begun(), tmp_path / "after-5"
    lines = (path / "rounds.jsonl").read_bytes().splitlines(keepends=True)
    kept = [line for line in lines if b'"round": 4' not in line and b'"round": 5' not in line]
    (path / "rounds.jsonl").write_bytes(b"".join(kept))  # the disk lost what came last, but has the checkpoint
    assert_same_run(tiny, resume(path), whole)


def test_more_rounds_can_be_added_to_a_finished_run(begun, resume, tiny, tmp_path):
    whole = begun()
    short = tiny.play("fedtopo", tmp_path / "short", **(USUAL | {"rounds": 4}))
    assert short.config["run"]["rounds"] == 4
    longer = resume(short.path, rounds=6)
    assert_same_run(tiny, longer, whole)
    assert longer.config["run"]["rounds"] == 6
    assert longer.config == whole.config


def test_a_finished_run_is_not_run_again_and_never_gets_shorter(begun, resume, tmp_path):
    whole = begun()
    before = (whole.path / "rounds.jsonl").read_bytes()
    with pytest.raises(InvalidRunFolder, match="has finished all of its 6 rounds"):
        resume(whole.path)
    with pytest.raises(InvalidConfig, match="was begun with 6 rounds; --rounds may only be larger"):
        resume(whole.path, rounds=3)
    assert (whole.path / "rounds.jsonl").read_bytes() == before


def test_a_run_is_not_resumed_on_other_data(begun, resume, tiny, tmp_path):
    begun()
    path = tmp_path / "after-3"
    before = {one: one.read_bytes() for one in path.rglob("*") if one.is_file()}
    samples = [list(row) for row in tiny.samples]
    samples[0][0] += 3
    with pytest.raises(InvalidRunFolder, match=r"partition.npz does not fit the data"):
        resume(path, data=tiny.dataset(samples))
    assert {one: one.read_bytes() for one in path.rglob("*") if one.is_file()} == before


@pytest.mark.parametrize("damage", [b"", b"PK\3\4" + bytes(60), b"cos\nmkdir\n(Vx\ntR."])
def test_a_damaged_partition_is_an_error(begun, resume, tmp_path, damage):
    begun()
    (tmp_path / "after-3" / "partition.npz").write_bytes(damage)
    with pytest.raises(InvalidRunFolder, match=r"partition.npz is damaged"):
        resume(tmp_path / "after-3")


def test_load_run_gives_tidy_data_frames(begun, tmp_path):
    record = begun()
    assert record.rounds["round"].tolist() == list(range(7))
    assert record.rounds["participants"].tolist() == [0] + 6 * [2]
    assert record.rounds["local_accuracy"].between(0, 1).all()
    frame = record.clients
    active = frame[frame["active"]]
    assert len(active) == 6 * 2
    assert (active["steps"] > 0).all()
    assert active["loss_cross_entropy"].notna().all()
    assert active.loc[active["round"] > 1, "loss_topology"].notna().all()
    one = frame[(frame["round"] == 6) & (frame["client"] == 0)].iloc[0]
    row = next(r for r in record.rows if r["kind"] == "client" and (r["round"], r["client"]) == (6, 0))
    score = row["scores"]["test_local"]
    assert one["test_local_accuracy"] == sum(score["correct"]) / sum(score["count"])
    half = motley.load_run(tmp_path / "after-2")
    assert half.summary["status"] == "unfinished"
    assert half.rounds["round"].tolist() == [0, 1, 2]
    assert (record.method, record.seed) == ("fedtopo", 0)


def test_the_stored_configuration_is_complete_and_repeats_the_run(begun, tiny, tmp_path):
    whole = begun()
    again = motley.run(
        "fedtopo",
        config=whole.path / "config.toml",
        data=tiny.dataset(),
        models=tiny.model,
        out=tmp_path / "again",
    )
    assert again.config == whole.config
    assert_same_run(tiny, again, whole)


SCRIPT = """
import sys, motley
motley.run("fedtopo", out=sys.argv[1], rounds=400, clients=3, partition="iid", data_limit=90, warmup_rounds=1,
           device="cpu", checkpoint_every=7, models="small-linear", participation=0.7)
"""


def test_d3_a_killed_process_is_resumed_bit_for_bit(tiny, tmp_path):
    path = tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(path)], env=os.environ | {"OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 100
    while not (path / "rounds.jsonl").exists() or (path / "rounds.jsonl").read_bytes().count(b'"kind": "round"') < 9:
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with np.load(path / "partition.npz"):
        pass
    done = motley.load_run(path).rounds["round"].max()
    config = (path / "config.toml").read_text(encoding="utf-8")
    (path / "config.toml").write_text(config.replace("rounds = 400", f"rounds = {done + 2}"), encoding="utf-8")
    resumed = motley.resume(path)
    whole = motley.run("fedtopo", config=path / "config.toml", out=tmp_path / "whole")
    assert_same_run(tiny, resumed, whole)
