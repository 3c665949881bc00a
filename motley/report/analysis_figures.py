"""The figures of an analysis: distances by measure and class, prototypes in a plane, relations, agreement of models."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from motley.functional.mechanism import ALONE, CONSTANT, OTHERS_CONSTANT, OWN_REMOVED, PERMUTED
from motley.record.analysis import Analysis, Projection
from motley.report.analysis_tables import PAPER, compared, means_by_name
from motley.report.drawing import (
    COLOURS,
    MARKS,
    MOST_LABELS,
    centre_ticks,
    heat_map,
    legend_below,
    legend_name,
    look,
    name_ticks,
    new_figure,
    turn_if_long,
)
from motley.report.material import Floats
from motley.report.method_figures import pair_figure
from motley.report.wording import short

LONG = {"D_p": "prototypes, D_p", "D_r": "relations, D_r", "D_rs": "scaled, D_rs", "D_rs_norm": "normalised, D_rs_norm"}
SHORT = {CONSTANT: "constant", OTHERS_CONSTANT: "constant of others"}
DRAWN = {  # measure that a bar stands below, measure that the control belongs to, and its name
    ("D_p", "D_p", OWN_REMOVED),
    ("D_r", "D_r", CONSTANT),
    ("D_r", "D_r", OWN_REMOVED),
    ("D_r", ALONE, OTHERS_CONSTANT),
    ("D_rs_norm", "D_rs_norm", PERMUTED),
}
MOST_CLIENTS = 3  # whose relations are drawn
MOST_CLASSES = 40  # with a mark of their own in the plane


def analysis_figures(analysis: Analysis) -> dict[str, tuple[Figure, str]]:
    """Return the figures by name of their file, each with its caption."""
    made = {
        "distances": (
            distance_figure(analysis),
            "Distance of the clients from the global prototypes and relations: bars are means, points are clients; "
            "grey bars are controls.",
        ),
        "classes": (class_distance_figure(analysis), "The same by class: mean over the clients that hold it."),
        "relations": (
            relations_figure(analysis),
            "Relations of the classes: global, mean over the clients that hold a pair, single clients; and the "
            "reliability S. Grey: the diagonal, and pairs that are not held.",
        ),
    }
    if analysis.projection is not None:
        made["prototypes"] = (
            prototype_figure(analysis.projection, analysis),
            "Prototypes of all clients, of length 1, in the plane in which they vary most; large marks with an edge: "
            "the global ones.",
        )
    agreement = architecture_agreement(analysis)
    if len(agreement) > 1 and np.isfinite(agreement).any():
        names = list(dict.fromkeys(analysis.architectures))
        made["architectures"] = (
            pair_figure(agreement, names, label="rank correlation"),
            "Rank correlation of the relations of two clients, mean over the pairs of clients of two architectures.",
        )
    return made


def distance_figure(analysis: Analysis) -> Figure:
    """Draw the measures of all clients with their means, the controls, and the paper's values."""
    values, means = compared(analysis), means_by_name(analysis)
    rows: list[tuple[str, str | None, float | None]] = []
    for name in values:
        rows.append((LONG[name], name, means[name]))
        rows += [
            (SHORT.get(one.name, one.name), None, one.value)
            for one in analysis.mechanism.controls
            if (name, one.measure, one.name) in DRAWN
        ]
    with look():
        figure = new_figure(height=0.36 * len(rows) + 0.8)
        axes = figure.add_subplot()
        for place, (_, measure, mean) in enumerate(rows):
            axes.barh(place, mean or 0.0, height=0.62, color="#c9c9c9" if measure is None else COLOURS[5])
            if measure is not None:
                own = values[measure]
                spread = place + 0.44 * (((np.arange(len(own)) * 0.618034) % 1) - 0.5)  # as random, the same each time
                axes.plot(own, spread, "o", color=COLOURS[0], markersize=2.8, alpha=0.75, markeredgewidth=0)
        paper = [(place, PAPER[measure]) for place, (_, measure, _) in enumerate(rows) if measure in PAPER]
        if analysis.method == "fedtopo" and paper:
            places, published = zip(*paper, strict=True)
            axes.plot(published, places, "D", color=COLOURS[1], markersize=5.5, label="paper", linestyle="none")
            legend_below(figure, axes)
        axes.set_yticks(range(len(rows)), [text for text, _, _ in rows])
        axes.set_ylim(len(rows) - 0.4, -0.6)
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.grid(visible=True, axis="x")
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("distance, lower is nearer")
        return figure


def class_distance_figure(analysis: Analysis) -> Figure:
    """Draw D_p and D_r of every class."""
    found, names = analysis.mechanism, analysis.class_names
    pairs = _array(found.pairs.per_pair)
    series = {"relations, D_r": _row_means(pairs)}
    if found.prototypes is not None:
        series = {"prototypes, D_p": _array(found.prototypes.per_class)} | series
    with look():
        figure = new_figure()
        axes = figure.add_subplot()
        width = 0.8 / len(series)
        for position, (label, values) in enumerate(series.items()):
            places = np.arange(len(names)) + width * (position - (len(series) - 1) / 2)
            axes.bar(places, np.nan_to_num(values), width=width, color=COLOURS[5 - 5 * position], label=label)
        name_ticks(axes.xaxis, names)
        turn_if_long(axes, names)
        axes.grid(visible=True, axis="y")
        axes.set(xlabel="class", ylabel="distance")
        legend_below(figure, axes)
        return figure


