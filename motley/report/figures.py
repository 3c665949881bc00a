"""The figures that every method has: who holds what, accuracy over rounds, per client and per class."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from motley.report.drawing import (
    BANDS_UP_TO,
    COLOURS,
    GREY,
    MOST_LABELS,
    WIDTH,
    id_ticks,
    legend_below,
    legend_name,
    line_style,
    look,
    name_ticks,
    new_figure,
    turn_if_long,
)
from motley.report.material import Curve, Floats, thin
from motley.report.wording import short

MOST_SHAPES = 3000  # bubbles as shapes of their own; more become one picture


def bubble_figure(counts: ArrayLike, class_names: Sequence[str]) -> Figure:
    """Draw which client holds how many samples of which class; the area of a bubble is the number.

    Args:
        counts: Samples (N, C), clients by classes.
        class_names: C names.
    """
    table = np.asarray(counts, dtype=np.float64).reshape(-1, len(class_names))
    clients, classes = table.shape
    with look():
        height = float(np.clip(0.24 * min(classes, 30) + 0.9, 2.2, 6.0))
        figure = new_figure(WIDTH, height)
        axes = figure.add_subplot()
        largest = table.max(initial=0.0)
        beside = 0.7 + (0.085 * max(map(len, map(short, class_names)), default=0) if classes <= MOST_LABELS else 0.3)
        cell = min((WIDTH - beside) / max(clients, 1), (height - 0.9) / max(classes, 1)) * 72  # points
        widest = max(3.0, 1.15 * cell)
        # Diameters in steps of a quarter point: as exact as can be seen, and bubbles of one size share one shape.
        diameters = np.round(4 * widest * np.sqrt(table / max(largest, 1))) / 4
        for diameter in np.unique(diameters[table > 0]):
            x, y = np.nonzero((diameters == diameter) & (table > 0))
            axes.plot(
                x,
                y,
                "o",
                markersize=max(diameter, 0.6),
                color=COLOURS[0],
                alpha=0.75,
                markeredgewidth=0,
                clip_on=False,
                rasterized=bool((table > 0).sum() > MOST_SHAPES),
            )
        axes.set_xlim(-0.7, max(clients, 1) - 0.3)
        axes.set_ylim(classes - 0.3, -0.7)
        id_ticks(axes.xaxis, range(clients), most=16)
        name_ticks(axes.yaxis, class_names)
        axes.grid(visible=True)
        axes.tick_params(length=0)
        axes.set(xlabel="client", ylabel="class", title=f"largest bubble: {largest:,.0f} samples")
        return figure


def accuracy_figure(
    curves: Mapping[str, Curve], *, chance: float | None = None, label: str = "local accuracy"
) -> Figure:
    """Draw accuracy over rounds, one line a method with a band of one deviation over seeds.

    Args:
        curves: By method, fractions.
        chance: Drawn as a thin line.
        label: Of the vertical axis.
    """
    with look():
        figure = new_figure()
        axes = figure.add_subplot()
        for position, (method, curve) in enumerate(curves.items()):
            kept = thin(range(len(curve.rounds)))
            rounds, mean, sd = curve.rounds[kept], 100 * curve.mean[kept], 100 * curve.sd[kept]
            style = line_style(position) | {"marker": ""}
            if len(kept) == 1:
                style["marker"] = "o"
            axes.plot(rounds, mean, label=legend_name(method), **style)
            if np.isfinite(sd).any() and len(curves) <= BANDS_UP_TO:
                axes.fill_between(rounds, mean - sd, mean + sd, color=style["color"], alpha=0.18, linewidth=0)
        if chance is not None:
            axes.axhline(100 * chance, color=GREY, linewidth=0.9, linestyle=(0, (1, 2)))
            axes.annotate(
                "chance",
                (1, 100 * chance),
                (-2, 2),
                xycoords=("axes fraction", "data"),
                textcoords="offset points",
                ha="right",
                fontsize=8,
                color=GREY,
            )
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(visible=True)
        axes.set(xlabel="round", ylabel=f"{label}, %")
        if len(curves) > 1:
            legend_below(figure, axes)
        return figure


def client_figure(accuracies: Mapping[str, Sequence[float]], *, label: str = "local accuracy") -> Figure:
    """Draw the accuracies of the clients, sorted for each method by itself: how good the worst ones are."""
    with look():
        figure = new_figure()
        axes = figure.add_subplot()
        for position, (method, values) in enumerate(accuracies.items()):
            ordered = 100 * np.sort(np.asarray(values, dtype=np.float64))
            kept = thin(range(len(ordered)))
            style = line_style(position)
            if len(ordered) > 50:
                style["marker"] = ""
            axes.plot(np.array(kept) + 1, ordered[kept], label=legend_name(method), **style)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(visible=True)
        axes.set(xlabel="clients, from worst to best", ylabel=f"{label}, %")
        axes.set_ylim(-3, 103)
        if len(accuracies) > 1:
            legend_below(figure, axes)
        return figure


def class_figure(
    accuracies: Mapping[str, Floats], support: Sequence[int] | None, class_names: Sequence[str], *, label: str
) -> Figure:
    """Draw the accuracy of every class, the classes in the order of their training samples.

    Args:
        accuracies: By method, (C,), NaN where there is no test sample.
        support: Training samples of each class over all clients; None keeps the order of the classes.
        class_names: C names.
        label: Of the vertical axis.
    """
    order = np.argsort(-np.asarray(support), kind="stable") if support is not None else np.arange(len(class_names))
    names = [class_names[position] for position in order]
    with look():
        figure = new_figure(height=3.9 if support is not None else 3.0)
        if support is None:
            lowest = axes = figure.add_subplot()
        else:
            axes, lowest = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
            lowest.bar(range(len(order)), np.asarray(support)[order], color="#9a9a9a", width=0.8)
            lowest.set_ylabel("samples")
            lowest.yaxis.set_major_locator(MaxNLocator(2, integer=True))
        for position, (method, values) in enumerate(accuracies.items()):
            style = line_style(position) | ({"marker": ""} if len(order) > 60 else {})
            axes.plot(range(len(order)), 100 * values[order], label=legend_name(method), **style)
        name_ticks(lowest.xaxis, names)
        turn_if_long(lowest, names)
        if len(names) > 60:
            lowest.set_xticks([])
        axes.grid(visible=True)
        axes.set_ylim(-3, 103)
        axes.set_ylabel(f"{label}, %")
        lowest.set_xlabel("class, most training samples first" if support is not None else "class")
        if len(accuracies) > 1:
            legend_below(figure, axes)
        return figure
