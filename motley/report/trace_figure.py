"""The figure of a traced sample: every teacher's probability of one class, the band, before and after."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from motley.functional.trace import State, TeacherTrace, Trace
from motley.report.drawing import COLOURS, GREY, legend_below, look, new_figure
from motley.report.wording import percent, short

FIGURE_WIDTH = 6.4  # inches; the columns of numbers stand beside the axes
STYLES: Mapping[State, dict[str, Any]] = {
    "weighted": {"color": COLOURS[0], "marker": "o"},
    "verified outlier": {"color": COLOURS[2], "marker": "D"},
    "no weight": {"color": COLOURS[7], "marker": "s"},
    "consensus outlier": {"color": COLOURS[1], "marker": "X"},
    "no support": {"color": GREY, "marker": "o", "facecolors": "none"},
}
COLUMNS = ((0.2, "n"), (0.43, "a"), (0.72, "w"), (1.0, "W, %"))  # right ends, in widths of their axes
PICTURE = 0.6  # inches, height and width
LONGEST_CLASS = 32  # letters below the axis


def trace_figure(
    trace: Trace, title: str, picture: np.ndarray | None = None, class_text: str = "the true class"
) -> Figure:
    """Draw one traced sample.

    Args:
        trace: What became of each teacher.
        title: Above the figure.
        picture: The sample as stored, (channels, height, width) with one or three channels; others are not shown.
        class_text: What the traced class is called below the axis.
    """
    with look():
        figure = new_figure(FIGURE_WIDTH, float(0.26 * len(trace.teachers) + 1.75))
        axes, beside = figure.subplots(1, 2, sharey=True, width_ratios=(1.9, 1))
        _draw_levels(axes, trace)
        for state, style in STYLES.items():
            _draw_teachers(axes, trace, state, style)
        _write_columns(beside, trace)
        axes.set_yticks(range(len(trace.teachers)), [str(one.teacher) for one in trace.teachers])
        most = max([*(one.probability for one in trace.teachers), trace.target, *(trace.band or ())])
        axes.set(xlim=(0, max(1.06 * most, 0.05)), ylim=(len(trace.teachers) - 0.4, -0.6), ylabel="teacher")
        axes.set_xlabel(f"probability of {short(class_text, LONGEST_CLASS)}")
        axes.grid(visible=True, axis="x")
        figure.suptitle("".join(letter if letter.isprintable() else "?" for letter in title), x=0.01, ha="left")
        legend_below(figure, axes)
        if picture is not None and picture.ndim == 3 and len(picture) in {1, 3}:
            _show_picture(figure, picture)
        return figure


def _draw_levels(axes: Axes, trace: Trace) -> None:
    if trace.band is not None:
        axes.axvspan(*trace.band, color="#dbe9f4", zorder=0, label="acceptance band")
    if trace.consensus is not None:
        label = f"consensus {percent(trace.consensus, 1)} %"
        axes.axvline(trace.consensus, color="black", linestyle="--", linewidth=1.2, label=label)
    label = f"target {percent(trace.target, 1)} %"
    axes.axvline(trace.target, color=COLOURS[3], linewidth=1.8, label=label)


def _draw_teachers(axes: Axes, trace: Trace, state: State, style: Mapping[str, Any]) -> None:
    """Draw the teachers of one state; the area of a mark grows with the share."""
    rows = [(place, one) for place, one in enumerate(trace.teachers) if one.state == state]
    if rows:
        x, y = [one.probability for _, one in rows], [place for place, _ in rows]
        sizes = [28 + 160 * one.share for _, one in rows]
        axes.scatter(x, y, s=sizes, label=state, zorder=3, **style)


def _write_columns(axes: Axes, trace: Trace) -> None:
    transform = axes.get_yaxis_transform()
    axes.set_axis_off()
    for right, name in COLUMNS:
        axes.text(right, -0.75, name, transform=transform, ha="right", va="bottom", fontsize=8.5, color=GREY)
    for place, one in enumerate(trace.teachers):
        for (right, _), text in zip(COLUMNS, _numbers(one), strict=True):
            axes.text(right, place, text, transform=transform, ha="right", va="center", fontsize=8.5)


def _numbers(one: TeacherTrace) -> tuple[str, ...]:
    share = percent(one.share, 1) if one.share else "-"
    return f"{one.count:.4g}", f"{one.accuracy:.2f}", f"{one.weight:.4g}", share


def _show_picture(figure: Figure, picture: np.ndarray) -> None:
    shown = np.moveaxis(picture, 0, -1).astype(float)
    low, high = float(shown.min()), float(shown.max())
    shown = (shown - low) / (high - low) if high > low else np.zeros_like(shown)
    width, height = PICTURE / FIGURE_WIDTH, PICTURE / figure.get_figheight()
    inset = figure.add_axes((0.985 - width, 0.015, width, height))
    inset.set_in_layout(False)
    inset.imshow(shown.squeeze(-1) if shown.shape[-1] == 1 else shown, cmap="gray", interpolation="nearest")
    inset.set_axis_off()
