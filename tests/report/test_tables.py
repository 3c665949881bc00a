import re
import shutil
import subprocess
from io import StringIO
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

import motley
from motley.errors import InvalidConfig
from motley.record.classes import rarest_class
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


def test_latex_has_a_head_of_groups_with_rules_and_escapes_what_users_wrote():
    runs = {name.replace("fedtopo", r"a_b%c&d#e$f{g}h~i^j\k<l>"): own for name, own in three_seeds().items()}
    text = to_latex(comparison_table(hand_made(runs)))
    lines = text.splitlines()
    assert lines[:3] == [r"% needs \usepackage{booktabs}", r"\begin{tabular}{lrrrrrrrr}", r"\toprule"]
    assert r"\multicolumn{4}{c}{local accuracy}" in lines[3]
    assert lines[4] == r"\cmidrule(lr){3-6} \cmidrule(lr){7-8} \cmidrule(lr){9-9}"
    assert lines[5].startswith(r"method & n & \% & sd & difference & 95 \% interval &")
    assert [lines[6], *lines[9:11]] == [r"\midrule", r"\bottomrule", r"\end{tabular}"]
    assert lines[8].startswith(
        r"a\_b\%c\&d\#e\$f\{g\}h\textasciitilde{}i\textasciicircum{}j\textbackslash{}k\textless{}l\textgreater{} & 3 &"
    )
    assert "[$-$0.48, +4.48]" in lines[8]
    assert "divisor n - 1" in text
    rows = [re.sub(r"\\multicolumn\{4\}.*", "", line) for line in (lines[5], lines[7], lines[8])]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {8}
    assert not re.search(r"(?<!\\)[_#$%]", re.sub(r"\$-\$", "", "\n".join(lines[3:])))


