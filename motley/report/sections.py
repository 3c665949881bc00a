"""The sections of the page below the final table: figures with their captions, and small tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from motley.record.load import RunRecord
from motley.record.summary import TRAFFIC
from motley.report.drawing import BANDS_UP_TO, to_svg
from motley.report.figures import accuracy_figure, bubble_figure, class_figure, client_figure
from motley.report.material import (
    GLOBAL,
    LOCAL,
    Runs,
    class_accuracies,
    client_accuracies,
    curve,
    last_scores,
    teachers,
    topology,
)
from motley.report.method_figures import kept_figure, pair_figure, teacher_figure
from motley.report.wording import MISSING, duration, number, percent, plural, size

MOST_ROWS = 200  # of a table on the page
MOST_METHODS = 6  # with figures of their own
KINDS = ((LOCAL, "local accuracy", "local_accuracy"), (GLOBAL, "global accuracy", "global_accuracy"))

Methods = Mapping[str, Runs]


@dataclass(frozen=True)
class Plate:
    """A figure with its caption; `about` says to those who cannot see it what it shows."""

    svg: Markup
    about: str
    caption: str


@dataclass(frozen=True)
class Grid:
    """A small table: a head and rows of texts."""

    title: str
    head: tuple[str, ...]
    rows: list[tuple[str, ...]]
    remark: str = ""


@dataclass(frozen=True)
class Section:
    """A part of the page."""

    id: str
    title: str
    lead: str
    plates: list[Plate] = field(default_factory=list)
    grids: list[Grid] = field(default_factory=list)
    folded: bool = False  # whether its tables are closed at first


def accuracy_sections(runs: Methods) -> list[Section]:
    """Return accuracy over rounds, per client and per class, and who holds what."""
    return [_over_rounds(runs), _per_client(runs), _per_class(runs), _holdings(runs)]


def _over_rounds(runs: Methods) -> Section:
    first = _any_run(runs)
    chance = first.summary.get("chance") if first else None
    plates = []
    for _, label, metric in KINDS:
        curves = {method: found for method, own in runs.items() if (found := curve(own, metric)) is not None}
        if not curves:
            continue
        seeds = max(one.seeds for one in curves.values())
        caption = f"{label.capitalize()} over rounds, mean over clients"
        if seeds > 1:
            caption += f" and {plural(seeds, 'seed')}"
            caption += "; band: one sd over seeds, divisor n - 1" if len(curves) <= BANDS_UP_TO else ""
        ends = ", ".join(f"{method} ends at {percent(float(one.mean[-1]), 1)} %" for method, one in curves.items())
        figure = accuracy_figure(curves, chance=chance, label=label)
        plates.append(_plate(figure, f"rounds-{metric}", f"Line chart of {label} over rounds: {ends}.", f"{caption}."))
    lead = "Round 0 is before any training." if plates else "No data: no round was evaluated yet."
    return Section("rounds", "Accuracy over rounds", lead, plates)


def _per_client(runs: Methods) -> Section:
    plates = []
    for part, label, _ in KINDS:
        values = {method: list(found.values()) for method, own in runs.items() if (found := client_accuracies(own, part))}
        if values:
            spans = ", ".join(
                f"{method} from {percent(min(one), 1)} to {percent(max(one), 1)} %" for method, one in values.items()
            )
            figure = client_figure(values, label=label)
            about = f"Accuracies of the clients in ascending order: {spans}."
            plates.append(_plate(figure, f"clients-{part}", about, f"{label.capitalize()} of the clients, each method sorted by itself."))
    lead = "The last evaluated round; over several seeds the mean of each client." if plates else "No data."
    return Section("clients", "Per client", lead, plates, _client_grids(runs) if plates else [], folded=True)


def _client_grids(runs: Methods) -> list[Grid]:
    grids = []
    first = _any_run(runs)
    names = first.summary.get("architectures", []) if first else []
    found = {method: client_accuracies(own) for method, own in runs.items()}
    if names:
        kinds = list(dict.fromkeys(names))[:MOST_ROWS]
        rows = [
            (kind, str(names.count(kind)), *(_mean_of(values, names, kind) for values in found.values())) for kind in kinds
        ]
        grids.append(Grid("Local accuracy by architecture, %", ("architecture", "clients", *found), rows))
    clients = sorted({client for values in found.values() for client in values})
    counts = first.summary.get("samples", []) if first else []
    rows = [
        (
            str(client),
            names[client] if client < len(names) else MISSING,
            number(counts[client]["train"]) if client < len(counts) else MISSING,
            number(counts[client]["test"]) if client < len(counts) else MISSING,
            *(percent(values.get(client)) for values in found.values()),
        )
        for client in clients[:MOST_ROWS]
    ]
    more = f"The first {MOST_ROWS} of {len(clients)} clients; clients.csv has all." if len(clients) > MOST_ROWS else ""
    grids.append(Grid("Local accuracy of every client, %", ("client", "architecture", "train", "test", *found), rows, more))
    return grids


def _mean_of(values: Mapping[int, float], names: Sequence[str], kind: str) -> str:
    own = [value for client, value in values.items() if client < len(names) and names[client] == kind]
    return percent(float(np.mean(own))) if own else MISSING


def _per_class(runs: Methods) -> Section:
    first = _any_run(runs)
    names = first.summary.get("class_names", []) if first else []
    counts = first.summary.get("counts") if first else None
    support = np.sum(counts, axis=0).astype(int).tolist() if counts else None
    plates = []
    for part, label, _ in KINDS:
        values = {method: found for method, own in runs.items() if (found := class_accuracies(own, part)) is not None}
        if values:
            figure = class_figure(values, support, names, label=label)
            about = f"{label.capitalize()} of each of {len(names)} classes for {', '.join(values)}."
            caption = f"{label.capitalize()} by class, over the test samples of all clients"
            caption += "; below: training samples of all clients." if support else "."
            plates.append(_plate(figure, f"classes-{part}", about, caption))
    lead = "The last evaluated round. A class without test samples has no mark." if plates else "No data."
    return Section("classes", "Per class", lead, plates)


def _holdings(runs: Methods) -> Section:
    title, found = "Who holds what", {}
    for own in runs.values():
        for run in own.values():
            if run.summary.get("counts"):
                found.setdefault(run.summary["partition"]["digest"], run)
    if not found:
        return Section("partition", title, "No data: the counts are written when a run ends.")
    plates = []
    for position, run in enumerate(list(found.values())[:MOST_METHODS]):
        counts, names = run.summary["counts"], run.summary["class_names"]
        about = f"Bubble chart of {len(counts)} clients by {len(names)} classes; the area is the number of training samples."
        caption = "Training samples by client and class" + (f", seed {run.seed}." if len(found) > 1 else ".")
        plates.append(_plate(bubble_figure(counts, names), f"partition-{position}", about, caption))
    return Section("partition", title, "", plates)


def method_sections(runs: Methods) -> list[Section]:
    """Return the sections of methods that left material of their own, from the first run that has it."""
    sections: list[Section] = []
    for method, own in list(runs.items()):
        for run in own.values():
            made = [one for one in (_topology_section(method, run), _teacher_section(method, run)) if one is not None]
            sections += made
            if made:
                break
    return sections[:MOST_METHODS]


def _topology_section(method: str, run: RunRecord) -> Section | None:
    found = topology(run)
    names = run.summary.get("class_names", [])
    if found is None or len(names) != len(found.relations):
        return None
    pair = _strongest(found.relations, names)
    plates = [
        _plate(
            pair_figure(found.relations, names, label="relation R"),
            f"relations-{method}",
            f"Heat map of the relations between {len(names)} classes{pair}.",
            "Relations R of the classes, 0 to 1: the cosine of class prototypes, (1 + cos) / 2, aggregated and smoothed.",
        ),
        _plate(
            pair_figure(found.reliability, names, label="reliability S"),
            f"reliability-{method}",
            f"Heat map of the reliability of each pair of {len(names)} classes.",
            "Reliability S of the last aggregation, 0 to 1: relative support of a pair of classes.",
        ),
    ]
    lead = f"{method}, seed {run.seed}, after round {found.round}. Grey: the diagonal, and pairs that no client ever held together."
    return Section(f"topology-{method}", f"Topology of {method}", lead, plates)


def _strongest(relations: Any, names: Sequence[str]) -> str:
    if not np.isfinite(relations).any():
        return ""
    row, column = np.unravel_index(int(np.nanargmax(relations)), relations.shape)
    return f"; the most alike are {names[row]} and {names[column]} ({relations[row, column]:.2f})"


def _teacher_section(method: str, run: RunRecord) -> Section | None:
    found, names = teachers(run), run.summary.get("class_names", [])
    if found is None or len(names) != found.support.shape[1]:
        return None
    ids = found.teachers
    plates = [
        _plate(
            teacher_figure(found.support, ids, names, label="validation samples"),
            f"support-{method}",
            f"Heat map of the validation samples of {len(ids)} teachers in {len(names)} classes.",
            "Class support of the teachers: validation samples.",
        ),
        _plate(
            teacher_figure(found.weight, ids, names, label="mean weight"),
            f"weight-{method}",
            f"Heat map of the mean weight of {len(ids)} teachers in {len(names)} classes.",
            f"Share of the target that a teacher had for a class, mean over its students and their samples, round {found.round}.",
        ),
        _plate(
            kept_figure(found),
            f"kept-{method}",
            f"Heat map of how often each of {len(ids)} teachers was kept, over {plural(len(found.rounds), 'round')}.",
            "How often the agreement filter kept a teacher, over its supported classes, students and samples; the rest was "
            "filtered. Grey: it supports no class.",
        ),
    ]
    return Section(f"teachers-{method}", f"Teachers of {method}", f"{method}, seed {run.seed}.", plates)


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


def traffic_section(runs: Methods) -> Section:
    """Return what was sent and how long it took, as means over the runs of a method."""
    rows = []
    for method, own in runs.items():
        told = [_costs(run) for run in own.values()]
        mean = {name: _mean([one[name] for one in told]) for name in told[0]} if told else {}
        rows.append(
            (
                method,
                *(number(mean.get(name)) for name in ("up_scalars", "down_scalars")),
                *(size(mean.get(name)) for name in ("up_bytes", "down_bytes", "total_bytes")),
                *(duration(mean.get(name)) for name in ("train", "evaluate", "round")),
            )
        )
    head = ("method", "numbers up", "numbers down", "bytes up", "bytes down", "bytes of a run", "training", "evaluation", "a round")
    lead = (
        "Numbers and bytes per client and round, over those who took part; the bytes of a run are all of them, up and down. "
        "Times are those of a whole run, and training and evaluation of one round together."
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


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _any_run(runs: Methods) -> RunRecord | None:
    """Return a run that has a header, or any."""
    everything = [run for own in runs.values() for run in own.values()]
    held = [run for run in everything if "counts" in run.summary and last_scores(run)]
    return next(iter([*held, *everything]), None)


def _plate(figure: Figure, name: str, about: str, caption: str) -> Plate:
    return Plate(Markup(to_svg(figure, name)), about, caption)  # noqa: S704 - matplotlib escapes the texts in it
