"""`motley sweep`: a grid of comparisons, resumable, with one table and one figure."""

import csv
import json
import os
import signal
import tomllib
from pathlib import Path

import pytest
from run_folders import snapshot

import motley.engine.comparison as comparison
from motley.record.sweep import grid_points, load_sweep, point_path, point_text

SMALL = ("--clients", 4, "--data-limit", 400, "--rounds", 2, "--device", "cpu", "--seeds", "0,1")
STRENGTH = ("--methods", "local,fedtopo", "--over", "fedtopo.strength=0.5,2", *SMALL)
NAMES = ["001_strength=0.5", "002_strength=2"]


def table_of(out: Path) -> list[dict[str, str]]:
    with (out / "table.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def points_of(out: Path) -> list[str]:
    return sorted(path.name for path in (out / "points").iterdir())


def test_every_point_is_the_comparison_that_one_would_have_run_by_itself(motley, tmp_path):
    out = tmp_path / "out"
    said = motley("sweep", *STRENGTH, "--out", out)
    assert said.status == 0, said.err
    assert points_of(out) == NAMES
    assert f"written to {out}: table.md, table.csv, figure.svg" in said.out
    rows = table_of(out)
    assert [(row["fedtopo.strength"], row["method"], row["n"]) for row in rows] == [
        ("0.5", "local", "2"), ("0.5", "fedtopo", "2"), ("2", "local", "2"), ("2", "fedtopo", "2")
    ]  # fmt: skip
    alone = motley(
        "compare",
        "--methods",
        "local,fedtopo",
        "--set",
        "fedtopo.strength=2",
        *SMALL,
        "--out",
        tmp_path / "alone",
        "--json",
    )
    for line, row in zip(json.loads(alone.out)["table"], rows[2:], strict=True):
        assert line["local"]["mean"] == float(row["local_accuracy"])
        assert line["local"]["sd"] == float(row["local_accuracy_sd_seeds"])
    markdown = (out / "table.md").read_text(encoding="utf-8")
    assert markdown.startswith("| fedtopo.strength | method  |")
    assert markdown.count("Headline:") == 1
    figure = (out / "figure.svg").read_text(encoding="utf-8")
    assert all(word in figure for word in ("fedtopo.strength", "local accuracy, %", ">local<", ">fedtopo<", ">0.5<"))
    assert motley("report", out, "--table", "markdown").out.strip() == markdown.strip()


def test_a_run_that_the_grid_does_not_change_is_made_once(motley, tmp_path):
    out = tmp_path / "out"
    assert motley("sweep", *STRENGTH, "--out", out).status == 0
    first, second = (out / "points" / name / "runs" for name in NAMES)
    logs = [(runs / "local" / "seed-1" / "log.txt").read_text(encoding="utf-8") for runs in (first, second)]
    assert logs[1].startswith(logs[0])
    assert f"copied from {first / 'local' / 'seed-1'}" in logs[1]
    assert "copied" not in (second / "fedtopo" / "seed-1" / "log.txt").read_text(encoding="utf-8")
    configs = [(runs / "fedtopo" / "seed-0" / "config.toml").read_text(encoding="utf-8") for runs in (first, second)]
    assert [tomllib.loads(text)["fedtopo"]["strength"] for text in configs] == [0.5, 2.0]


def test_a_file_holds_the_grid_in_a_section_and_continues_its_own_folder(motley, tmp_path):
    file, out = tmp_path / "sweep.toml", tmp_path / "out"
    file.write_text(
        '[compare]\nmethods = ["local"]\nseeds = [3]\n[run]\nrounds = 1\ndevice = "cpu"\n[data]\nlimit = 300\n'
        '[partition]\nclients = 3\n[sweep]\npartition.scheme = ["iid", "dirichlet:1"]\n"train.keep-optimizer" = [true]\n'
    )
    assert motley("sweep", "--config", file, "--out", out).status == 0
    assert points_of(out) == ["001_scheme=iid_keep_optimizer=true", "002_scheme=dirichlet-1_keep_optimizer=true"]
    assert [(row["partition.scheme"], row["train.keep_optimizer"]) for row in table_of(out)] == [
        ("iid", "true"), ("dirichlet:1", "true")
    ]  # fmt: skip
    before = snapshot(out)
    for words in (("--config", file), ("--config", out / "sweep.toml")):
        assert motley("sweep", *words, "--out", out).status == 0
        assert snapshot(out) == before
    assert motley("report", out).status == 0
    assert snapshot(out) == before
    told = json.loads(motley("report", out, "--table", "json").out)
    assert told["points"][1]["point"] == {"partition.scheme": "dirichlet:1", "train.keep_optimizer": True}


@pytest.mark.parametrize("again", ["resume", "sweep"])
def test_after_an_interrupt_finished_points_are_left_untouched(again, motley, tmp_path, monkeypatch):
    out, start, begun = tmp_path / "out", comparison.start_run, []

    def interrupted(config, path, *more):
        if len(begun) == 5:  # four runs of the first point, local is copied, one run of fedtopo, and now the second
            os.kill(os.getpid(), signal.SIGINT)
        begun.append(path)
        return start(config, path, *more)

    with monkeypatch.context() as patch:
        patch.setattr(comparison, "start_run", interrupted)
        said = motley("sweep", *STRENGTH, "--out", out)
    assert said.status == 130
    assert said.err.splitlines()[-1] == (
        f"motley: interrupted in point 2 of 2 (strength=2); continue with: motley resume {out}"
    )
    assert motley("report", out, "--table", "text").out.count("not begun") == 1
    before = snapshot(out)
    stamps = {path: path.stat().st_mtime_ns for path in out.rglob("*") if path.is_file()}
    words = ("resume", out) if again == "resume" else ("sweep", *STRENGTH, "--out", out)
    said = motley(*words)
    assert said.status == 0, said.err
    assert "strength=0.5" not in said.err
    after = snapshot(out)
    assert {name: after[name] for name in before} == before
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert motley("sweep", *STRENGTH, "--out", tmp_path / "whole").status == 0
    timeless = [name for name in table_of(out)[0] if name != "seconds"]
    for row, other in zip(table_of(out), table_of(tmp_path / "whole"), strict=True):
        assert [row[name] for name in timeless] == [other[name] for name in timeless]


def test_ctrl_c_names_the_point_and_how_to_go_on(started, motley, tmp_path):
    out = tmp_path / "out"
    words = (
        "--methods",
        "fedtopo",
        "--over",
        "fedtopo.strength=0.5,2",
        *SMALL[:4],
        "--rounds",
        2000,
        "--device",
        "cpu",
    )
    process = started("sweep", *words, "--out", out, folder=out / "points" / NAMES[0] / "runs" / "fedtopo" / "seed-0")
    process.wait_for_round(2)
    said = process.stop(signal.SIGINT)
    assert said.status == 130
    assert said.err.splitlines()[-1] == (
        f"motley: interrupted in point 1 of 2 (strength=0.5); continue with: motley resume {out}"
    )
    assert points_of(out) == NAMES[:1]
    assert motley("resume", out, "--rounds", 3).error("is a sweep", "--rounds")


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ((), ("nothing to sweep", "--over", "[sweep]")),
        (("fedtopo.strength",), ("--over fedtopo.strength", "SECTION.FIELD=A,B,C")),
        (("fedtopo.strength=",), ("fedtopo.strength has no list of values",)),
        (("fedtopo.strenght=1,2",), ("unknown key 'fedtopo.strenght'", "did you mean 'strength'")),
        (("trian.lr=1,2",), ("unknown section 'trian'", "did you mean 'train'")),
        (("lr=1,2",), ("'lr' cannot be swept", "did you mean 'train.lr'")),
        (("fedtopo.strength=1,high",), ("fedtopo.strength is 'high'", "a number", "point strength=high")),
        (("fedtopo.strength=1,-1",), ("fedtopo.strength is -1", "0 or larger")),
        (("train.local-epochs=1,1.5",), ("train.local_epochs is 1.5", "a whole number")),
        (("partition.scheme=iid,dirichlet:x",), ("point scheme=dirichlet:x", "dirichlet:ALPHA")),
        (("run.participation=2,90",), ("point participation=90",)),
        (("models.pool=small4,none-such",), ("point pool=none-such",)),
        (("run.seed=1,2",), ("run.seed cannot be swept", "--seeds")),
        (("fedtopo.strength=1,1",), ("fedtopo.strength = 1 is given twice",)),
        (("train.lr=1", "train.lr=2"), ("train.lr is given twice",)),
        (("crad.rounds=1,2",), ("unknown key 'crad.rounds'",)),
        (("local-scaled.loss-weight=1,2",), ("local-scaled.loss_weight is swept, but local-scaled is not run",)),
        (("run.rounds=1,2",), ("run.rounds is swept and given by --rounds",)),
    ],
)  # fmt: skip
def test_a_mistake_in_the_grid_is_told_before_anything_is_written(over, words, refuses, tmp_path):
    flags = [word for one in over for word in ("--over", one)]
    refuses(["sweep", "--methods", "local,fedtopo", *flags, *SMALL, "--out", tmp_path / "out"], *words)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sweep = 3\n", ("[sweep]",)),
        ("[sweep]\n", ("nothing to sweep",)),
        ("[sweep]\ntrain.lr = []\n", ("train.lr has no list of values",)),
        ("[sweep]\ntrain.lr = 0.1\n", ("train.lr has no list of values",)),
        ("[sweep]\ntrain.lr = [[0.1]]\n", ("train.lr holds [0.1]",)),
        ("[sweep]\ntrain.lr = [0.1\n", ("is no valid TOML",)),
        ("[swep]\ntrain.lr = [0.1]\n", ("unknown section 'swep'",)),
    ],
)
def test_a_mistake_in_a_file_is_told_with_the_name_of_the_file(text, words, refuses, tmp_path):
    file = tmp_path / "grid.toml"
    file.write_text(text)
    refuses(["sweep", "--methods", "local", "--config", file, *SMALL], *words)


