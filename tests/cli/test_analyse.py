"""`motley analyse`: files and tables of a finished run, its relations as an oracle, and what it refuses."""

import csv
import json
import shutil

import numpy as np
import pytest
from run_folders import rows_of, snapshot

from motley.cli.main import main
from motley.record.checkpoints import read_checkpoint

TINY = ["--clients", "5", "--data-limit", "500", "--rounds", "2", "--device", "cpu", "--partition", "dirichlet:0.5"]
WRITTEN = {
    "analysis.md",
    "analysis.json",
    "relations.csv",
    "measures.csv",
    "controls.csv",
    "consistency.csv",
    "clients.csv",
    "classes.csv",
    "distances.svg",
    "classes.svg",
    "relations.svg",
    "prototypes.svg",
    "architectures.svg",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One run for all tests; the pooling to a narrower width makes raw features differ."""
    path = tmp_path_factory.mktemp("analyse") / "topo"
    assert main(["run", "fedtopo", *TINY, "--feature-width", "32", "--out", str(path)]) == 0
    return path


@pytest.fixture
def run(finished, tmp_path):
    """A copy of it, in the working directory."""
    shutil.copytree(finished, tmp_path / "topo")
    return tmp_path / "topo"


def cells(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_an_analysis_leaves_its_folder_and_nothing_else(motley, run):
    before = snapshot(run)
    said = motley("analyse", "topo", "--permutations", "9")
    assert (said.status, said.err) == (0, "")
    after = snapshot(run)
    assert {name: after[name] for name in before} == before
    assert {name.removeprefix("analysis/") for name in set(after) - set(before) - {"analysis"}} == WRITTEN
    for word in ("D_rs_norm", "0.163", "0.126", "0.058", "S permuted", "rank correlation", "written to topo/analysis"):
        assert word in said.out
    page = (run / "analysis" / "analysis.md").read_text(encoding="utf-8")
    for name in WRITTEN:
        if name.endswith(".svg"):
            assert f"({name})" in page
    assert "relations, raw: rank correlation" in page
    drawing = (run / "analysis" / "distances.svg").read_text(encoding="utf-8")
    assert "paper" in drawing


def test_numbers_and_tables_say_the_same(motley, run):
    said = motley("analyse", "topo", "--permutations", "9", "--json")
    assert (said.status, said.err) == (0, "")
    told = json.loads(said.out)
    assert told == json.loads((run / "analysis" / "analysis.json").read_text(encoding="utf-8"))
    measures = {row["measure"]: row for row in cells(run / "analysis" / "measures.csv")}
    assert {name: float(row["mean"]) for name, row in measures.items()} == pytest.approx(told["means"])
    for name, paper in {"D_p": 0.163, "D_r": 0.126, "D_rs": 0.058}.items():
        assert float(measures[name]["paper"]) == paper
        assert float(measures[name]["difference"]) == pytest.approx(told["means"][name] - paper)
    clients = cells(run / "analysis" / "clients.csv")
    assert [float(row["D_r"]) if row["D_r"] else None for row in clients] == pytest.approx(told["clients"]["D_r"])
    assert [row["architecture"] for row in clients] == told["architectures"]
    state = read_checkpoint(run / "checkpoints").tensors
    assert np.array_equal(told["relations"], state["state/relations"].numpy())


def test_an_analysis_is_written_over_only_if_told_and_is_the_same_again(motley, run):
    assert motley("analyse", "topo", "--permutations", "9").status == 0
    before = snapshot(run / "analysis")
    (run / "analysis" / "analysis.md").write_text("mine", encoding="utf-8")
    motley("analyse", "topo", "--permutations", "9").error("topo/analysis exists already", "--replace")
    assert (run / "analysis" / "analysis.md").read_text(encoding="utf-8") == "mine"
    assert motley("analyse", "topo", "--permutations", "9", "--replace").status == 0
    assert snapshot(run / "analysis") == before


def test_other_methods_have_no_paper_beside_them(motley, tmp_path):
    assert motley("run", "local", *TINY, "--out", "alone").status == 0
    said = motley("analyse", "alone", "--permutations", "9")
    assert (said.status, said.err) == (0, "")
    assert "0.163" not in said.out
    assert "The run has no such server" in said.out
    assert not [row for row in cells(tmp_path / "alone" / "analysis" / "measures.csv") if "paper" in row]


def test_the_relations_of_a_pooled_model_are_an_oracle_for_fedtopo(motley, tmp_path):
    pooled = ["--clients", "1", "--partition", "iid", "--data-limit", "500", "--rounds", "2", "--device", "cpu"]
    assert motley("run", "local", *pooled, "--out", "pooled").status == 0
    assert motley("analyse", "pooled", "--permutations", "9").status == 0
    given = ("--relation-control", "given", "--relations", "pooled/analysis/relations.csv")
    assert motley("run", "fedtopo", *TINY, *given, "--out", "oracle").status == 0
    told = json.loads((tmp_path / "pooled" / "analysis" / "analysis.json").read_text(encoding="utf-8"))
    state = read_checkpoint(tmp_path / "oracle" / "checkpoints").tensors
    assert np.array_equal(told["relations"], state["state/guide"].numpy())  # written and read without a rounding
    last = rows_of(tmp_path / "oracle")[-2]
    assert last["method"]["relations_change"] == 0.0
    motley("run", "fedtopo", *TINY, "--relation-control", "given", "--out", "bad").error("needs fedtopo.relations")
    motley("run", "fedtopo", *TINY, *given[:3], "none.csv", "--out", "bad").error("none.csv cannot be read")
    assert not (tmp_path / "bad").exists()


def test_mistakes_are_refused_in_one_sentence(motley, run, tmp_path):
    motley("analyse", "nowhere").error("nowhere is no run folder")
    motley("analyse", "topo", "--permutations", "0").error("--permutations is 0")
    motley("analyse", "topo", "--permutations", "many").error("'many'")
    motley("analyse").error()
    with np.load(run / "partition.npz") as stored:
        arrays = dict(stored)
    arrays["indices"] = arrays["indices"][::-1].copy()
    np.savez_compressed(run / "partition.npz", **arrays)
    motley("analyse", "topo").error("partition.npz does not fit the data as they are now", "analyse the run with")
    assert not (run / "analysis").exists()
    (run / "partition.npz").write_bytes(b"")
    motley("analyse", "topo").error("partition.npz is damaged")
    shutil.rmtree(run / "checkpoints")
    motley("analyse", "topo").error("no checkpoint", "--checkpoint-every 0")
