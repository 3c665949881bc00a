"""Variants of a method in a comparison, and published figures beside ours."""

import csv
import io
import json

import pytest

from motley.record.comparison import load_comparison
from motley.record.load import load_run
from motley.report.page import build_report

HEAD = """
[compare]
methods = ["local", "fedtopo"]
seeds = [0, 1]
[data]
limit = 400
[partition]
clients = 4
[run]
rounds = 5
device = "cpu"
"""
VARIANTS = """
[variants.no-reliability]
method = "fedtopo"
fedtopo.use_s = false
[variants."local-lr-0.1"]
method = "local"
"train.lr" = 0.1
"""
PAPER = """
[paper]
source = "FedTopo, Table II"
departures = ["five rounds instead of 500"]
[paper.values]
fedtopo = [87.38, 0.26]
local = 85.43
"""


@pytest.fixture
def recipe(tmp_path):
    def write(text):
        path = tmp_path / "recipe.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_a_variant_is_the_run_that_its_options_give(motley, recipe, tmp_path):
    out = tmp_path / "out"
    said = motley("compare", "--config", recipe(HEAD + VARIANTS + PAPER), "--out", out, "--json")
    assert said.status == 0, said.err
    lines = {line["method"]: line for line in json.loads(said.out)["table"]}
    assert list(lines) == ["local", "fedtopo", "no-reliability", "local-lr-0.1"]
    for name, command in {
        "no-reliability": ("fedtopo", "--no-use-s"),
        "local-lr-0.1": ("local", "--lr", 0.1),
    }.items():
        alone = tmp_path / name
        usual = ("--data-limit", 400, "--clients", 4, "--rounds", 5, "--device", "cpu", "--seed", 1)
        assert motley("run", *command, *usual, "--out", alone).status == 0
        inside = load_run(out / "runs" / name / "seed-1")
        assert inside.final == load_run(alone).final
        assert inside.config == load_run(alone).config
    assert lines["no-reliability"]["local"] != lines["fedtopo"]["local"]
    assert "finished" not in motley("resume", out).err  # nothing is run again


def test_published_figures_stand_beside_ours_with_every_departure(motley, recipe, tmp_path):
    out = tmp_path / "out"
    said = motley("compare", "--config", recipe(HEAD + VARIANTS + PAPER), "--seeds", "0", "--rounds", 1, "--out", out)
    assert said.status == 0, said.err
    csv_text = motley("report", out, "--table", "csv").out
    rows = {row["method"]: row for row in csv.DictReader(io.StringIO(csv_text))}
    for name, paper in {"fedtopo": 0.8738, "local": 0.8543}.items():
        assert float(rows[name]["paper"]) == pytest.approx(paper, abs=1e-12)
        assert float(rows[name]["paper_difference"]) == pytest.approx(
            float(rows[name]["local_accuracy"]) - paper, abs=1e-12
        )
    assert rows["no-reliability"]["paper"] == ""
    page = build_report(out)
    for words in ("87.38 ± 0.26", "FedTopo, Table II", "five rounds instead of 500", "no-reliability"):
        assert words in page


def test_published_figures_of_the_selected_round_stand_beside_those_of_ours(motley, recipe, tmp_path):
    paper = PAPER.replace("departures", 'figure = "local_selected"\ndepartures')
    usual = ("--config", recipe(HEAD + paper), "--methods", "local", "--seeds", "0", "--rounds", 2)
    validated, bare = tmp_path / "validated", tmp_path / "bare"
    assert motley("compare", *usual, "--validation-fraction", 0.2, "--out", validated).status == 0
    (row,) = csv.DictReader(io.StringIO(motley("report", validated, "--table", "csv").out))
    assert float(row["paper_difference"]) == pytest.approx(float(row["local_selected_accuracy"]) - 0.8543, abs=1e-12)
    words = " ".join(motley("compare", *usual, "--out", bare).out.split())
    assert "left out: they are of local accuracy at the selected round, and these runs have none" in words
    assert "ours - paper" not in words
    assert "paper" not in csv.DictReader(io.StringIO(motley("report", bare, "--table", "csv").out)).fieldnames


