"""What commands write and print: F2, F5, F6 and the files of the design, section 7."""

import errno
import json
import os
import re

import pytest
from case_inputs import foreign_paths
from run_folders import rows_of, summary_of, tensors_of

from motley.cli import main
from motley.engine import runs

SMALL = ["--clients", 4, "--data-limit", 300, "--rounds", 2, "--device", "cpu"]
FILES = {"config.toml", "partition.npz", "rounds.jsonl", "summary.json", "clients.csv", "log.txt", "report.html"}


def test_a_run_prints_its_result_and_leaves_the_files_of_the_design(process, tmp_path):
    said = process("run", "fedtopo", *SMALL, "--json", "--out", "runs/topo")
    assert said.status == 0, said
    summary = json.loads(said.out)
    assert (summary["status"], summary["rounds"], summary["num_clients"]) == ("finished", 2, 4)
    assert "fedtopo: digits, 10 classes, dirichlet:0.1, folder runs/topo" in said.err
    assert "4 of 4 take part in a round; cpu" in said.err
    assert re.search(r"round 2/2 local [\d.]+ %", said.err)
    assert {path.name for path in (tmp_path / "runs" / "topo").iterdir()} == FILES | {"checkpoints"}
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["topo"], "nothing is left beside it"
    assert summary_of(tmp_path / "runs" / "topo")["last"] == summary["last"]


def test_a_table_is_printed_and_the_report_is_named(motley, tmp_path):
    said = motley("run", "local", *SMALL, "--out", "out")
    assert said.status == 0
    assert "report.html" in said.out
    assert re.search(r"\d\d\.\d", said.out), "accuracies are shown in per cent"
    assert not said.out.startswith("{")


def test_an_existing_folder_is_never_written_over(motley, refuses, tmp_path):
    assert motley("run", "local", *SMALL, "--out", "out").status == 0
    for command in (["run", "crad"], ["run", "local"], ["compare", "--methods", "local,fedtopo"]):
        refuses([*command, *SMALL, "--out", "out"], "out exists and is not empty", "motley resume out", "--out")
    (tmp_path / "file").write_text("mine")
    refuses(["run", "local", *SMALL, "--out", "file"], "file")
    refuses(["run", "local", *SMALL, "--out", "file/below"], "file/below")
    (tmp_path / "empty").mkdir()
    assert motley("run", "local", *SMALL, "--out", "empty").status == 0


def test_two_runs_that_start_together_get_two_folders(started, tmp_path):
    both = [started("run", "local", *SMALL, folder=tmp_path / "runs") for _ in range(2)]
    said = [one.end(120) for one in both]
    assert [one.status for one in said] == [0, 0], said
    folders = sorted((tmp_path / "runs").iterdir())
    assert len(folders) == 2
    for folder in folders:
        assert re.fullmatch(r"local-\d{8}-\d{6}(-\d+)?", folder.name)
        assert {path.name for path in folder.iterdir()} == FILES | {"checkpoints"}


def test_a_folder_that_another_run_takes_meanwhile_is_left_to_it(motley, tmp_path, monkeypatch):
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "config.toml").write_text("of another run")
    paths = iter([taken, tmp_path / "free"])
    monkeypatch.setattr(runs, "fresh_path", lambda *_: next(paths))
    assert motley("run", "local", *SMALL).status == 0
    assert (tmp_path / "free" / "summary.json").exists()
    assert [path.name for path in taken.iterdir()] == ["config.toml"]


def test_a_report_and_a_plot_replace_a_file_only_on_request(motley, refuses, tmp_path):
    assert motley("run", "local", *SMALL, "--out", "out").status == 0
    report = tmp_path / "out" / "report.html"
    report.write_text("mine")
    refuses("report out", "report.html", "--replace")
    assert motley("report", "out", "--replace").status == 0
    assert "<html" in report.read_text(encoding="utf-8")
    refuses("report out --table foo", "--table is 'foo'", "markdown")
    for form, sign in {"text": "local", "markdown": "|", "latex": "tabular", "csv": ",", "json": "{"}.items():
        said = motley("report", "out", "--table", form)
        assert (said.status, sign in said.out, said.err) == (0, True, "")
    plot, saved = tmp_path / "bubbles.svg", tmp_path / "partition.npz"
    command = "partition dirichlet:0.3 --clients 4 --plot bubbles.svg --save partition.npz"
    assert motley(*command.split()).status == 0
    assert (plot.stat().st_size > 1000, saved.stat().st_size > 100) == (True, True)
    refuses(command, "bubbles.svg exists", "--replace")
    assert motley(*command.split(), "--replace").status == 0


def test_partition_and_data_print_tables_and_json(motley):
    said = motley("partition", "dirichlet:0.3", "--clients", 5, "--json")
    shown = json.loads(said.out)
    assert (said.status, len(shown["counts"]), shown["scheme"]) == (0, 5, "dirichlet:0.3")
    table = motley("partition", "--partition", "dirichlet:0.3", "--clients", 5)
    assert shown["sha256"] in table.out
    report = json.loads(motley("data", "digits", "--json").out)
    assert sum(report["counts"]["train"]) == 1797
    assert "1,797" in motley("data", "digits").out


def test_a_comparison_prints_one_line_a_method(motley, tmp_path):
    said = motley(
        "compare", "--methods", "local,fedtopo", *SMALL, "--set", "fedtopo.strength=2", "--json", "--out", "out"
    )
    assert said.status == 0, said
    shown = json.loads(said.out)
    assert [line["method"] for line in shown["table"]] == ["local", "fedtopo"]
    assert "[2/2] fedtopo, seed 0: round 2/2" in said.err
    config = (tmp_path / "out" / "runs" / "fedtopo" / "seed-0" / "config.toml").read_text(encoding="utf-8")
    assert "strength = 2.0" in config or "strength = 2\n" in config
    again = motley("compare", "--config", "out/compare.toml", "--out", "again", "--json")
    assert (again.status, [line["local"]["mean"] for line in json.loads(again.out)["table"]]) == (
        0,
        [line["local"]["mean"] for line in shown["table"]],
    )


