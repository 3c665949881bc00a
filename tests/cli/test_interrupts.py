"""F3 and D3: whatever ends a run, its finished rounds stay, and a resume gives what an unbroken run gives."""

import json
import os
import signal
import time

import numpy as np
import pytest
from run_folders import rounds_of, rows_of, snapshot, summary_of, tensors_of

from motley.engine.executor import LocalExecutor
from motley.record.folder import RunFolder

SMALL = ["--clients", 4, "--data-limit", 300, "--device", "cpu", "--validation-fraction", 0.2]
ONE_LONG_ROUND = [*SMALL, "--rounds", 2, "--local-epochs", 120]
MANY_ROUNDS = [*SMALL, "--rounds", 24, "--local-epochs", 10, "--checkpoint-every", 3, "--participation", 3]


@pytest.fixture
def same(motley, tmp_path):
    """See that a folder holds what an unbroken run leaves."""

    def check(folder, *words):
        unbroken = tmp_path / "unbroken"
        assert motley("run", *words, "--out", unbroken).status == 0
        assert rows_of(folder) == rows_of(unbroken)
        assert tensors_of(folder) == tensors_of(unbroken)
        ours, theirs = summary_of(folder), summary_of(unbroken)
        assert {**ours, "seconds": 0, "command": ""} == {**theirs, "seconds": 0, "command": ""}

    return check


def test_ctrl_c_in_round_one_stops_quickly_and_can_be_resumed(started, motley, same, tmp_path):
    out = tmp_path / "out"
    process = started("run", "fedtopo", *ONE_LONG_ROUND, "--out", out, folder=out)
    process.wait_for_round(0)
    said = process.stop(signal.SIGINT)
    assert said.status == 130
    assert said.err.endswith(f"motley: interrupted in round 1; 0 of 2 rounds are kept in {out}; continue with: motley resume {out}\n")  # fmt: skip
    assert "Traceback" not in said.err
    assert rounds_of(out) == [0]
    assert summary_of(out)["status"] == "interrupted"
    assert motley("report", out).status == 0
    assert motley("resume", out).status == 0
    same(out, "fedtopo", *ONE_LONG_ROUND)


def test_ctrl_c_before_anything_was_written_leaves_nothing(started, tmp_path):
    process = started("run", "fedtopo", *SMALL, "--out", tmp_path / "out", folder=tmp_path / "out")
    time.sleep(0.3)  # it still imports
    said = process.stop(signal.SIGINT)
    assert said.status in {130, -signal.SIGINT}
    assert not list(tmp_path.iterdir())


def test_termination_in_a_later_round(started, motley, same, tmp_path):
    out = tmp_path / "out"
    process = started("run", "crad", *MANY_ROUNDS, "--out", out, folder=out)
    process.wait_for_round(4)
    said = process.stop(signal.SIGTERM)
    assert said.status == 143
    last = rounds_of(out)[-1]
    assert said.err.splitlines()[-1] == f"motley: interrupted in round {last + 1}; {last} of 24 rounds are kept in {out}; continue with: motley resume {out}"  # fmt: skip
    assert rounds_of(out) == list(range(last + 1))
    resumed = motley("resume", out, "--json")
    assert resumed.status == 0
    assert json.loads(resumed.out)["status"] == "finished"
    assert f"resumed after round {last}" in (out / "log.txt").read_text(encoding="utf-8")
    same(out, "crad", *MANY_ROUNDS)


