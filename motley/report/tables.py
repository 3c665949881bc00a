"""The final table of a comparison or a run: plain columns, the rule that they follow, and remarks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from motley.record.comparison import Comparison, method_line
from motley.record.load import RunRecord
from motley.record.summary import TRAFFIC
from motley.report.columns import Column, Table, Value
from motley.report.known import remarks_on_methods
from motley.report.material import FINISHED, Runs, finished, status, with_summary
from motley.report.paper import paper_columns, remark_on_paper, rules_of_paper
from motley.report.rules import few_seeds, rule_of_rarest, rules_of, rules_of_details, without_data
from motley.report.wording import MISSING, duration, interval, number, p_value, percent, points, size

Line = Mapping[str, Any]

FIGURES = {  # key of a line: name of the group, and what stands before a title outside of it
    "local": ("local accuracy", "local"),
    "global": ("global accuracy", "global"),
    "local_selected": ("local, selected round", "local selected"),
    "global_selected": ("global, selected round", "global selected"),
}
RAREST = "local_accuracy_rarest_class"


def comparison_table(comparison: Comparison) -> Table:
    """Return the table of a comparison; only runs that finished count, and the remarks name the others."""
    methods = comparison.config["compare"]["methods"]
    seeds = comparison.config["compare"]["seeds"]
    runs = {method: comparison.runs.get(method, {}) for method in methods}
    done = replace(comparison, runs={method: finished(own) for method, own in runs.items()})
    lines = done.table()
    paper = comparison.config.get("paper", {})
    spread = _spread_columns(lines)
    columns = _columns(lines, comparison.reference if len(methods) > 1 else None, paper, spread)
    open_runs = [
        f"{method} seed {seed}: {status(runs[method][seed]) if seed in runs[method] else 'not begun'}"
        for method in methods
        for seed in seeds
        if seed not in done.runs[method]
    ]
    remarks = [f"Not finished, and left out: {'; '.join(_first(open_runs))}."] if open_runs else []
    everything = [run for own in done.runs.values() for run in own.values()]
    remarks += few_seeds(lines) + remarks_on_methods(comparison.methods, comparison.runs) + without_data(everything)
    remarks += remark_on_paper(paper, columns)
    remarks += [f"Departs from the published setting: {text}" for text in paper.get("departures", ())]
    rules = (*rules_of(lines, everything, comparison.reference), *rules_of_paper(paper, columns))
    return Table(columns, rules, tuple(remarks), tuple(rules_of_details(lines)))


def run_table(run: RunRecord) -> Table:
    """Return the table of one run, with what its clients differ in; an unfinished one at its last evaluated round."""
    run = with_summary(run)
    line = method_line(run.method, {run.seed: run}, {})
    remarks = ["One run gives no deviation over seeds and no interval; 'motley compare' repeats it with several seeds."]
    if status(run) != FINISHED:
        last, asked = run.summary.get("rounds"), run.config["run"]["rounds"]
        remarks.insert(0, f"The run is {status(run)}: these are the figures after {last or 0} of {asked} rounds.")
    remarks += remarks_on_methods({run.method: run.method}, {run.method: {run.seed: run}}) + without_data([run])
    columns = _columns([line], None, over_clients=_columns_of_clients(line, run))
    return Table(columns, (*rules_of([line], [run]), *rule_of_rarest([line])), tuple(remarks))


def _columns(
    lines: Sequence[Line],
    reference: str | None,
    paper: Mapping[str, Any] | None = None,
    over_clients: Sequence[Column] = (),
) -> tuple[Column, ...]:
    names = tuple(str(line["method"]) for line in lines)
    columns = [
        Column("", "method", "method", names, {"method": names}, text=True),
        Column("", "n", "n", *_cells([len(line["seeds"]) for line in lines], "n", str)),
    ]
    for key in FIGURES:
        found = [line.get(key) or {} for line in lines]
        if any(found):
            columns += _accuracy_columns(key, found, names, reference)
            if paper and key == paper.get("figure", "local"):
                columns += paper_columns(paper.get("values", {}), names, [one.get("mean") for one in found])
    return (*columns, *over_clients, *_cost_columns(lines))


def _accuracy_columns(key: str, found: Sequence[Line], names: Sequence[str], reference: str | None) -> list[Column]:
    group, prefix = FIGURES[key]
    columns = [
        Column(group, "%", f"{prefix} %", *_cells([one.get("mean") for one in found], f"{key}_accuracy", percent)),
        Column(
            group, "sd", f"{prefix} sd", *_cells([one.get("sd") for one in found], f"{key}_accuracy_sd_seeds", percent)
        ),
    ]
    if reference is None:
        return columns
    paired = [one.get("difference") or {} for one in found]
    means, data = _cells([one.get("mean") for one in paired], f"{key}_difference", points)
    shown = tuple("reference" if name == reference else cell for name, cell in zip(names, means, strict=True))
    ends = {f"{key}_difference_{end}": tuple(one.get(end) for one in paired) for end in ("low", "high")}
    between = tuple(
        "" if name == reference else interval(one.get("low"), one.get("high"))
        for name, one in zip(names, paired, strict=True)
    )
    halves = [one.get("smallest_visible") for one in paired]
    tested = {f"{key}_difference_{name}": tuple(one.get(name) for one in paired) for name in ("p", "p_holm")}
    chances = tuple(
        "" if name == reference else p_value(one.get("p_holm")) for name, one in zip(names, paired, strict=True)
    )
    return [
        *columns,
        Column(group, "difference", f"{prefix} difference", shown, data),
        Column(group, "95 % interval", f"{prefix} 95 % interval", between, ends),
        Column(
            group,
            "smallest visible",
            f"{prefix} smallest visible",
            *_cells(halves, f"{key}_difference_smallest_visible", percent),
            detail=True,
        ),
        Column(group, "p (Holm)", f"{prefix} p (Holm)", chances, tested, detail=True),
    ]


def _spread_columns(lines: Sequence[Line]) -> list[Column]:
    """Return details of whom a mean over clients hides: the worst client, the deviation, the rarest class."""
    kinds = (
        ("local", "worst", "local, over clients", "worst %", "worst client %"),
        ("local", "sd_clients", "local, over clients", "sd", "sd of clients"),
        ("global", "worst", "global, over clients", "worst %", "global worst client %"),
        ("global", "sd_clients", "global, over clients", "sd", "global sd of clients"),
        ("rarest_class", "mean", "local, over samples", "rarest class %", "rarest class %"),
    )
    columns = []
    for figure, key, group, title, heading in kinds:
        values = [(line.get(figure) or {}).get(key) for line in lines]
        name = RAREST if figure == "rarest_class" else f"{figure}_accuracy_{key}"
        if any(value is not None for value in values):
            columns.append(Column(group, title, heading, *_cells(values, name, percent), detail=True))
    return columns


def _cost_columns(lines: Sequence[Line]) -> list[Column]:
    def pair(kind: str, show: Any) -> tuple[str, ...]:
        ends = [(show(line.get(f"up_{kind}")), show(line.get(f"down_{kind}"))) for line in lines]
        return tuple(MISSING if up == down == MISSING else f"{up} / {down}" for up, down in ends)

    data = {name: tuple(line.get(name) for line in lines) for name in TRAFFIC}
    group = "per client and round"
    scalars = {name: values for name, values in data.items() if name.endswith("scalars")}
    sizes = {name: values for name, values in data.items() if name.endswith("bytes")}
    return [
        Column(group, "numbers up / down", "numbers up / down", pair("scalars", number), scalars),
        Column(group, "bytes up / down", "bytes up / down", pair("bytes", size), sizes),
        Column("time", "of a run", "time", *_cells([line.get("seconds") for line in lines], "seconds", duration)),
    ]


def _columns_of_clients(line: Line, run: RunRecord) -> list[Column]:
    pooled = _cells([run.final.get("local_accuracy_pooled")], "local_accuracy_pooled", percent)
    return [
        *(replace(column, detail=False) for column in _spread_columns([line])),
        Column("local, over samples", "over samples %", "over samples %", *pooled),
    ]


def _cells(values: Sequence[Any], name: str, show: Any) -> tuple[tuple[str, ...], dict[str, tuple[Value, ...]]]:
    return tuple(show(value) for value in values), {name: tuple(values)}


def _first(items: list[str], most: int = 12) -> list[str]:
    return items if len(items) <= most else [*items[:most], f"and {len(items) - most} more"]


def single_runs(comparison: Comparison) -> dict[str, Runs]:
    """Return the runs of a comparison, unfinished ones with the figures of their rows so far."""
    return {method: {seed: with_summary(run) for seed, run in runs.items()} for method, runs in comparison.runs.items()}
