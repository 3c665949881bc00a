"""`motley report`: other references, ranks over several folders, and tables for papers and programs."""

import csv
import json
from io import StringIO

import pytest

import motley as api

SMALL = {"clients": 3, "data_limit": 300, "rounds": 1, "device": "cpu"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Return three comparisons of the same rows on other partitions."""
    made = []
    for scheme in ("iid", "dirichlet:0.5", "dirichlet:0.1"):
        path = tmp_path_factory.mktemp("settings") / scheme.replace(":", "-")
        api.compare(["local", "fedtopo", "fd"], seeds=[0, 1], partition=scheme, out=path, **SMALL)
        made.append(path)
    return made


def table_of(said):
    assert said.status == 0, said.err
    return {row["method"]: row for row in csv.DictReader(StringIO(said.out))}


def test_another_reference_turns_the_differences_and_runs_nothing(motley, folders):
    path = folders[0]
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*") if file.is_file()}
    usual = table_of(motley("report", path, "--table", "csv"))
    turned = table_of(motley("report", path, "--table", "csv", "--reference", "fd"))
    assert float(turned["local"]["local_difference"]) == pytest.approx(-float(usual["fd"]["local_difference"]))
    assert turned["fd"]["local_difference"] == ""
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*") if file.is_file()} == before
    told = json.loads(motley("report", path, "--table", "json", "--reference", "fd").out)
    assert told["reference"] == "fd"
    assert {"worst", "sd_clients", "difference"} <= set(told["table"][0]["local"])
    assert {"p", "p_holm", "smallest_visible"} <= set(told["table"][0]["local"]["difference"])
    assert told["table"][0]["rarest_class"]["n"] == 2
    assert any("2 seeds are too few" in text for text in told["remarks"])


def test_a_report_has_the_reference_that_was_asked_for(motley, folders):
    assert motley("report", folders[1], "--reference", "fd", "--replace").status == 0
    page = (folders[1] / "report.html").read_text(encoding="utf-8")
    assert "<dd>fd</dd>" in page


def test_ranks_over_several_comparisons(motley, folders):
    found = table_of(motley("report", *folders, "--ranks", "--table", "csv"))
    assert set(found) == {"local", "fedtopo", "fd"}
    ranks = [float(found["fd"][f"rank[{path.name}]"]) for path in folders]
    assert float(found["fd"]["mean_rank"]) == pytest.approx(sum(ranks) / 3)
    alone = table_of(motley("report", folders[2], "--table", "csv"))
    place = f"local_accuracy[{folders[2].name}]"
    assert all(float(found[row][place]) == pytest.approx(float(alone[row]["local_accuracy"])) for row in found)
    said = motley("report", *folders, "--ranks")
    assert "3 settings and 3 rows: ranks only" in " ".join(said.out.split())
    told = json.loads(motley("report", *folders, "--ranks", "--table", "json").out)
    assert (told["settings"], told["friedman"]) == ([path.name for path in folders], None)


def test_the_points_of_a_sweep_are_settings_unless_they_are_a_methods_option(motley, refuses, tmp_path):
    small = ("--clients", 3, "--data-limit", 300, "--rounds", 1, "--device", "cpu", "--methods", "local,fd,fedtopo")
    schemes = "partition.scheme=iid,dirichlet:0.2,dirichlet:0.5,dirichlet:1,dirichlet:5"
    assert motley("sweep", *small, "--over", schemes, "--out", tmp_path / "out").status == 0
    table = (tmp_path / "out" / "table.md").read_text(encoding="utf-8")
    assert "| rank |" in table.splitlines()[0]
    for part in ("Mean over 5 settings", "Friedman's test of 3 rows over 5 settings", "Wilcoxon", "independent"):
        assert part in table
    rows = csv.DictReader(StringIO((tmp_path / "out" / "table.csv").read_text(encoding="utf-8")))
    ranks = [float(row["rank"]) for row in rows]
    assert [sum(ranks[place : place + 3]) for place in range(0, 15, 3)] == [6] * 5
    said = motley("report", tmp_path / "out", "--ranks", "--reference", "fd", "--table", "csv")
    assert table_of(said)["fd"]["p_holm"] == ""
    told = json.loads(motley("report", tmp_path / "out", "--table", "json").out)
    assert told["ranks"]["friedman"]["freedom"] == [2, 8]
    assert motley("sweep", *small, "--over", "fedtopo.strength=1,2", "--out", tmp_path / "own").status == 0
    assert "rank" not in (tmp_path / "own" / "table.md").read_text(encoding="utf-8")
    refuses("report own --ranks", "option of a method")


def test_latex_with_a_caption(motley, folders):
    said = motley("report", folders[0], "--table", "latex", "--caption", "Digits, 50 % of them")
    assert r"\caption{Digits, 50 \% of them}" in said.out
    assert r"\toprule" in motley("report", *folders, "--ranks", "--table", "latex").out


def test_what_cannot_be_shown_is_refused(refuses, folders, tmp_path):
    first, second, _ = map(str, folders)
    refuses(["report", first, second], "2 folders", "--ranks")
    refuses(["report", first, "--ranks"], "several settings")
    refuses(["report", first, "--table", "csv", "--reference", "fedprotoo"], "'fedprotoo' is not a row", "fedtopo")
    refuses(["report", first, second, "--ranks", "--reference", "crad"], "'crad' is not a row of all settings")
    refuses(["report", first, "--caption", "Digits"], "--caption is for --table latex")
    refuses(["report", first, second, "--ranks", "--published"], "ask for one")
    refuses(["report", f"{first}/runs/local/seed-0", "--table", "csv", "--reference", "local"], "is one run")
    refuses(["report", tmp_path / "none", first, "--ranks"], "is no comparison")


@pytest.mark.parametrize(
    ("study", "columns"),
    [
        ("support", ("most common", "rarest")),
        ("classes", ("clients of more than 4 classes",)),
        ("convergence", ("rounds to 95 %",)),
    ],
)
def test_a_study_is_a_table_with_paired_differences(motley, folders, study, columns):
    rows = table_of(motley("report", folders[2], "--study", study, "--table", "csv"))
    assert list(rows) == ["local", "fedtopo", "fd"]
    for column in columns:
        assert float(rows["fd"][column]) - float(rows["local"][column]) == pytest.approx(
            float(rows["fd"][f"{column} difference"]), abs=1e-9
        )
    told = json.loads(motley("report", folders[2], "--study", study, "--table", "json").out)
    assert [line["method"] for line in told["table"]] == ["local", "fedtopo", "fd"]


def test_a_study_that_does_not_exist_or_has_no_comparison(motley, folders):
    motley("report", folders[0], "--study", "supports").error("'supports'", "support, classes, convergence")
    run = folders[0] / "runs" / "local" / "seed-0"
    motley("report", run, "--study", "support").error("is no comparison")
    motley("report", folders[0], "--study", "support", "--ranks").error("--ranks and --study", "one of them")
