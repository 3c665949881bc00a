from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

import motley
from motley.record.comparison import Comparison
from motley.record.load import RunRecord
from motley.report.render import to_csv, to_html, to_latex, to_markdown, to_rich
from motley.report.tables import comparison_table, run_table


def hand_made_run(method, seed, accuracy, *, status="finished", shared=None, selected=None):
    last = {"round": 5, "local_accuracy": accuracy, "local_accuracy_clients_without_data": 0}
    if shared is not None:
        last["global_accuracy"] = shared
    summary = {
        "status": status,
        "rounds": 5,
        "last": last,
        "selected": {"round": 3, "local_accuracy": selected} if selected is not None else None,
        "traffic": {"up_scalars": 110.0, "up_bytes": 440.0, "down_scalars": 82609.2, "down_bytes": 44_712_345.0},
        "seconds": {"train": 70.0, "evaluate": 5.0},
        "missing": [],
        "chance": 0.1,
        "class_names": [str(label) for label in range(10)],
    }
    config = {"method": method, "run": {"seed": seed, "rounds": 5}}
    return RunRecord(Path(f"{method}-{seed}"), config, [], summary)


def hand_made(runs, reference="local", seeds=(0, 1, 2)):
    config = {"compare": {"methods": list(runs), "seeds": list(seeds), "reference": reference}}
    return Comparison(Path("hand-made"), config, runs)


def three_seeds():
    # Differences 0.01, 0.02, 0.03: mean 2 points, sd 1 point, half-width t(0.975, 2) / sqrt(3) = 4.3027 / 1.7321 = 2.48.
    local = {seed: hand_made_run("local", seed, value) for seed, value in enumerate([0.70, 0.72, 0.74])}
    topo = {seed: hand_made_run("fedtopo", seed, value) for seed, value in enumerate([0.71, 0.74, 0.77])}
    return {"local": local, "fedtopo": topo}


def cells(table):
    return {column.heading: column.cells for column in table.columns}


def test_the_table_shows_mean_deviation_and_paired_interval():
    found = cells(comparison_table(hand_made(three_seeds())))
    assert found["method"] == ("local", "fedtopo")
    assert found["n"] == ("3", "3")
    assert found["local %"] == ("72.00", "74.00")
    assert found["local sd"] == ("2.00", "3.00")
    assert found["local difference"] == ("reference", "+2.00")
    assert found["local 95 % interval"] == ("", "[-0.48, +4.48]")
    assert found["numbers up / down"][1] == "110 / 82,609"
    assert found["bytes up / down"][1] == "440 B / 44.7 MB"
    assert found["time"] == ("75 s", "75 s")
    assert not any("global" in heading or "selected" in heading for heading in found)


def test_the_rule_names_round_divisor_chance_local_and_the_smallest_difference():
    text = " ".join(comparison_table(hand_made(three_seeds())).rules)
    for part in ("last round (5)", "divisor n - 1", "chance 10.0 %", "(local) 72.00 %", "fedtopo 2.48"):
        assert part in text


def test_one_seed_has_neither_deviation_nor_interval_and_says_so():
    runs = {name: {0: own[0]} for name, own in three_seeds().items()}
    table = comparison_table(hand_made(runs, seeds=[0]))
    found = cells(table)
    assert found["local sd"] == ("-", "-")
    assert found["local 95 % interval"] == ("", "-")
    assert found["local difference"] == ("reference", "+1.00")
    assert "One seed gives no deviation" in " ".join(table.remarks)


def test_global_and_selected_figures_appear_where_they_exist():
    runs = {"local": {0: hand_made_run("local", 0, 0.5, shared=0.25, selected=0.6)}}
    found = cells(comparison_table(hand_made(runs, seeds=[0])))
    assert found["global %"] == ("25.00",)
    assert found["local selected %"] == ("60.00",)
    assert "local difference" not in found  # there is nothing to compare with


def test_runs_that_did_not_finish_are_left_out_and_named():
    runs = three_seeds()
    runs["fedtopo"][2] = hand_made_run("fedtopo", 2, 0.01, status="interrupted")
    del runs["local"][1]
    table = comparison_table(hand_made(runs))
    assert cells(table)["n"] == ("2", "2")
    assert cells(table)["local %"] == ("72.00", "72.50")
    assert "local seed 1: not begun; fedtopo seed 2: interrupted" in table.remarks[0]


def test_a_method_without_any_finished_run_shows_dashes():
    runs = three_seeds() | {"fedtopo": {}}
    found = cells(comparison_table(hand_made(runs)))
    assert found["local %"] == ("72.00", "-")
    assert found["time"] == ("75 s", "-")
    assert found["bytes up / down"][1] == "-"


def test_csv_holds_fractions_that_a_program_reads_back():
    frame = pd.read_csv(StringIO(to_csv(comparison_table(hand_made(three_seeds())))))
    assert list(frame["method"]) == ["local", "fedtopo"]
    assert frame["local_accuracy"].tolist() == pytest.approx([0.72, 0.74])
    assert frame["local_difference_low"][1] == pytest.approx(-0.00484, abs=1e-5)
    assert frame["down_bytes"][1] == pytest.approx(44_712_345)
    assert pd.isna(frame["local_difference"][0])


def test_markdown_is_aligned_and_escapes_bars():
    runs = {name.replace("local", "lo|cal"): own for name, own in three_seeds().items()}
    lines = to_markdown(comparison_table(hand_made(runs, reference="lo|cal"))).splitlines()
    assert len({len(line) for line in lines[:4]}) == 1
    assert lines[2].startswith("| lo\\|cal")
    assert all(part.strip(" ").endswith(":") for part in lines[1].strip("|").split("|")[1:])


def test_latex_has_rules_and_escaped_percent_signs():
    text = to_latex(comparison_table(hand_made(three_seeds())))
    assert r"\toprule" in text
    assert r"local \% &" in text
    assert r"95 \% interval" in text
    assert "divisor n - 1" in text


def test_the_terminal_moves_groups_that_do_not_fit_below():
    table = comparison_table(hand_made(three_seeds()))

    def shown(width):
        console = Console(width=width, file=StringIO(), color_system=None)
        console.print(to_rich(table))
        return console.file.getvalue()

    wide, narrow = shown(120), shown(72)
    assert wide.count("method") == 1
    assert narrow.count("method") > 1
    for text in (wide, narrow):
        assert "…" not in text
        assert "[-0.48, +4.48]" in text


def test_html_escapes_the_names_of_methods():
    runs = {name.replace("local", "<i>"): own for name, own in three_seeds().items()}
    text = to_html(comparison_table(hand_made(runs, reference="<i>")))
    assert "<i>" not in text
    assert "&lt;i&gt;" in text


def test_a_run_shows_the_spread_over_clients_apart_from_that_over_seeds(teacher_path):
    run = motley.load_run(teacher_path)
    found = cells(run_table(run))
    assert found["local %"] == (f"{100 * run.final['local_accuracy']:.2f}",)
    assert found["local sd"] == ("-",)
    assert found["sd of clients"] == (f"{100 * run.final['local_accuracy_sd_clients']:.2f}",)
    assert "global %" in found
    assert "local selected %" in found