def prototype_figure(projection: Projection, analysis: Analysis) -> Figure:
    """Draw every client's prototypes and the global ones; colour and mark tell the classes apart."""
    local, overall = _array(projection.local), _array(projection.overall)
    names = analysis.class_names
    with look():
        figure = new_figure(height=4.4)
        axes = figure.add_subplot()
        for label, name in enumerate(names):
            mark = MARKS[label // len(COLOURS) % len(MARKS)]
            style: dict[str, Any] = {"color": COLOURS[label % len(COLOURS)], "marker": mark, "linestyle": "none"}
            points = local[:, label]
            axes.plot(*points.T, markersize=4, alpha=0.6, markeredgewidth=0, label=legend_name(name), **style)
            axes.plot(*overall[label], markersize=9, markeredgecolor="black", zorder=3, **style)
        first, second = (f"{100 * share:.0f} % of the variance" for share in projection.explained)
        axes.set(xlabel=f"first component, {first}", ylabel=f"second component, {second}")
        axes.set_aspect("equal", adjustable="datalim")
        axes.grid(visible=True)
        if len(names) <= MOST_CLASSES:
            _class_legend(figure, axes)
        return figure


def _class_legend(figure: Figure, axes: Axes) -> None:
    """Name the marks below the axes, close together: there may be forty."""
    handles, labels = axes.get_legend_handles_labels()
    columns = min(len(labels), 54 // (max(map(len, labels)) + 4))
    figure.set_figheight(figure.get_figheight() + 0.19 * (-(-len(labels) // columns) - 1))
    figure.legend(
        handles, labels, loc="outside lower center", ncols=columns, handlelength=0.8, handletextpad=0.3, columnspacing=1
    )


def relations_figure(analysis: Analysis) -> Figure:
    """Draw relations side by side: global, mean over clients, some clients; and the reliability."""
    found, names = analysis.mechanism, analysis.class_names
    local = _array(found.local)
    for matrix in local:
        np.fill_diagonal(matrix, np.nan)
    held = np.isfinite(local).any(axis=0)
    overall = np.where(held, _array(found.relations), np.nan)
    panels = [("global R^g", overall), ("mean of R_k", _known_mean(local))]
    panels += [(f"client {one}, {short(analysis.architectures[one])}", local[one]) for one in _shown(analysis, local)]
    every = np.concatenate([panel[np.isfinite(panel)] for _, panel in panels])
    low, high = (float(every.min()), float(every.max())) if every.size else (0.0, 1.0)
    panels.append(("reliability S", np.where(held, _array(found.reliability), np.nan)))
    lines = -(-len(panels) // 2)
    with look():
        figure = new_figure(6.4, 2.75 * lines)
        axes = figure.subplots(lines, 2, squeeze=False).flatten()
        for place, (axis, (title, panel)) in enumerate(zip(axes, panels, strict=False)):
            last = place == len(panels) - 1
            _small_map(figure, axis, panel, names, title, *((None, None) if last else (low, high)))
        for axis in axes[len(panels) :]:
            axis.set_axis_off()
        return figure


def _small_map(
    figure: Figure, axes: Axes, panel: Floats, names: tuple[str, ...], title: str, low: float | None, high: float | None
) -> None:
    heat_map(figure, axes, panel, label="", low=low, high=high)
    for text in list(axes.texts):
        text.set_fontsize(5.5)
    axes.set_aspect("equal")
    name_ticks(axes.xaxis, names, most=12)
    name_ticks(axes.yaxis, names, most=12)
    centre_ticks(axes)
    axes.tick_params(axis="both", labelsize=7)
    if max(map(len, names)) > 2 and len(names) <= MOST_LABELS:
        axes.tick_params(axis="x", labelrotation=90)
    axes.set_title(title, fontsize=9)


def _shown(analysis: Analysis, local: Floats) -> list[int]:
    """Return the clients with most pairs, of different architectures as far as there are."""
    pairs = np.isfinite(local).sum(axis=(1, 2))
    order = [int(client) for client in np.argsort(-pairs, kind="stable") if pairs[client]]
    first: dict[str, int] = {}
    for client in order:
        first.setdefault(analysis.architectures[client], client)
    return [*first.values(), *(client for client in order if client not in first.values())][:MOST_CLIENTS]


def architecture_agreement(analysis: Analysis) -> Floats:
    """Return the mean rank correlation (A, A) of the architectures in order of appearance; NaN without a pair."""
    names = list(dict.fromkeys(analysis.architectures))
    found: dict[tuple[int, int], list[float]] = {}
    for (one, other), value in analysis.consistency[analysis.feature].pairs.items():
        if np.isfinite(value):
            row, column = sorted(names.index(analysis.architectures[client]) for client in (one, other))
            found.setdefault((row, column), []).append(value)
    table = np.full((len(names), len(names)), np.nan)
    for (row, column), values in found.items():
        table[row, column] = table[column, row] = float(np.mean(values))
    return table


def _known_mean(values: Floats) -> Floats:
    known = np.isfinite(values)
    count = known.sum(axis=0)
    return np.where(count > 0, np.where(known, values, 0.0).sum(axis=0) / np.maximum(count, 1), np.nan)


def _row_means(matrix: Floats) -> Floats:
    return _known_mean(matrix.T)


def _array(tensor: Tensor) -> Floats:
    """Return a copy for numpy."""
    return tensor.double().numpy().copy()
