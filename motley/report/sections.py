"""The sections that every method has: accuracy over rounds, per client, per class, and who holds what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from motley.record.classes import GLOBAL, LOCAL, last_scores
from motley.record.load import RunRecord
from motley.report.drawing import BANDS_UP_TO, to_svg
from motley.report.figures import accuracy_figure, bubble_figure, class_figure, client_figure
from motley.report.material import Floats, Runs, class_accuracies, class_support, client_accuracies, curve
from motley.report.wording import MISSING, number, percent, plural

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
    rows: Sequence[tuple[str, ...]]
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

    @property
    def half(self) -> bool:
        """Tell whether half of a wide page is enough."""
        return len(self.plates) == 1 and (self.folded or not self.grids)


def accuracy_sections(runs: Methods) -> list[Section]:
    """Return accuracy over rounds, per client and per class, and who holds what."""
    return [_over_rounds(runs), _per_client(runs), _per_class(runs), _holdings(runs)]


def _over_rounds(runs: Methods) -> Section:
    first = any_run(runs)
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
        plates.append(plate(figure, f"rounds-{metric}", f"Line chart of {label} over rounds: {ends}.", f"{caption}."))
    lead = "Round 0 is before any training." if plates else "No data: no round was evaluated yet."
    return Section("rounds", "Accuracy over rounds", lead, plates)


def _per_client(runs: Methods) -> Section:
    plates = []
    for part, label, _ in KINDS:
        values = {
            method: list(found.values()) for method, own in runs.items() if (found := client_accuracies(own, part))
        }
        if values:
            spans = ", ".join(
                f"{method} from {percent(min(one), 1)} to {percent(max(one), 1)} %" for method, one in values.items()
            )
            figure = client_figure(values, label=label)
            about = f"Accuracies of the clients in ascending order: {spans}."
            plates.append(
                plate(
                    figure,
                    f"clients-{part}",
                    about,
                    f"{label.capitalize()} of the clients, each method sorted by itself.",
                )
            )
    lead = "The last evaluated round; over several seeds the mean of each client." if plates else "No data."
    return Section("clients", "Per client", lead, plates, _client_grids(runs) if plates else [], folded=True)


def _client_grids(runs: Methods) -> list[Grid]:
    grids = []
    first = any_run(runs)
    names = first.summary.get("architectures", []) if first else []
    found = {method: client_accuracies(own) for method, own in runs.items()}
    if names:
        kinds = list(dict.fromkeys(names))[:MOST_ROWS]
        rows = [
            (kind, str(names.count(kind)), *(_mean_of(values, names, kind) for values in found.values()))
            for kind in kinds
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
    grids.append(
        Grid("Local accuracy of every client, %", ("client", "architecture", "train", "test", *found), rows, more)
    )
    return grids


def _mean_of(values: Mapping[int, float], names: Sequence[str], kind: str) -> str:
    own = [value for client, value in values.items() if client < len(names) and names[client] == kind]
    return percent(float(np.mean(own))) if own else MISSING


def _per_class(runs: Methods) -> Section:
    first = any_run(runs)
    names = first.summary.get("class_names", []) if first else []
    support = class_support(run for own in runs.values() for run in own.values())
    plates, grids = [], []
    for part, label, _ in KINDS:
        values = {method: found for method, own in runs.items() if (found := class_accuracies(own, part)) is not None}
        if values:
            shown = None if support is None else support.round().astype(int).tolist()
            figure = class_figure(values, shown, names, label=label)
            about = f"{label.capitalize()} of each of {len(names)} classes for {', '.join(values)}."
            caption = f"{label.capitalize()} by class, over the test samples of all clients"
            caption += "; below: training samples of all clients." if support is not None else "."
            plates.append(plate(figure, f"classes-{part}", about, caption))
            grids.append(_class_grid(values, support, names, label))
    lead = "The last evaluated round. A class without test samples has no mark." if plates else "No data."
    return Section("classes", "Per class", lead, plates, grids, folded=True)


def _class_grid(values: Mapping[str, Floats], support: Floats | None, names: Sequence[str], label: str) -> Grid:
    """Return the classes, the rarest first, with their training samples and the accuracy of every method."""
    order = range(len(names)) if support is None else np.argsort(support, kind="stable").tolist()
    rows = [
        (
            names[place],
            MISSING if support is None else number(float(support[place])),
            *(percent(float(own[place])) for own in values.values()),
        )
        for place in order
    ]
    more = f"The first {MOST_ROWS} of {len(rows)} classes." if len(rows) > MOST_ROWS else ""
    title = f"{label.capitalize()} by class, %; mean over seeds; the rarest class first"
    return Grid(title, ("class", "training samples", *values), rows[:MOST_ROWS], more)


def _holdings(runs: Methods) -> Section:
    title, found = "Who holds what", dict[str, RunRecord]()
    for own in runs.values():
        for run in own.values():
            if run.summary.get("counts"):
                found.setdefault(run.summary["partition"]["digest"], run)
    if not found:
        return Section("partition", title, "No data: the counts are written when a run ends.")
    plates = []
    for position, run in enumerate(list(found.values())[:MOST_METHODS]):
        counts, names = run.summary["counts"], run.summary["class_names"]
        about = f"Bubble chart of {len(counts)} clients by {len(names)} classes; the area is the number of samples."
        caption = "Training samples by client and class" + (f", seed {run.seed}." if len(found) > 1 else ".")
        plates.append(plate(bubble_figure(counts, names), f"partition-{position}", about, caption))
    return Section("partition", title, "", plates)


def any_run(runs: Methods) -> RunRecord | None:
    """Return a run that has a header, or any."""
    everything = [run for own in runs.values() for run in own.values()]
    held = [run for run in everything if "counts" in run.summary and last_scores(run)]
    return next(iter([*held, *everything]), None)


def plate(figure: Figure, name: str, about: str, caption: str) -> Plate:
    """Return a figure for the page; `name` makes its ids its own."""
    return Plate(Markup(to_svg(figure, name)), about, caption)  # noqa: S704 - matplotlib escapes the texts in it
