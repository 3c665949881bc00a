"""Figures of finished runs that are looked at for a question of their own: rare classes, few classes, convergence."""

from collections.abc import Mapping
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from motley.record.classes import GLOBAL, LOCAL, last_scores
from motley.record.load import RunRecord

Figures = Mapping[str, float | None]

PARTS = ("most common", "middle", "rarest", "absent")  # of the classes of a client, by its training samples
CLOSE = 0.95  # share of the last accuracy that counts as converged
LAST_ROUNDS = 20  # whose deviation is taken
FEW_CLASSES = 4  # FedTopo's three negatives are a choice only for a client that holds more (sheet, T5)


def by_support(run: RunRecord) -> Figures:
    """Return the last accuracy on a client's most common, middle and rarest classes, and on those that it lacks.

    The classes that a client holds are sorted by its training samples (as in CRAD, Fig. 2) and cut into three parts as
    equal as possible, the first ones larger. A part's accuracy is the mean over its classes and over clients, on the
    common test set where there is one, else on the client's own test part; None where nobody has such a class.
    """
    counts = run.summary.get("counts") or []
    values: dict[str, list[float]] = {part: [] for part in PARTS}
    for client, scores in last_scores(run).items():
        score = scores.get(GLOBAL) or scores.get(LOCAL)
        if score is None or client >= len(counts):
            continue
        tested = np.asarray(score["count"], dtype=np.float64)
        shares = np.asarray(score["correct"], dtype=np.float64) / np.maximum(tested, 1)
        for part, classes in _parts(np.asarray(counts[client])).items():
            values[part] += [float(shares[label]) for label in classes if tested[label]]
    return {part: fmean(own) if own else None for part, own in values.items()}


def by_held_classes(run: RunRecord) -> Figures:
    """Return the last local accuracy of clients that hold few classes and of those that hold many, a mean over each."""
    counts = run.summary.get("counts") or []
    few, many = f"clients of {FEW_CLASSES} classes or fewer", f"clients of more than {FEW_CLASSES} classes"
    values: dict[str, list[float]] = {few: [], many: []}
    for client, scores in last_scores(run).items():
        score = scores.get(LOCAL)
        if score is None or client >= len(counts) or not sum(score["count"]):
            continue
        group = many if np.count_nonzero(counts[client]) > FEW_CLASSES else few
        values[group].append(sum(score["correct"]) / sum(score["count"]))
    return {group: fmean(own) if own else None for group, own in values.items()}


def _parts(counts: NDArray[np.int64]) -> dict[str, list[int]]:
    order = np.argsort(-counts, kind="stable")
    held = [int(label) for label in order if counts[label] > 0]
    thirds = [[int(label) for label in own] for own in np.array_split(np.array(held, dtype=np.int64), 3)]
    return dict(zip(PARTS, [*thirds, [int(label) for label in order if counts[label] == 0]], strict=True))


def convergence(run: RunRecord) -> Figures:
    """Return when a run came close to its last local accuracy and how much it moved at the end.

    `rounds to 95 %`: the first evaluated round with at least 95 % of the last round's local accuracy. `sd of the last
    rounds`: of local accuracy over the evaluated ones among the last 20 rounds (divisor n - 1; left out for fewer than
    two), and `global sd of the last rounds` where there is a common test set. Evaluate every round to trust them.
    """
    rows = [row for row in run.rows if row["kind"] == "round" and row["metrics"].get("local_accuracy") is not None]
    if not rows:
        return {}
    final, last = rows[-1]["metrics"]["local_accuracy"], rows[-1]["round"]
    first = next(row["round"] for row in rows if row["metrics"]["local_accuracy"] >= CLOSE * final)
    found: dict[str, float | None] = {"rounds to 95 %": float(first)}
    for name, title in (
        ("local_accuracy", "sd of the last rounds"),
        ("global_accuracy", "global sd of the last rounds"),
    ):
        end = [row["metrics"].get(name) for row in rows if row["round"] > last - LAST_ROUNDS]
        known = [value for value in end if value is not None]
        if len(known) > 1:
            found[title] = stdev(known)
    return found