def test_a_second_ctrl_c_ends_it_at_once_and_damages_nothing(started, motley, same, tmp_path):
    out = tmp_path / "out"
    process = started("run", "local", *MANY_ROUNDS, "--out", out, folder=out)
    process.wait_for_round(3)
    process.popen.send_signal(signal.SIGINT)
    assert process.stop(signal.SIGINT).status in {130, -signal.SIGINT}
    assert motley("resume", out).status == 0
    same(out, "local", *MANY_ROUNDS)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_the_end_is_written_ends_the_process(number, started, tmp_path):
    out = tmp_path / "out"
    code = (
        "import os, signal, sys\n"
        "from motley.cli.main import main\n"
        "from motley.record.folder import RunFolder\n"
        "write = RunFolder.write_json\n"
        f"RunFolder.write_json = lambda *a: (a[2]['status'] != 'unfinished' and os.kill(os.getpid(), {int(number)}), write(*a))\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    script = tmp_path / "late.py"
    script.write_text(code)
    process = started("run", "local", *MANY_ROUNDS, "--out", out, folder=out, script=script)
    process.wait_for_round(2)
    said = process.stop(signal.SIGINT)
    assert said.status == 128 + number
    assert summary_of(out)["status"] == "unfinished"
    assert rounds_of(out)[-1] >= 2


def test_a_signal_while_the_last_files_are_written_lets_them_be_finished(motley, tmp_path, monkeypatch):
    write = RunFolder.write_json
    monkeypatch.setattr(
        RunFolder,
        "write_json",
        lambda *a: (a[2]["status"] != "unfinished" and os.kill(os.getpid(), signal.SIGINT), write(*a)),
    )
    said = motley("run", "local", *SMALL, "--rounds", 1, "--out", tmp_path / "out")
    assert said.status == 130
    assert summary_of(tmp_path / "out")["status"] == "finished"


def test_ctrl_c_between_the_exchange_and_its_evaluation_undoes_the_round(motley, same, tmp_path, monkeypatch):
    scores, calls = LocalExecutor.scores, []

    def interrupted(*arguments):
        calls.append(1)
        if len(calls) == 3:  # before round 1, after round 1, and now in round 2
            os.kill(os.getpid(), signal.SIGINT)
        return scores(*arguments)

    words, out = ["fedtopo", *SMALL, "--rounds", 4], tmp_path / "out"
    monkeypatch.setattr(LocalExecutor, "scores", interrupted)
    assert motley("run", *words, "--out", out).status == 130
    assert rounds_of(out) == [0, 1]
    assert motley("resume", out).status == 0
    same(out, *words)


def test_a_run_that_is_killed_at_any_moment_goes_on_as_if_nothing_had_happened(started, motley, same, tmp_path):
    out = tmp_path / "out"
    moments = np.random.default_rng(43).uniform(0, 0.2, 3)
    command: list[object] = ["run", "fedtopo", *MANY_ROUNDS, "--out", out]
    for moment in moments:
        process = started(*command, folder=out)
        before = rounds_of(out)
        process.wait_for(lambda before=before: rounds_of(out) != before)
        time.sleep(moment)
        process.popen.kill()
        process.end(10)
        done = rounds_of(out)
        assert done == list(range(len(done)))
        assert summary_of(out)["status"] == "unfinished"
        command = ["resume", out]
    assert len(done) < 25, "it was over before it was killed"
    assert motley("resume", out).status == 0
    assert rounds_of(out) == list(range(25))
    same(out, "fedtopo", *MANY_ROUNDS)


def test_a_finished_run_is_resumed_with_more_rounds(motley, refuses, same, tmp_path):
    out, words = tmp_path / "out", ["local", *SMALL, "--lr-decay", 0.9]
    assert motley("run", *words, "--rounds", 3, "--out", out).status == 0
    refuses(["resume", out], "has finished all of its 3 rounds", "--rounds N")
    refuses(["resume", out, "--rounds", 2], "begun with 3 rounds", "may only be larger")
    assert motley("resume", out, "--rounds", 5).status == 0
    same(out, *words, "--rounds", 5)
    assert "rounds = 5" in (out / "config.toml").read_text(encoding="utf-8")


def test_without_checkpoints_a_resume_begins_again(motley, same, tmp_path, monkeypatch):
    out, words = tmp_path / "out", ["local", *SMALL, "--rounds", 3]
    finish = LocalExecutor.finish_round
    monkeypatch.setattr(LocalExecutor, "finish_round", lambda self: (finish(self), os.kill(os.getpid(), signal.SIGINT)))
    said = motley("run", *words, "--checkpoint-every", 0, "--out", out)
    assert (said.status, "a resume begins again" in said.err) == (130, True)
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    assert motley("resume", out).status == 0


def test_an_interrupted_comparison_goes_on_with_what_is_left(started, motley, tmp_path):
    words = ["compare", "--methods", "local,fedtopo", "--seeds", "0", *SMALL, "--rounds", 20, "--local-epochs", 4]
    out, unbroken = tmp_path / "out", tmp_path / "unbroken"
    second = out / "runs" / "fedtopo" / "seed-0"
    process = started(*words, "--out", out, folder=second)
    process.wait_for_round(2)
    said = process.stop(signal.SIGINT)
    assert said.status == 130
    assert said.err.splitlines()[-1] == f"motley: interrupted in run 2 of 2; continue with: motley resume {out}"
    first = snapshot(out / "runs" / "local" / "seed-0")
    assert motley("resume", out, "--rounds", 50).error("is a comparison")
    assert motley("resume", out).status == 0
    assert snapshot(out / "runs" / "local" / "seed-0") == first, "a finished run is not run again"
    assert motley(*words, "--out", unbroken).status == 0
    for method in ("local", "fedtopo"):
        one, other = out / "runs" / method / "seed-0", unbroken / "runs" / method / "seed-0"
        assert rows_of(one) == rows_of(other)
        assert tensors_of(one) == tensors_of(other)
    tables = [json.loads(motley("report", path, "--table", "json").out)["table"] for path in (out, unbroken)]
    assert [{**line, "seconds": 0} for line in tables[0]] == [{**line, "seconds": 0} for line in tables[1]]
