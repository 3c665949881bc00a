"""What tables and figures are made of, read from the records of runs: plain arrays, in which NaN means no data."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from motley.functional.statistics import mean_sd
from motley.record.classes import GLOBAL, LOCAL, class_shares, last_scores, right_shares, training_samples
from motley.record.folder import CHECKPOINTS
from motley.record.load import RunRecord

Floats = NDArray[np.float64]
Runs = Mapping[int, RunRecord]  # by seed

FINISHED, UNFINISHED = "finished", "unfinished"


def with_summary(run: RunRecord) -> RunRecord:
    """Return a run whose summary names its classes; one that was killed at once gets what its rows tell."""
    if "class_names" in run.summary:
        return run
    scores = next((score for row in run.rows if row["kind"] == "client" for score in row["scores"].values()), None)
    names = list(run.config.get("data", {}).get("class_names", []))
    if scores is not None and not names:
        names = [str(label) for label in range(len(scores["count"]))]
    header = {"class_names": names, "chance": 1 / len(names) if names else None}
    return replace(run, summary={**run.summary, **header})


def status(run: RunRecord) -> str:
    """Return how a run ended: finished, interrupted, failed or unfinished."""
    return str(run.summary.get("status", UNFINISHED))


def finished(runs: Runs) -> dict[int, RunRecord]:
    """Return the runs that reached their last round."""
    return {seed: run for seed, run in runs.items() if status(run) == FINISHED}


@dataclass(frozen=True)
class Curve:
    """A figure over rounds: mean and deviation over seeds."""

    rounds: Floats
    mean: Floats
    sd: Floats  # divisor n - 1; NaN for one seed
    seeds: int  # the largest number of seeds of a round


def curve(runs: Runs, metric: str) -> Curve | None:
    """Return a metric of the rounds over the seeds, or None if no round has it."""
    values: dict[int, list[float]] = {}
    for run in runs.values():
        for row in run.rows:
            if row["kind"] == "round" and (value := row["metrics"].get(metric)) is not None:
                values.setdefault(row["round"], []).append(value)
    if not values:
        return None
    found = [mean_sd(values[number]) for number in sorted(values)]
    return Curve(
        rounds=np.array(sorted(values), dtype=np.float64),
        mean=_array([one.mean for one in found]),
        sd=_array([one.sd for one in found]),
        seeds=max(map(len, values.values())),
    )


def client_accuracies(runs: Runs, part: str = LOCAL) -> dict[int, float]:
    """Return the last accuracy of every client that has samples, as the mean over seeds."""
    values: dict[int, list[float]] = {}
    for run in runs.values():
        for client, scores in last_scores(run).items():
            score = scores.get(part)
            if score and sum(score["count"]):
                values.setdefault(client, []).append(sum(score["correct"]) / sum(score["count"]))
    return {client: float(np.mean(values[client])) for client in sorted(values)}


def class_accuracies(runs: Runs, part: str = LOCAL) -> Floats | None:
    """Return the last accuracy of every class (C,), over the samples of all clients, as the mean over seeds."""
    shares = [own for run in runs.values() if (own := class_shares(run, part)) is not None]
    return mean_known(np.array(shares)) if shares else None


def class_support(runs: Iterable[RunRecord]) -> Floats | None:
    """Return the training samples of every class (C,), over all clients, as the mean over runs; None if not told."""
    told = [own for run in runs if (own := training_samples(run)) is not None]
    return np.mean(told, axis=0) if told else None


def majority_accuracy(run: RunRecord) -> float | None:
    """Return the headline accuracy of clients that always answer their most frequent training class."""
    counts, shares = run.summary.get("counts"), []
    if not counts:
        return None
    for client, scores in last_scores(run).items():
        score = scores.get(LOCAL)
        if score and sum(score["count"]) and client < len(counts):
            shares.append(score["count"][int(np.argmax(counts[client]))] / sum(score["count"]))
    return float(np.mean(shares)) if shares else None


@dataclass(frozen=True)
class TopologyMaterial:
    """The server's topology in the newest checkpoint."""

    round: int
    relations: Floats  # (C, C); NaN on the diagonal and for a pair that nobody ever observed
    reliability: Floats  # (C, C); NaN on the diagonal


def topology(run: RunRecord) -> TopologyMaterial | None:
    """Return relations and reliability, or None if no checkpoint holds them; a damaged checkpoint is passed over."""
    for header in sorted((run.path / CHECKPOINTS).glob("round-*.json"), reverse=True):
        try:
            state = _read_state(header.with_suffix(".safetensors"))
        except (OSError, SafetensorError):
            continue
        if state is None:
            return None
        relations, reliability, times = state
        never = times == 0
        np.fill_diagonal(never, True)
        relations[never] = np.nan
        np.fill_diagonal(reliability, np.nan)
        return TopologyMaterial(int(header.stem.removeprefix("round-")), relations, reliability)
    return None