def test_a_folder_keeps_its_grid(motley, refuses, tmp_path):
    out = tmp_path / "out"
    words = ["sweep", "--methods", "local", *SMALL[:4], "--device", "cpu", "--out", out]
    assert motley(*words, "--rounds", 1, "--over", "train.lr=0.1,0.2").status == 0
    refuses([*words, "--rounds", 1, "--over", "train.lr=0.1,0.3"], "with another grid", f"motley resume {out}")
    refuses([*words, "--rounds", 2, "--over", "train.lr=0.1,0.2"], "other options in [run]")
    refuses([*words, "--rounds", 1, "--seeds", "4", "--over", "train.lr=0.1,0.2"], "other methods or seeds")
    refuses(["compare", "--methods", "local", "--out", out], "is not empty")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    refuses([*words[:-1], tmp_path / "mine", "--over", "train.lr=0.1"], "is not empty")
    (out / "sweep.toml").write_text("[compare]\n")
    refuses(["resume", out], "sweep.toml is damaged")


def test_points_are_named_apart_and_in_letters_of_every_file_system(tmp_path):
    points = grid_points({"train.lr": [0.1], "fedtopo.lr": [1], "data.source": [f"npz:C:\\{'x' * 300}", "npz:y"]})
    assert point_text(points[1]) == "train.lr=0.1, fedtopo.lr=1, source=npz:y"
    names = [point_path(tmp_path, position, point).name for position, point in enumerate(points)]
    assert names[1] == "002_train.lr=0.1_fedtopo.lr=1_source=npz-y"
    assert len(names[0]) == 80
    with pytest.raises(Exception, match="is no sweep"):
        load_sweep(tmp_path)