def test_latex_floats_only_with_a_caption():
    table = comparison_table(hand_made(three_seeds()))
    assert "table}" not in to_latex(table)
    text = to_latex(table, "50 % of A & B")
    assert r"\caption{50 \% of A \& B}" in text
    assert text.index(r"\begin{table}") < text.index(r"\begin{tabular}")
    assert text.endswith("\\par}\n\\end{table}\n")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_can_be_set(tmp_path):
    runs = {name.replace("fedtopo", r"a_b%c&d#e$f{g}h~i^j\k<l>"): own for name, own in three_seeds().items()}
    made = to_latex(comparison_table(hand_made(runs)), "A & B")
    head, end = r"\documentclass{article}\usepackage{booktabs}\begin{document}", r"\end{document}"
    (tmp_path / "table.tex").write_text(f"{head}\n{made}{end}\n", encoding="utf-8")
    command = ["pdflatex", "-halt-on-error", "-draftmode", "table.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stdout


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


def with_more_methods():
    """Three methods against local on three seeds: one surely better, one perhaps, one equal; by hand below."""
    local = [0.70, 0.72, 0.74]
    # Differences in points: 9, 10, 11 (t = 17.3, p = 0.00332); 2, 4, 6 (t = 3.46, p = 0.07418); 0, 0, 0 (p = 1).
    gains = {"local": [0, 0, 0], "sure": [0.09, 0.10, 0.11], "perhaps": [0.02, 0.04, 0.06], "same": [0, 0, 0]}
    return {
        name: {seed: hand_made_run(name, seed, local[seed] + gain) for seed, gain in enumerate(own)}
        for name, own in gains.items()
    }


def test_p_values_of_many_rows_are_adjusted_and_left_to_programs():
    table = comparison_table(hand_made(with_more_methods()))
    frame = pd.read_csv(StringIO(to_csv(table)), index_col="method")
    t = 0.10 / 0.01 * 3**0.5
    sure, perhaps = 1 - t / (2 + t * t) ** 0.5, 1 - (12 / 14) ** 0.5
    assert frame["local_difference_p"].tolist()[1:] == pytest.approx([sure, perhaps, 1])
    assert frame["local_difference_p_holm"].tolist()[1:] == pytest.approx([3 * sure, 2 * perhaps, 1])
    assert pd.isna(frame["local_difference_p"]["local"])
    assert cells(table)["local p (Holm)"] == ("", "0.010", "0.148", "1.000")
    assert "over the 3 paired t tests against local, local accuracy differs (at 5 %) in sure." in " ".join(table.rules)
    for shown in (to_markdown(table), to_latex(table)):
        assert "p (Holm)" not in shown
    assert "p (Holm)" in to_html(table)


def test_one_difference_needs_no_correction_and_no_sentence():
    assert "Holm" not in " ".join(comparison_table(hand_made(three_seeds())).rules)


def test_another_row_can_be_the_reference():
    comparison = hand_made(with_more_methods())
    found = cells(comparison_table(comparison.against("sure")))
    assert found["local difference"] == ("-10.00", "reference", "-6.00", "-10.00")
    assert comparison.reference == "local"
    with pytest.raises(InvalidConfig, match="'nobody' is not a row of hand-made: local, sure"):
        comparison.against("nobody")


@pytest.mark.parametrize(
    ("seeds", "words"),
    [
        (1, "One seed gives no deviation"),
        (2, "2 seeds are too few: an interval reaches 9.0 sd of the paired differences to either side (with 5 1.2"),
        (3, "3 seeds are few: an interval reaches 2.5 sd"),
        (4, "4 seeds are few: an interval reaches 1.6 sd"),
        (5, ""),
    ],
)
def test_too_few_seeds_are_warned_of_with_what_more_would_give(seeds, words):
    runs = {
        name: {seed: hand_made_run(name, seed, 0.5 + gain * (seed + 1)) for seed in range(seeds)}
        for name, gain in (("local", 0.01), ("fedtopo", 0.02))
    }
    remarks = comparison_table(hand_made(runs, seeds=range(seeds))).remarks
    assert [remark[: len(words)] for remark in remarks] == ([words] if words else [])


def test_the_smallest_visible_differences_of_many_rows_are_a_range():
    runs = {"local": with_more_methods()["local"]} | {
        f"row-{number}": {
            seed: hand_made_run(f"row-{number}", seed, 0.5 + 0.01 * (number + 1) * seed) for seed in range(3)
        }
        for number in range(9)
    }
    (rule,) = [text for text in comparison_table(hand_made(runs)).rules if "could have been seen" in text]
    # Differences of row-1 to local are the same on every seed; those of row-8 rise by 7 points a seed: 7 x 2.484.
    assert rule.endswith("from 0.00 (row-1) to 17.39 (row-8); CSV and report have all.")


def test_our_readings_and_proxy_sets_are_named_beside_the_figures_with_their_variants():
    runs = {
        name: {0: hand_made_run(name, 0, 0.5)}
        for name in ("local", "fedsce", "msfkd", "fedmd", "fedgd", "mine", "somebody's")
    }
    runs["msfkd"][0].config["data"], runs["fedmd"][0].config["data"] = {"proxy": 500}, {"proxy": 40}
    runs["fedgd"][0].config["fedgd"] = {"synthetic": 60}
    comparison = hand_made(runs, seeds=[0])
    comparison.config["variants"] = {"mine": {"method": "fedsce"}}
    remarks = comparison_table(comparison).remarks
    assert any(text.startswith("Our reading of a paper") and ": fedsce, msfkd, mine;" in text for text in remarks)
    said = (
        "Needs proxy data, which no client owns and the other rows do without: msfkd (500 samples), fedmd (40 samples)."
    )
    assert said in remarks
    assert "Learns on synthetic data, which a generator makes for it: fedgd (60 samples)." in remarks
    assert "Our reading" in to_markdown(comparison_table(comparison))
    assert "Our reading" in " ".join(run_table(runs["fedsce"][0]).remarks)
    assert "proxy" not in " ".join(comparison_table(hand_made(three_seeds())).remarks)


def with_clients(method, seed, worst, sd, correct, counts=((30, 2, 9),)):
    """Return a run of two clients with right answers of 10, 4 and 6 test samples by class."""
    run = hand_made_run(method, seed, 0.5)
    run.summary["last"].update(local_accuracy_worst=worst, local_accuracy_sd_clients=sd)
    run.summary.update(counts=[list(own) for own in counts], class_names=["a", "b", "c"])
    halves = ([5, 2, 3], [one // 2 for one in correct]), ([5, 2, 3], [one - one // 2 for one in correct])
    rows = [
        {"kind": "client", "round": 5, "client": client, "scores": {"test_local": {"correct": right, "count": count}}}
        for client, (count, right) in enumerate(halves)
    ]
    return RunRecord(run.path, run.config, rows, run.summary)


def test_worst_client_deviation_and_rarest_class_are_means_over_seeds():
    # On seed 0 class b is the rarest, with 2 training samples: 1 of 4 right; on seed 1 class c, with 1: 3 of 6.
    runs = {
        "local": {
            0: with_clients("local", 0, 0.2, 0.1, (9, 1, 6)),
            1: with_clients("local", 1, 0.4, 0.2, (9, 4, 3), ((30, 2, 1),)),
        }
    }
    comparison = hand_made(runs, seeds=[0, 1])
    table = comparison_table(comparison)
    frame = pd.read_csv(StringIO(to_csv(table)))
    found = frame[["local_accuracy_worst", "local_accuracy_sd_clients", "local_accuracy_rarest_class"]]
    assert found.iloc[0].tolist() == pytest.approx([0.3, 0.15, 0.375])
    assert comparison.table()[0]["rarest_class"] == {
        "mean": pytest.approx(0.375), "sd": pytest.approx(0.25 / 2**0.5), "n": 2, "classes": ["b", "c"],
    }  # fmt: skip
    assert cells(table)["worst client %"] == ("30.00",)
    assert "(b, c; each seed has its own)" in " ".join(table.details)
    page = to_html(table)
    assert page.count("<table") == 2
    assert "rarest class %" in page
    assert "worst" not in to_markdown(table)


def test_a_class_without_training_samples_is_not_the_rarest():
    run = with_clients("local", 0, 0.2, 0.1, (9, 1, 6), ((30, 0, 1), (1, 0, 8)))
    assert rarest_class(run) == 2
    assert rarest_class(hand_made_run("local", 0, 0.5)) is None