def _read_state(path: Path) -> tuple[Floats, Floats, Floats] | None:
    """Read the three matrices alone; the models of the clients stay on the disk."""
    names = ("state/relations", "state/reliability", "state/times")
    with safe_open(str(path), framework="np") as file:
        if not set(names) <= set(file.keys()):
            return None
        relations, reliability, times = (np.array(file.get_tensor(name), dtype=np.float64) for name in names)
    return relations, reliability, times


@dataclass(frozen=True)
class GuidanceMaterial:
    """How the topology moved: means over the clients of a round (R rounds); NaN where nobody knows."""

    rounds: tuple[int, ...]
    relations_change: Floats  # (R,), mean absolute change of the relations that a client uses since it last took part
    guidance_change: Floats  # (R,), of its guidance B
    absent: Floats  # (R,), share of the guidance on classes that the client does not hold


def guidance(run: RunRecord) -> GuidanceMaterial | None:
    """Return how relations and guidance changed over rounds, or None if the method recorded nothing of the kind."""
    told: dict[int, list[dict[str, Any]]] = {}
    for row in run.rows:
        if row["kind"] == "client" and "guidance_change" in row["method"]:
            told.setdefault(row["round"], []).append(row["method"])
    rounds = thin(sorted(told))
    if not rounds:
        return None
    names = ("relations_change", "guidance_change", "guidance_absent")
    means = [
        mean_known(np.stack([_array([one.get(name) for name in names]) for one in told[number]])) for number in rounds
    ]
    relations, changed, absent = np.stack(means, axis=1)
    return GuidanceMaterial(tuple(rounds), relations, changed, absent)


def accuracies_by_class(run: RunRecord, clients: Sequence[int]) -> Floats | None:
    """Return the last accuracy of some clients on the common test set by class, (M, C); None without such a set.

    NaN stands for a class without test samples, and for a client that was not evaluated.
    """
    told = {client: scores[GLOBAL] for client, scores in last_scores(run).items() if GLOBAL in scores}
    if not told:
        return None
    width = len(next(iter(told.values()))["count"])
    rows = np.full((len(clients), width), np.nan)
    for place, client in enumerate(clients):
        if score := told.get(client):
            rows[place] = right_shares(score["correct"], score["count"])
    return rows


@dataclass(frozen=True)
class TeacherMaterial:
    """What students recorded of their teachers (M teachers, C classes, R rounds)."""

    round: int
    teachers: tuple[int, ...]
    support: Floats  # (M, C), validation samples
    weight: Floats  # (M, C), share of the target, mean over students, last round; NaN for a class without support
    rounds: tuple[int, ...]
    kept: Floats  # (M, R), share of samples in which the filter kept a teacher, over its supported classes and students


def teachers(run: RunRecord) -> TeacherMaterial | None:
    """Return how teachers were filtered and weighted, or None if the method recorded nothing of the kind."""
    told: dict[int, list[dict[str, Any]]] = {}
    for row in run.rows:
        if row["kind"] == "client" and "kept" in (found := row["method"].get("teachers") or {}):
            told.setdefault(row["round"], []).append(found)
    if not told:
        return None
    rounds = thin(sorted(told))
    ids = sorted({peer for journals in told.values() for journal in journals for peer in journal["peers"]})
    last = max(told)
    weight = _by_teacher(told[last], "weight", ids)
    weight[:, np.nansum(weight, axis=0) == 0] = np.nan
    return TeacherMaterial(
        round=last,
        teachers=tuple(ids),
        support=_by_teacher(told[last], "support", ids),
        weight=weight,
        rounds=tuple(rounds),
        kept=np.stack([mean_known(_by_teacher(told[number], "kept", ids).T) for number in rounds], axis=1),
    )


def _by_teacher(journals: Sequence[Mapping[str, Any]], name: str, ids: Sequence[int]) -> Floats:
    """Return the mean over students of each teacher's row, (M, C)."""
    rows: dict[int, list[Floats]] = {peer: [] for peer in ids}
    width = len(journals[0][name][0])
    for journal in journals:
        for peer, values in zip(journal["peers"], journal[name], strict=True):
            rows[peer].append(_array(values))
    return np.stack([mean_known(np.array(rows[peer])) if rows[peer] else np.full(width, np.nan) for peer in ids])


def thin(values: Sequence[int], most: int = 200) -> list[int]:
    """Return at most so many of the values, evenly spread, with the first and the last."""
    if len(values) <= most:
        return list(values)
    return [values[position] for position in np.unique(np.linspace(0, len(values) - 1, most).round().astype(int))]


def mean_known(values: Floats) -> Floats:
    """Return the mean over the first axis of what is not NaN; NaN where nothing is."""
    known = np.isfinite(values)
    total = np.where(known, values, 0).sum(axis=0)
    count = known.sum(axis=0)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _array(values: Sequence[float | None]) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