def test_only_the_named_rows_are_run_and_stored(motley, recipe, tmp_path):
    out = tmp_path / "out"
    said = motley(
        "compare", "--config", recipe(HEAD + VARIANTS), "--methods", "local,no-reliability", "--rounds", 1, "--out", out
    )
    assert said.status == 0, said.err
    made = load_comparison(out)
    assert list(made.runs) == ["local", "no-reliability"]
    assert list(made.config["variants"]) == ["no-reliability"]


def test_a_sweep_over_variants(motley, recipe, tmp_path):
    out = tmp_path / "out"
    points = '[paper.points."scheme=iid"]\nno-reliability = 50.0\n'
    text = HEAD.replace('["local", "fedtopo"]', '["local"]') + VARIANTS + points
    command = ("sweep", "--config", recipe(text), "--over", "partition.scheme=iid,dirichlet:1")
    said = motley(*command, "--rounds", 1, "--seeds", 0, "--out", out)
    assert said.status == 0, said.err
    with (out / "table.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["partition.scheme"], row["method"]) for row in rows] == [
        (scheme, name) for scheme in ("iid", "dirichlet:1") for name in ("local", "no-reliability", "local-lr-0.1")
    ]
    assert [row["paper"] for row in rows] == ["", "0.5", "", "", "", ""]
    motley("sweep", "--config", recipe(text), "--over", "train.lr=0.1,0.2", "--out", tmp_path / "no").error(
        "train.lr", "local-lr-0.1"
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[variants.a]\nmethod = "fedtop"\n', ["fedtop", "did you mean 'fedtopo'"]),
        ("[variants.a]\nfedtopo.use_s = false\n", ["variant 'a'", "names no method"]),
        ('[variants.a]\nmethod = "local"\nfedtopo.use_s = false\n', ["variant 'a'", "local", "fedtopo"]),
        ('[variants.a]\nmethod = "fedtopo"\nfedtopo.use_z = false\n', ["variant 'a'", "fedtopo.use_z", "use_s"]),
        ('[variants.a]\nmethod = "fedtopo"\nfedtopo.strength = "high"\n', ["variant 'a'", "strength", "a number"]),
        ('[variants.a]\nmethod = "local"\nrun.seed = 3\n', ["variant 'a'", "seed"]),
        ('[variants."a/b"]\nmethod = "local"\n', ["variant 'a/b'", "letters"]),
        ('[variants.FedTopo]\nmethod = "local"\n', ["FedTopo", "another name"]),
        ("[variants]\na = 3\n", ["variants.a", "3", "[variants.a]"]),
        ("variants = 3\n", ["'variants' is 3", "[variants]"]),
        ('[paper]\nfigure = "best"\n', ["paper.figure", "'best'"]),
        ('[paper]\nvalue = 3\n', ["paper.value", "values"]),
    ],
)  # fmt: skip
def test_a_mistake_is_told_in_one_sentence(motley, recipe, tmp_path, text, words):
    where = text if text.startswith("variants =") else ""
    path = recipe(where + HEAD + (text if not where else ""))
    motley("compare", "--config", path, "--out", tmp_path / "out").error(*words)
    assert not (tmp_path / "out").exists()


def test_an_unknown_row_names_the_variants_too(motley, recipe, tmp_path):
    said = motley("compare", "--config", recipe(HEAD + VARIANTS), "--methods", "local,no-s", "--out", tmp_path / "out")
    said.error("'no-s'", "no-reliability", "local-lr-0.1")


def test_a_row_that_diverges_is_told_in_one_line_and_the_rest_is_run(motley, recipe, tmp_path):
    text = HEAD + '[variants.wild]\nmethod = "local"\ntrain.lr = 1e30\n'
    said = motley(
        "compare", "--config", recipe(text), "--methods", "wild,local", "--seeds", 0, "--out", tmp_path / "out"
    )
    assert said.status == 0, said.err
    assert "warning: wild, seed 0: " in said.err
    assert "the other runs go on without it" in said.err
    assert "wild seed 0: failed" in said.out
    assert len(load_comparison(tmp_path / "out").runs["local"]) == 1
