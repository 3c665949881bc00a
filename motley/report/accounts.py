"""The sections that account for a run: who was left out, what was sent, how long it took."""

from typing import Any

from motley.functional.statistics import mean_sd
from motley.record.load import RunRecord
from motley.record.summary import TRAFFIC
from motley.report.sections import MOST_ROWS, Grid, Methods, Section
from motley.report.wording import duration, number, percent, plural, size

ACCURACIES = ("local_accuracy:honest", "local_accuracy", "global_accuracy:honest", "global_accuracy")


def missing_section(runs: Methods) -> Section:
    """Return who was left out, when and why."""
    rows = [
        (method, str(seed), str(one["round"]), str(one["client"]), str(one["reason"]))
        for method, own in runs.items()
        for seed, run in own.items()
        for one in run.summary.get("missing", [])
    ]
    if not rows:
        return Section("missing", "Missing clients", "No upload was left out.")
    more = f"The first {MOST_ROWS} of {len(rows)}; summary.json has all." if len(rows) > MOST_ROWS else ""
    grid = Grid("", ("method", "seed", "round", "client", "reason"), rows[:MOST_ROWS], more)
    return Section("missing", "Missing clients", f"{plural(len(rows), 'upload')} left out.", grids=[grid])


def faults_section(runs: Methods) -> list[Section]:
    """Return the accuracies at the last round with and without the faulty peers; no section if there are none."""
    rows = []
    for method, own in runs.items():
        told = [run.summary["last"] for run in own.values() if "faults" in run.summary and run.summary.get("last")]
        if told:
            rows.append((method, *(_mean_percent(told, name) for name in ACCURACIES)))
    if not rows:
        return []
    lead = (
        "Means over the clients: those that are not faulty, and all, in per cent at the last round. Faulty peers are "
        "evaluated with the model that they have, whatever they send."
    )
    head = ("method", "local, honest", "local, all", "global, honest", "global, all")
    return [Section("faults", "Without the faulty peers", lead, grids=[Grid("", head, rows)])]


def _mean_percent(told: list[dict[str, Any]], name: str) -> str:
    known = [value for one in told if (value := one.get(name)) is not None]
    return percent(mean_sd(known).mean if known else None)


def traffic_section(runs: Methods) -> Section:
    """Return what was sent and how long it took, as means over the runs of a method."""
    rows = []
    for method, own in runs.items():
        told = [_costs(run) for run in own.values()]
        known = {
            name: [value for one in told if (value := one[name]) is not None] for name in (told[0] if told else ())
        }
        mean = {name: mean_sd(values).mean for name, values in known.items()}
        rows.append(
            (
                method,
                *(number(mean.get(name)) for name in ("up_scalars", "down_scalars")),
                *(size(mean.get(name)) for name in ("up_bytes", "down_bytes", "total_bytes")),
                *(duration(mean.get(name)) for name in ("train", "evaluate", "round")),
            )
        )
    head = (
        "method",
        "numbers up",
        "numbers down",
        "bytes up",
        "bytes down",
        "bytes of a run",
        "training",
        "evaluation",
        "a round",
    )
    lead = (
        "Numbers and bytes per client and round, over those who took part; the bytes of a run are all of them, up and "
        "down. Times are those of a whole run, and training and evaluation of one round together."
    )
    return Section("costs", "Communication and time", lead, grids=[Grid("", head, rows)])


def _costs(run: RunRecord) -> dict[str, float | None]:
    traffic, seconds = run.summary["traffic"], run.summary["seconds"]
    sent = [row["traffic"] for row in run.rows if row["kind"] == "client" and row["traffic"]]
    played = run.summary.get("rounds") or 0
    return {
        **{name: traffic.get(name) for name in TRAFFIC},
        "total_bytes": float(sum(one["up_bytes"] + one["down_bytes"] for one in sent)) if sent else None,
        "train": seconds["train"] if played else None,
        "evaluate": seconds["evaluate"] if played else None,
        "round": (seconds["train"] + seconds["evaluate"]) / played if played else None,
    }