# F5: what a power cut leaves


@pytest.fixture
def cut(motley, tmp_path):
    """A run whose last line was being written when the power went."""
    out = tmp_path / "out"
    assert motley("run", "local", *SMALL[:4], "--rounds", 3, "--checkpoint-every", 1, "--out", out).status == 0
    (out / "summary.json").unlink()
    (out / "report.html").unlink()
    return out


@pytest.mark.parametrize("tail", [b'{"round": 4, "accur', b"\0" * 40])
def test_half_a_line_is_passed_over_with_a_warning_and_kept_as_it_is(tail, cut, motley):
    rows = cut / "rounds.jsonl"
    rows.write_bytes(rows.read_bytes() + tail)
    before, lines = rows.read_bytes(), len(rows_of(cut))
    said = motley("report", cut)
    assert said.status == 0
    assert re.fullmatch(rf"warning: .*rounds\.jsonl, line {lines + 1} is incomplete.*\n", said.err), said.err
    assert rows.read_bytes() == before


def test_a_resume_passes_over_damaged_checkpoints_and_says_so(cut, motley, refuses):
    whole = rows_of(cut), tensors_of(cut)
    newest, older = (cut / "checkpoints" / f"round-00000{number}.safetensors" for number in (3, 2))
    newest.write_bytes(newest.read_bytes()[:100])
    (cut / "checkpoints" / "round-000009.safetensors.part").write_bytes(b"\1" * 64)
    said = motley("resume", cut)
    assert said.status == 0, said
    assert re.search(r"warning: checkpoint .*round-000003 was passed over: its checksum is wrong\n", said.err)
    assert (rows_of(cut), tensors_of(cut)) == whole
    (cut / "summary.json").unlink()
    newest.write_bytes(b"")
    older.unlink()
    said = motley("resume", cut)
    assert said.status == 2
    assert "no checkpoint in" in said.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("config.toml", b"method = "),
        ("config.toml", b'method = "local"\n[run]\nrounds = "x"\n'),
        ("config.toml", b"[run]\nrounds = 3\n"),
        ("config.toml", b"\xff\xfe"),
        ("partition.npz", b"PK"),
        ("partition.npz", b"PK\x03\x04" + bytes(60)),
        ("rounds.jsonl", b'{"kind": "rou\n{"kind": "round", "round": 1}\n'),
        ("summary.json", b'{"status": "fin'),
        ("summary.json", b"[]"),
    ],
)
def test_a_damaged_file_is_named_when_a_run_is_resumed(name, content, cut, refuses):
    (cut / name).write_bytes(content)
    refuses(["resume", cut], name)


# F6: names and locales


def test_paths_of_any_language_in_any_locale(process, tmp_path):
    folder = foreign_paths(tmp_path)
    out = tmp_path / "Läufe d'été" / "猫 1"
    words = ["--data", f"folder:{folder}", "--clients", 2, "--partition", "iid", "--rounds", 1, "--models", "small-cnn"]
    said = process("run", "local", *words, "--out", out, LC_ALL="C")
    assert said.status == 0, said
    assert "Läufe" in said.err
    assert summary_of(out)["class_names"] == ["собака", "猫"]
    assert "猫" in (out / "report.html").read_text(encoding="utf-8")
    resumed = process("resume", out, "--rounds", 2, LC_ALL="C")
    assert resumed.status == 0, resumed
    said = process("data", f"folder:{folder}", LC_ALL="C")
    assert (said.status, "собака" in said.out) == (0, True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--methods local,crad --protocol global --validation-fraction 0.1", "partition.validation_fraction"),
        ("--methods local,fedavg", "fedavg needs one architecture at all clients"),
        ("--methods local,fedtopo --graph ring", "run.graph is 'ring', but fedtopo has a server"),
        ("--methods local,dfml --bad-peers 2", "dfml is not of that kind"),
    ],
)
def test_a_comparison_that_is_refused_at_a_later_row_leaves_no_folder(motley, tmp_path, options, words):
    said = motley("compare", *options.split(), "--rounds", 1, "--clients", 4, "--out", tmp_path / "out")
    assert said.status == 2
    assert words in said.err
    assert not (tmp_path / "out").exists()


def test_a_name_that_is_too_long_is_told_in_one_sentence(refuses):
    refuses(["run", "local", *SMALL, "--out", "a" * 300], "a" * 300, "File name too long", "choose a shorter name")


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "Permission denied; allow it, or choose a folder that may be written"),
        (errno.EROFS, "Read-only file system; choose a folder on a disk that may be written"),
        (errno.ENOSPC, "No space left on device; make room, and continue"),
    ],
)
def test_what_the_system_refuses_is_told_with_file_and_remedy(monkeypatch, capsys, number, words):
    def refused(_):
        raise OSError(number, os.strerror(number), "run/rounds.jsonl.part")

    monkeypatch.setattr(main, "_run", refused)
    assert main.main(["list"]) == 2
    assert capsys.readouterr().err == f"motley: run/rounds.jsonl.part: {words}" + (
        "; everything that was finished is kept\n" if number == errno.ENOSPC else "\n"
    )


def test_a_fault_of_our_own_is_still_a_traceback(monkeypatch):
    def broken(_):
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(main, "_run", broken)
    with pytest.raises(OSError, match="Bad file descriptor"):
        main.main(["list"])
