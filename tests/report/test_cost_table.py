"""The table of a cost study, and the published one beside it."""

import csv
import io
from dataclasses import replace

import pytest

from motley.record.cost import CostStudy, Flops, Footprint, MethodCost, Sent, Work
from motley.report.cost import cost_data, cost_table, flops_text, published
from motley.report.render import to_csv, to_latex, to_markdown

EXTRA = Work(Flops(0, 12_800), Flops(0), Flops(0), Flops(40e9, 0.1e9), Flops(-2_621_440, 3_934_720), Flops(5, 7))
LOCAL = Work(Flops(40e9), Flops(76e9), inference=Flops(40e9))


def row(name: str, up: tuple[int, ...] = (110, 110), **more: object) -> MethodCost:
    return MethodCost(name, name, Sent(up, (200, 200), tuple(4 * one for one in up), (800, 800)), EXTRA, **more)


@pytest.fixture
def study() -> CostStudy:
    return CostStudy(
        "fedtopo8", 10, 512, 8, 2, 256, 2, LOCAL, methods=(row("fedtopo"), row("fedtopo-sparse", (11, 20)))
    )


def cells(study: CostStudy) -> dict[str, tuple[str, ...]]:
    return {column.heading: column.cells for column in cost_table(study).columns}


def test_the_cells_are_what_was_counted(study):
    shown = cells(study)
    assert shown["method"] == ("fedtopo", "fedtopo-sparse")
    assert shown["numbers up"] == ("110", "15.5 (11 to 20)")
    assert shown["bytes up"] == ("440 B", "62 B (44 B to 80 B)")
    assert [shown[name][0] for name in ("training", "teachers", "passes", "inference", "server")] == [
        "0", "0", "40.00 G", "-2.62 M", "5"
    ]  # fmt: skip
    assert shown["forward, all operations"][0] == "12.8 k"
    assert shown["with passes, all operations"][0] == "40.10 G"
    assert shown["inference, all operations"][0] == "1.31 M"


def test_the_paper_stands_beside_its_own_setting(study):
    shown = cells(study)
    assert shown["paper up"] == ("110", "-")
    assert shown["paper down"] == ("200", "-")
    assert shown["paper training"] == ("0.013 M", "-")
    assert shown["paper inference"] == ("0", "-")
    assert any("Table III, as printed" in rule for rule in cost_table(study).rules)
    assert cost_data(study)["paper"]["fedtopo"]["up"] == 110


@pytest.mark.parametrize("change", [{"models": "small4"}, {"classes": 9}, {"batch_size": 32}, {"feature_width": None}])
def test_the_paper_does_not_stand_beside_another_setting(study, change):
    table = cost_table(replace(study, **change))
    assert not any("paper" in column.heading for column in table.columns)
    assert "--models fedtopo8 with 10 classes" in table.remarks[-1]
    assert cost_data(replace(study, **change))["paper"] == {}


def test_without_a_method_of_the_paper_nothing_is_said_of_it(study):
    table = cost_table(replace(study, methods=(row("crad"),)))
    assert "Table III, as printed" not in " ".join((*table.rules, *table.remarks))


def test_the_published_numbers_are_those_of_the_sheet():
    # fedtopo.md, section 10, TABLE3.
    assert {name: (one["up"], one["down"], one["server_trains"]) for name, one in published()["methods"].items()} == {
        "fedgh": (5120, 5130, True),
        "fedmrl": (878538, 878538, False),
        "fedtgp": (5120, 5120, True),
        "fedtopo": (110, 200, False),
    }
    assert [one["training"] for one in published()["methods"].values()] == ["40.69 G", "4.30 G", "0.39 M", "0.013 M"]
    assert [one["inference"] for one in published()["methods"].values()] == ["0", "4.30 G", "3.93 M", "0"]


def test_time_and_memory_are_columns_where_they_were_measured(study):
    assert "time of a round" not in cells(study)
    timed = replace(
        study,
        local_footprint=Footprint(1.5, 100_000_000),
        methods=(row("crad", footprint=Footprint(3.0, 140_000_000)),),
    )
    shown = cells(timed)
    assert (shown["time of a round"], shown["peak memory"], shown["over Local"]) == (
        ("3.00 s",),
        ("140.0 MB",),
        ("40.0 MB",),
    )
    unknown = replace(timed, methods=(row("crad", footprint=Footprint(3.0, None)),))
    assert (cells(unknown)["peak memory"], cells(unknown)["over Local"]) == (("-",), ("-",))


def test_every_form_of_text_holds_the_table(study):
    table = cost_table(study)
    found = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert [line["up_scalars"] for line in found] == ["110.0", "15.5"]
    assert (found[1]["up_scalars_least"], found[1]["up_scalars_most"]) == ("11", "20")
    assert float(found[0]["passes_products"]) == 40e9
    assert to_markdown(table).startswith("| method ")
    assert r"\toprule" in to_latex(table)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (999, "999"), (12_832, "12.8 k"), (-2_621_440, "-2.62 M"), (4.2996e9, "4.30 G"), (1.5e12, "1.50 T")],
)
def test_numbers_of_operations_are_short(value, text):
    assert flops_text(value) == text
