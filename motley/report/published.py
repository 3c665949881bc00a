"""The figures of runs as public code reports them, beside ours: what the number in a published table may mean.

    ours            the last round, mean over clients, deviation over seeds with divisor n - 1
    as published    the largest accuracy over samples of all evaluated rounds, deviation with divisor n: an oracle,
                    since test data choose the round; it is shown here alone and never a headline

Source: FedTopo sheet, section 11 (facts of HtFLlib); rule R8 of the server methods.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from motley.functional.statistics import mean_sd
from motley.record.load import RunRecord
from motley.record.summary import best_test_round
from motley.report.columns import Column, Table
from motley.report.known import remarks_on_methods
from motley.report.material import Runs, finished
from motley.report.paper import paper_columns
from motley.report.wording import MISSING, percent, plural, points

Values = Mapping[int, float | None]  # by seed

MEAN, POOLED = "local_accuracy", "local_accuracy_pooled"
OURS, STEPS, THEIRS = "ours", "from ours to the published figure", "as published (oracle)"
HABITS: Mapping[tuple[str, str], Callable[[Any], bool]] = {  # options that public code would have set so
    ("train", "shuffle"): lambda value: value is False,
    ("train", "last_batch"): lambda value: value == "drop",
    ("train", "class_means"): lambda value: value == "batches",
    ("models", "same_start"): lambda value: value is True,
    ("models", "init_seed"): lambda value: isinstance(value, int),
    ("partition", "seed"): lambda value: isinstance(value, int),
    ("", "kl"): lambda value: value == "element-mean",  # an option of the method itself, where it has one
}


def published_table(runs: Mapping[str, Runs], reference: str | None, paper: Mapping[str, Any] | None = None) -> Table:
    """Return ours and the published figure of every row, with what lies between them; finished runs alone count.

    Args:
        runs: By name of the row and by seed.
        reference: Name of the row that the others are compared with, if there are several.
        paper: The section `paper` of the comparison, whose figures stand beside those as published.
    """
    done = {name: finished(own) for name, own in runs.items()}
    names, everything = tuple(done), [run for own in done.values() for run in own.values()]
    last = [_values(own, _last) for own in done.values()]
    best = [_values(own, _best_mean) for own in done.values()]
    oracle = [_values(own, _oracle) for own in done.values()]
    rounds = tuple(_rounds(own) for own in done.values())
    columns: tuple[Column, ...] = (
        Column("", "method", "method", names, {"method": names}, text=True),
        Column("", "n", "n", tuple(str(len(own)) for own in done.values()), {"n": tuple(map(len, done.values()))}),
        *_figures(OURS, "local", last, names, reference, ddof=1),
        _gain("best test round", "best_round_gain", best, last),
        _gain("over samples", "over_samples_gain", oracle, best),
        *_figures(THEIRS, "published", oracle, names, reference, ddof=0),
        Column(THEIRS, "rounds", "best rounds", rounds, {"best_rounds": rounds}),
    )
    rules, paper = _rules(everything), paper or {}
    if paper.get("values"):
        columns += tuple(paper_columns(paper["values"], names, [mean_sd(_known(own)).mean for own in oracle]))
        rules.append(f"paper: {paper.get('source') or 'published figures'}; ours - paper: as published, minus it.")
    left = sum(map(len, runs.values())) - len(everything)
    remarks = [f"{plural(left, 'run')} not finished, and left out."] if left else []
    remarks += [*_untrained(everything), *_habits(everything)]
    remarks += remarks_on_methods({name: run.method for name, own in done.items() for run in own.values()}, done)
    remarks += [f"Departs from the published setting: {text}" for text in paper.get("departures", ())]
    return Table(columns, tuple(rules), tuple(remarks))


def _values(runs: Runs, figure: Callable[[RunRecord], float | None]) -> Values:
    return {seed: figure(run) for seed, run in runs.items()}


def _known(values: Values) -> list[float]:
    return [value for value in values.values() if value is not None]


def _last(run: RunRecord) -> float | None:
    return run.final.get(MEAN)


def _best_mean(run: RunRecord) -> float | None:
    return (best_test_round(run.rows, MEAN) or {}).get(MEAN)


def _oracle(run: RunRecord) -> float | None:
    return (best_test_round(run.rows, POOLED) or {}).get(POOLED)


def _rounds(runs: Runs) -> str:
    found = [best_test_round(run.rows, POOLED) for _, run in sorted(runs.items())]
    return ", ".join(str(one["round"]) for one in found if one) or MISSING


def _figures(
    group: str, name: str, values: Sequence[Values], names: Sequence[str], reference: str | None, *, ddof: Any
) -> list[Column]:
    found = [mean_sd(_known(own), ddof) for own in values]
    sd = "sd (n)" if ddof == 0 else "sd"
    means, deviations = tuple(one.mean for one in found), tuple(one.sd for one in found)
    heading = name if group == OURS else f"{name} (oracle)"
    columns = [
        Column(group, "%", f"{heading} %", tuple(map(percent, means)), {f"{name}_accuracy": means}),
        Column(
            group,
            sd,
            f"{heading} {sd}",
            tuple(map(percent, deviations)),
            {f"{name}_accuracy_sd_ddof{ddof}": deviations},
        ),
    ]
    if reference is None or len(names) == 1:
        return columns
    others = values[names.index(reference)] if reference in names else {}
    gains = tuple(None if row == reference else _mean_gain(own, others) for row, own in zip(names, values, strict=True))
    shown = tuple("reference" if row == reference else points(gain) for row, gain in zip(names, gains, strict=True))
    return [*columns, Column(group, "difference", f"{heading} difference", shown, {f"{name}_difference": gains})]


def _gain(title: str, name: str, values: Sequence[Values], others: Sequence[Values]) -> Column:
    gains = tuple(_mean_gain(own, other) for own, other in zip(values, others, strict=True))
    return Column(STEPS, title, title, tuple(map(points, gains)), {name: gains})


def _mean_gain(values: Values, others: Values) -> float | None:
    """Return the mean of values - others over the seeds that have both."""
    pairs = [
        value - other for seed, value in values.items() if value is not None and (other := others.get(seed)) is not None
    ]
    return mean_sd(pairs).mean


def _rules(runs: Sequence[RunRecord]) -> list[str]:
    evaluations = sorted({sum(bool(row["kind"] == "round" and row["metrics"]) for row in run.rows) for run in runs})
    among = f"{', '.join(map(str, evaluations))} evaluations" if evaluations else "all evaluations"
    return [
        "Ours, the headline: local accuracy at the last round, the mean over clients; sd over seeds, divisor n - 1.",
        f"As published: the largest local accuracy over samples of {among} (the one before round 1 included), sd with "
        "divisor n. Test data choose the round: an oracle, never a headline.",
        "Best test round: what choosing the round by test data adds to the headline; over samples: what the mean over "
        "samples and its own best round add to that. Both and the differences are means over seeds, in points.",
    ]


def _untrained(runs: Iterable[RunRecord]) -> list[str]:
    """Name the clients that took part and never took a step."""
    found: dict[int, set[int]] = {}
    for run in runs:
        steps: dict[int, int] = {}
        for row in run.rows:
            if row["kind"] == "client" and row["active"] and row["train"]:
                steps[row["client"]] = steps.get(row["client"], 0) + row["train"]["steps"]
        if still := {client for client, number in steps.items() if not number}:
            found.setdefault(run.seed, set()).update(still)
    texts = {seed: ", ".join(map(str, sorted(clients))) for seed, clients in sorted(found.items())}
    seeds = {text: [seed for seed, own in texts.items() if own == text] for text in texts.values()}
    told = "; ".join(f"clients {text} (seeds {', '.join(map(str, own))})" for text, own in seeds.items())
    return [f"Never trained, since their samples fill no batch: {told}."] if told else []


def _habits(runs: Iterable[RunRecord]) -> list[str]:
    """Tell which of public code's habits of training the runs have, in options."""
    kept: list[str] = []
    others: list[str] = []
    for run in runs:
        for (section, name), habit in HABITS.items():
            place = section or run.method
            if name in (options := run.config.get(place, {})):
                value = options[name]
                shown = str(value).lower() if isinstance(value, bool) else value
                (kept if habit(value) else others).append(f"{place}.{name} = {shown}")
    if not kept + others:
        return []
    ours = f"; as ours: {', '.join(dict.fromkeys(others))}" if others else ""
    return [f"Habits of public code in the training itself: {', '.join(dict.fromkeys(kept)) or 'none'}{ours}."]
