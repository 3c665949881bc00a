"""The figures that public code would report, beside ours."""

from pathlib import Path

import pytest

from motley.record.load import RunRecord
from motley.record.summary import best_test_round, summarise
from motley.report.published import published_table

# Mean over clients and over samples by round: ours is the last mean, the best mean is that of round 2, the largest
# accuracy over samples that of round 1.
FIRST = ((0.10, 0.20), (0.60, 0.90), (0.70, 0.80), (0.65, 0.75))
SECOND = ((0.10, 0.20), (0.50, 0.70), (0.55, 0.60), (0.55, 0.65))


def round_row(number, mean, pooled):
    metrics = {} if mean is None else {"local_accuracy": mean, "local_accuracy_pooled": pooled}
    return {"kind": "round", "round": number, "metrics": metrics, "seconds": {}, "missing": {}}


def client_row(number, client, steps):
    train = None if number == 0 else {"steps": steps}
    return {"kind": "client", "round": number, "client": client, "active": number > 0, "train": train, "traffic": {}}


def run(seed, figures, *, method="local", status="finished", steps=(1, 1), **config):
    rows = [round_row(number, *one) for number, one in enumerate(figures)]
    rows += [client_row(number, k, own) for number in range(len(figures)) for k, own in enumerate(steps)]
    summary = {"status": status, **summarise([row for row in rows if row["kind"] == "round"])}
    return RunRecord(Path("run"), {"method": method, "run": {"seed": seed}, **config}, rows, summary)


def shown(table):
    return {column.heading: column.cells for column in table.columns}


def test_the_published_figure_is_the_best_round_over_samples_and_ours_the_last_mean():
    table = published_table({"local": {0: run(0, FIRST)}}, None)
    found = shown(table)
    assert found["local %"] == ("65.00",)
    assert found["published (oracle) %"] == ("90.00",)
    assert found["best rounds"] == ("1",)
    assert found["best test round"] == ("+5.00",)  # 70 of round 2 instead of 65 of round 3
    assert found["over samples"] == ("+20.00",)  # 90 instead of 70
    assert found["local sd"] == found["published (oracle) sd (n)"] == ("-",)
    assert "difference" not in " ".join(found)
    assert "4 evaluations" in " ".join(table.rules)
    assert "an oracle, never a headline" in " ".join(table.rules)
    assert all(column.group for column in table.columns[2:])
    assert {column.group for column in table.columns if "published" in column.heading} == {"as published (oracle)"}


def test_deviations_have_the_divisor_of_their_protocol():
    found = shown(published_table({"local": {0: run(0, FIRST), 1: run(1, SECOND)}}, None))
    assert found["local sd"] == ("7.07",)  # 65 and 55: 10 / sqrt(2)
    assert found["published (oracle) sd (n)"] == ("10.00",)  # 90 and 70: 20 / 2


def test_differences_are_paired_inside_of_each_protocol():
    rows = {"local": {0: run(0, FIRST), 1: run(1, SECOND)}, "fml": {1: run(1, FIRST, method="fml")}}
    table = published_table(rows, "local")
    found = shown(table)
    assert found["local difference"] == ("reference", "+10.00")  # 65 against 55, seed 1 alone
    assert found["published (oracle) difference"] == ("reference", "+20.00")
    data = {name: values for column in table.columns for name, values in column.data.items()}
    assert data["published_difference"] == (None, pytest.approx(0.2))
    assert data["local_accuracy_sd_ddof1"][0] == pytest.approx(0.0707107, abs=1e-6)


def test_the_papers_figures_stand_beside_those_as_published():
    paper = {"source": "Table I", "values": {"local": [85.43, 0.39]}, "departures": ["fewer rounds"]}
    table = published_table({"local": {0: run(0, FIRST)}, "fml": {0: run(0, FIRST)}}, "local", paper)
    found = shown(table)
    assert found["paper %"] == ("85.43 ± 0.39", "-")
    assert found["ours - paper"] == ("+4.57", "-")  # 90 as published, not the 65 of ours
    assert "paper: Table I" in table.rules[-1]
    assert table.remarks[-1] == "Departs from the published setting: fewer rounds"


def test_only_finished_runs_count_and_the_others_are_told():
    rows = {"local": {0: run(0, FIRST), 1: run(1, SECOND, status="interrupted")}, "fml": {}}
    table = published_table(rows, "local")
    assert shown(table)["n"] == ("1", "0")
    assert shown(table)["published (oracle) %"] == ("90.00", "-")
    assert table.remarks[0] == "1 run not finished, and left out."


def test_rounds_that_were_not_evaluated_are_no_candidates():
    sparse = ((0.1, 0.2), (None, None), (0.6, 0.7))
    assert best_test_round(run(0, sparse).rows, "local_accuracy_pooled")["round"] == 2
    assert best_test_round(run(0, sparse).rows, "validation_accuracy") is None
    assert "2 evaluations" in " ".join(published_table({"local": {0: run(0, sparse)}}, None).rules)


def test_clients_that_never_trained_are_named_by_seed():
    rows = {"local": {0: run(0, FIRST, steps=(1, 0)), 3: run(3, FIRST)}, "fml": {0: run(0, FIRST, steps=(0, 0))}}
    (told,) = published_table(rows, "local").remarks
    assert told == "Never trained, since their samples fill no batch: clients 0, 1 (seeds 0)."
    rows["local"][7], rows["local"][8] = run(7, FIRST, steps=(1, 0)), run(8, FIRST, steps=(1, 0))
    (told,) = published_table(rows, "local").remarks
    assert told.endswith(": clients 0, 1 (seeds 0); clients 1 (seeds 7, 8).")


def test_habits_are_told_with_what_is_as_ours():
    config = {
        "train": {"shuffle": False, "last_batch": "keep"},
        "models": {"init_seed": 0, "same_start": True},
        "partition": {"seed": "run"},
        "fml": {"kl": "element-mean"},
    }
    (told,) = published_table({"fml": {0: run(0, FIRST, method="fml", **config)}}, None).remarks
    published, ours = told.split("; as ours: ")
    for part in ("train.shuffle = false", "models.same_start = true", "models.init_seed = 0", "fml.kl = element-mean"):
        assert part in published
    assert ours == "train.last_batch = keep, partition.seed = run."
