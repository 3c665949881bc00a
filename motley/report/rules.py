"""The sentences below a table: how its figures were made, what to hold them against, and what is too small."""

from collections.abc import Mapping, Sequence
from typing import Any

from motley.functional.statistics import interval_factor, mean_sd
from motley.record.load import RunRecord
from motley.report.material import majority_accuracy
from motley.report.wording import percent, plural

Line = Mapping[str, Any]

ALONE = "local"  # the method that shares nothing
LEVEL = 0.05  # of all tests of a table together
MOST_NAMED = 8  # rows with a figure of their own in a sentence
FEW, MANY = 5, 10  # seeds: with fewer an interval is wide, with so many it is not


def rules_of(lines: Sequence[Line], runs: Sequence[RunRecord], reference: str | None = None) -> list[str]:
    """Return how the figures of a table were made, and what to hold them against."""
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
    rules += _rule_of_differences(lines, reference)
    rules += _rule_of_levels(lines, runs)
    return rules


def _rule_of_differences(lines: Sequence[Line], reference: str | None) -> list[str]:
    rules, paired = [], [line for line in lines if (line.get("local") or {}).get("difference")]
    if paired:
        rules.append(
            "Differences to the reference are paired on equal seeds, in percentage points, with Student's t interval."
        )
    halves = {str(line["method"]): line["local"]["difference"]["smallest_visible"] for line in paired}
    visible = [f"{name} {percent(half)}" for name, half in halves.items() if half is not None]
    if len(visible) > MOST_NAMED:
        in_order = sorted((half, name) for name, half in halves.items() if half is not None)
        ends = [f"{percent(half)} ({name})" for half, name in (in_order[0], in_order[-1])]
        visible = [f"from {' to '.join(ends)}; CSV and report have all"]
    if visible:
        rules.append(
            "Smallest difference of local accuracy that could have been seen (half of the interval), in points: "
            f"{', '.join(visible)}."
        )
    tested = {line["method"]: p for line in paired if (p := line["local"]["difference"].get("p_holm")) is not None}
    if len(tested) > 1:
        found = ", ".join(name for name, p in tested.items() if p < LEVEL) or "none of them"
        rules.append(
            f"Of many intervals 1 in 20 misses by chance; with Holm's correction over the {len(tested)} paired t tests "
            f"against {reference}, local accuracy differs (at {100 * LEVEL:.0f} %) in {found}."
        )
    return rules


def rules_of_details(lines: Sequence[Line]) -> list[str]:
    """Return how the columns were made that are details."""
    rules, found = [], [line.get("local") or {} for line in lines]
    if any(one.get("difference") for one in found):
        rules.append(
            "Smallest visible: half of the interval, in points. p (Holm): two-sided paired t test on equal seeds, "
            "adjusted over the rows."
        )
    if any(one.get("worst") is not None for one in found):
        rules.append("Worst client, and sd over clients (divisor: their number): of every run, mean over seeds.")
    return rules + rule_of_rarest(lines)


def rule_of_rarest(lines: Sequence[Line]) -> list[str]:
    """Return what the rarest class is, if there is one."""
    classes = dict.fromkeys(name for line in lines for name in (line.get("rarest_class") or {}).get("classes", ()))
    if not classes:
        return []
    shown = f"{', '.join(classes)}; each seed has its own" if len(classes) > 1 else next(iter(classes))
    return [
        f"Rarest class: that with the fewest training samples over all clients ({shown}); its accuracy is over the "
        "local test samples of all clients."
    ]


def few_seeds(lines: Sequence[Line]) -> list[str]:
    """Warn of intervals that say little, and tell what more seeds would give."""
    if max((len(line["seeds"]) for line in lines), default=0) == 1:
        return ["One seed gives no deviation and no interval; add seeds to tell methods apart (--seeds 0,1,2)."]
    pairs = [one["n"] for line in lines if (one := (line.get("local") or {}).get("difference")) and one["n"] > 1]
    n = min(pairs, default=FEW)
    if n >= FEW:
        return []
    more = ", ".join(f"with {other} {interval_factor(other):.1f}" for other in (FEW, MANY))
    return [
        f"{n} seeds are {'too few' if n < 3 else 'few'}: an interval reaches {interval_factor(n):.1f} sd of the paired "
        f"differences to either side ({more}), so smaller differences stay unseen, and an interval that holds 0 does "
        "not show that rows are equal."
    ]


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


def without_data(runs: Sequence[RunRecord]) -> list[str]:
    """Tell how many clients no figure is of."""
    most = max((run.final.get("local_accuracy_clientswithout_data") or 0 for run in runs), default=0)
    return [f"{plural(most, 'client')} without test samples: left out of the mean over clients."] if most else []
