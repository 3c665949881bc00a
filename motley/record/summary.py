"""What remains of a run in a few figures: the last round, the round that validation chose, traffic and time."""

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

RULE = (
    "headline: mean over clients of the accuracy on each client's own test part (common test set: mean over clients) "
    "at the last round; selected: the same at the first round with the best mean validation accuracy; best_test_round "
    "is an oracle that chooses on test data, never a headline"
)
TRAFFIC = ("up_scalars", "up_bytes", "down_scalars", "down_bytes")


def summarise(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the figures of a run from its rows; accuracies are fractions, None where nobody has data."""
    rows = list(rows)
    rounds = [row for row in rows if row["kind"] == "round"]
    clients = [row for row in rows if row["kind"] == "client"]
    evaluated = [row for row in rounds if row["metrics"]]
    return {
        "rule": RULE,
        "rounds": rounds[-1]["round"] if rounds else None,
        "last": _figures(evaluated[-1]) if evaluated else None,
        "selected": _best(evaluated, "validation_accuracy"),
        "best_test_round": _best(evaluated, "local_accuracy"),
        "traffic": _traffic(clients),
        "missing": [
            {"round": row["round"], "client": int(client), "reason": reason}
            for row in rounds
            for client, reason in row["missing"].items()
        ],
        "seconds": {
            phase: sum(row["seconds"].get(phase, 0.0) for row in rounds if row["round"])
            for phase in ("train", "evaluate")
        },
    }


def best_test_round(rows: Iterable[Mapping[str, Any]], name: str) -> dict[str, Any] | None:
    """Return the figures of the first evaluated round in which a metric is largest: an oracle, never a headline."""
    return _best([row for row in rows if row["kind"] == "round" and row["metrics"]], name)


def client_table(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the clients at the last evaluated round: samples, accuracies, steps so far, traffic so far."""
    clients = [row for row in rows if row["kind"] == "client"]
    last = max((row["round"] for row in clients if row["scores"]), default=None)
    table = []
    for row in clients:
        if row["round"] != last:
            continue
        own = [one for one in clients if one["client"] == row["client"]]
        taken = sum(one["active"] for one in own)
        entry: dict[str, Any] = {"client": row["client"], "round": last, "rounds_taken": taken}
        entry["steps"] = sum(one["train"]["steps"] for one in own if one["train"])
        for name, score in row["scores"].items():
            count = sum(score["count"])
            entry[f"{name}_accuracy"] = sum(score["correct"]) / count if count else None
            entry[f"{name}_samples"] = count
            entry[f"{name}_loss"] = score["loss"]
        for name in TRAFFIC:
            entry[name] = sum(one["traffic"].get(name, 0) for one in own)
        table.append(entry)
    return pd.DataFrame(table)


def _figures(row: Mapping[str, Any]) -> dict[str, Any]:
    return {"round": row["round"], **row["metrics"]}


def _best(evaluated: list[Mapping[str, Any]], name: str) -> dict[str, Any] | None:
    """Return the first evaluated round with the largest value, or None if no round has one."""
    known = [row for row in evaluated if row["metrics"].get(name) is not None]
    return _figures(max(known, key=lambda row: row["metrics"][name])) if known else None


def _traffic(clients: list[Mapping[str, Any]]) -> dict[str, float | None]:
    """Return scalars and bytes per client and round, over those who took part."""
    active = [row["traffic"] for row in clients if row["active"] and row["round"]]
    return {name: sum(one[name] for one in active) / len(active) if active else None for name in TRAFFIC}
