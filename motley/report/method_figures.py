"""The figures of single methods: the topology of FedTopo, the teachers of CRAD."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from motley.report.drawing import (
    MOST_LABELS,
    WIDTH,
    centre_ticks,
    heat_map,
    id_ticks,
    legend_below,
    line_style,
    look,
    name_ticks,
    new_figure,
    turn_if_long,
)
from motley.report.material import Floats, GuidanceMaterial, TeacherMaterial


def pair_figure(values: Floats, class_names: Sequence[str], *, label: str) -> Figure:
    """Draw a matrix of class pairs (C, C); NaN, such as the diagonal, is grey."""
    with look():
        figure = new_figure(height=3.9)
        axes = figure.add_subplot()
        heat_map(figure, axes, values, label=label)
        axes.set_aspect("equal")
        name_ticks(axes.xaxis, class_names)
        name_ticks(axes.yaxis, class_names)
        centre_ticks(axes)
        turn_if_long(axes, class_names, room=36)
        return figure


def change_figure(material: GuidanceMaterial) -> Figure:
    """Draw how much relations and guidance changed from round to round, on a logarithmic axis."""
    with look():
        figure = new_figure()
        axes = figure.add_subplot()
        lines = {"relations R^g": material.relations_change, "guidance B": material.guidance_change}
        for position, (name, values) in enumerate(lines.items()):
            shown = np.where(values > 0, values, np.nan)
            axes.plot(material.rounds, shown, label=name, **(line_style(position) | {"marker": "."}))
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter("{x:g}")  # powers of ten would be mathematical text
        axes.yaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(visible=True)
        axes.set(xlabel="round", ylabel="mean absolute change")
        legend_below(figure, axes)
        return figure


def teacher_figure(values: Floats, teachers: Sequence[int], class_names: Sequence[str], *, label: str) -> Figure:
    """Draw a matrix of teachers by classes (M, C)."""
    with look():
        figure = new_figure(WIDTH, _height(len(teachers)))
        axes = figure.add_subplot()
        heat_map(figure, axes, values, label=label, low=0.0)
        name_ticks(axes.xaxis, class_names)
        id_ticks(axes.yaxis, teachers, most=MOST_LABELS)
        centre_ticks(axes)
        turn_if_long(axes, class_names, room=36)
        axes.set(xlabel="class", ylabel="teacher")
        return figure


def kept_figure(material: TeacherMaterial) -> Figure:
    """Draw how often the filter kept each teacher, round by round."""
    with look():
        figure = new_figure(WIDTH, _height(len(material.teachers)))
        axes = figure.add_subplot()
        heat_map(figure, axes, 100 * material.kept, label="kept, % of samples", low=0.0, high=100.0)
        id_ticks(axes.xaxis, material.rounds)
        id_ticks(axes.yaxis, material.teachers, most=MOST_LABELS)
        centre_ticks(axes)
        axes.set(xlabel="round", ylabel="teacher")
        return figure


def _height(rows: int) -> float:
    return float(np.clip(0.24 * rows + 0.9, 2.4, 5.5))
