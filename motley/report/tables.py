"""The final table of a comparison or a run: plain columns, the rule that they follow, and remarks."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from motley.functional.statistics import mean_sd
from motley.record.comparison import Comparison, method_line
from motley.record.load import RunRecord
from motley.record.summary import TRAFFIC
from motley.report.columns import Column, Table, Value
from motley.report.material import FINISHED, Runs, finished, majority_accuracy, status, with_summary
from motley.report.paper import paper_columns, rules_of_paper
from motley.report.wording import MISSING, duration, interval, number, percent, plural, points, size

Line = Mapping[str, Any]

FIGURES = {  # key of a line: name of the group, and what stands before a title outside of it
    "local": ("local accuracy", "local"),
    "global": ("global accuracy", "global"),
    "local_selected": ("local, selected round", "local selected"),
    "global_selected": ("global, selected round", "global selected"),
}
ALONE = "local"  # the method that shares nothing


def comparison_table(comparison: Comparison) -> Table:
    """Return the table of a comparison; only runs that finished count, and the remarks name the others."""
    methods = comparison.config["compare"]["methods"]
    seeds = comparison.config["compare"]["seeds"]
    runs = {method: comparison.runs.get(method, {}) for method in methods}
    done = replace(comparison, runs={method: finished(own) for method, own in runs.items()})
    lines = done.table()
    paper = comparison.config.get("paper", {})
    columns = _columns(lines, comparison.reference if len(methods) > 1 else None, paper)
    open_runs = [
        f"{method} seed {seed}: {status(runs[method][seed]) if seed in runs[method] else 'not begun'}"
        for method in methods
        for seed in seeds
        if seed not in done.runs[method]
    ]
    remarks = [f"Not finished, and left out: {'; '.join(_first(open_runs))}."] if open_runs else []
    if max((len(line["seeds"]) for line in lines), default=0) == 1:
        remarks.append("One seed gives no deviation and no interval; add seeds to tell methods apart (--seeds 0,1,2).")
    everything = [run for own in done.runs.values() for run in own.values()]
    remarks += _without_data(everything) + [
        f"Departs from the published setting: {text}" for text in paper.get("departures", ())
    ]
    return Table(columns, (*_rules(lines, everything), *rules_of_paper(paper)), tuple(remarks))


def run_table(run: RunRecord) -> Table:
    """Return the table of one run, with what its clients differ in; an unfinished one at its last evaluated round."""
    run = with_summary(run)
    line = method_line(run.method, {run.seed: run}, {})
    remarks = ["One run gives no deviation over seeds and no interval; 'motley compare' repeats it with several seeds."]
    if status(run) != FINISHED:
        last, asked = run.summary.get("rounds"), run.config["run"]["rounds"]
        remarks.insert(0, f"The run is {status(run)}: these are the figures after {last or 0} of {asked} rounds.")
    columns = (*_columns([line], None), *_columns_over_clients(run))
    return Table(columns, tuple(_rules([line], [run])), tuple(remarks + _without_data([run])))


def _columns(
    lines: Sequence[Line], reference: str | None, paper: Mapping[str, Any] | None = None
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
    columns += _cost_columns(lines)
    return tuple(columns)


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
    return [
        *columns,
        Column(group, "difference", f"{prefix} difference", shown, data),
        Column(group, "95 % interval", f"{prefix} 95 % interval", between, ends),
    ]


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


def _columns_over_clients(run: RunRecord) -> list[Column]:
    last, group = run.final, "local, over clients"
    return [
        Column(group, title, heading, *_cells([last.get(name)], name, percent))
        for title, heading, name in (
            ("worst %", "worst client %", "local_accuracy_worst"),
            ("sd", "sd of clients", "local_accuracy_sd_clients"),
            ("over samples %", "over samples %", "local_accuracy_pooled"),
        )
    ]


def _cells(values: Sequence[Any], name: str, show: Any) -> tuple[tuple[str, ...], dict[str, tuple[Value, ...]]]:
    return tuple(show(value) for value in values), {name: tuple(values)}


def _rules(lines: Sequence[Line], runs: Sequence[RunRecord]) -> list[str]:
    rounds = sorted({run.final["round"] for run in runs if run.final})
    at = f"the last round ({', '.join(map(str, rounds))})" if rounds else "the last round"
    rules = [
        f"Headline: local accuracy, the mean over clients of the accuracy on each client's own test part, at {at}; "
        "all clients are evaluated, whether they took part or not."
    ]
    if any("global" in line for line in lines):
        rules.append(
            "Global accuracy: the mean over clients of the accuracy on the common test set, at the same round."
        )
    if any("local_selected" in line for line in lines):
        rules.append(
            "Selected: at the first round with the best mean validation accuracy; test data never select anything."
        )
    rules.append("n runs, one a seed; sd over seeds with divisor n - 1.")
    rules += _rule_of_differences(lines)
    rules += _rule_of_levels(lines, runs)
    return rules


def _rule_of_differences(lines: Sequence[Line]) -> list[str]:
    rules, paired = [], [line for line in lines if (line.get("local") or {}).get("difference")]
    if paired:
        rules.append(
            "Differences to the reference are paired on equal seeds, in percentage points, with Student's t interval."
        )
    visible = [
        f"{line['method']} {100 * half:.2f}"
        for line in paired
        if (half := line["local"]["difference"]["smallest_visible"]) is not None
    ]
    if visible:
        rules.append(
            "Smallest difference of local accuracy that could have been seen (half of the interval), in points: "
            f"{', '.join(visible)}."
        )
    return rules


def _rule_of_levels(lines: Sequence[Line], runs: Sequence[RunRecord]) -> list[str]:
    """Tell what to hold the figures against: chance, the majority class, and training alone."""
    parts = []
    chance = next((run.summary["chance"] for run in runs if run.summary.get("chance")), None)
    if chance is not None:
        parts.append(f"chance {percent(chance, 1)} %")
    majority = mean_sd([value for run in runs if (value := majority_accuracy(run)) is not None]).mean
    if majority is not None:
        parts.append(f"always each client's most frequent class {percent(majority, 1)} %")
    alone = next((line["local"]["mean"] for line in lines if line["method"] == ALONE and line.get("local")), None)
    parts.append(
        f"training alone ({ALONE}) {percent(alone)} %" if alone is not None else f"training alone ({ALONE}) was not run"
    )
    return [f"To hold local accuracy against: {', '.join(parts)}."]


def _without_data(runs: Sequence[RunRecord]) -> list[str]:
    most = max((run.final.get("local_accuracy_clients_without_data") or 0 for run in runs), default=0)
    return [f"{plural(most, 'client')} without test samples: left out of the mean over clients."] if most else []


def _first(items: list[str], most: int = 12) -> list[str]:
    return items if len(items) <= most else [*items[:most], f"and {len(items) - most} more"]


def single_runs(comparison: Comparison) -> dict[str, Runs]:
    """Return the runs of a comparison, unfinished ones with the figures of their rows so far."""
    return {method: {seed: with_summary(run) for seed, run in runs.items()} for method, runs in comparison.runs.items()}
