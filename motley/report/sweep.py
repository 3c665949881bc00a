"""A sweep as one table and one figure: the comparisons of its points below each other, accuracy over the first axis."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from motley.record.files import write_text
from motley.record.ranking import Ranking, point_settings, rank_settings
from motley.record.sweep import Point, Sweep, Value, point_text, value_text
from motley.report.columns import Column, Table
from motley.report.drawing import legend_below, line_style, look, name_ticks, new_figure, save_figure, turn_if_long
from motley.report.ranks import rank_remarks, rank_rules, rank_text
from motley.report.render import to_csv, to_markdown
from motley.report.tables import FIGURES, comparison_table
from motley.report.wording import MISSING

MARKDOWN, CSV, FIGURE = "table.md", "table.csv", "figure.svg"


def write_sweep(sweep: Sweep) -> list[Path]:
    """Write the table, in Markdown and as CSV, and the figure into the folder of a sweep; return their paths."""
    table = sweep_table(sweep)
    files = [sweep.path / name for name in (MARKDOWN, CSV, FIGURE)]
    write_text(files[0], to_markdown(table))
    write_text(files[1], to_csv(table))
    save_figure(sweep_figure(sweep), files[2])
    return files


def sweep_table(sweep: Sweep) -> Table:
    """Return the tables of all points as one, one row a point and method; the first columns are the axes of the grid.

    What holds for all points is said once, what holds for some of them with the point.
    """
    tables = [comparison_table(comparison) for comparison in sweep.comparisons]
    sizes = [len(table.rows) for table in tables]
    axes = []
    for place in sweep.grid:
        values = [point[place] for point, size in zip(sweep.points, sizes, strict=True) for _ in range(size)]
        cells = tuple(map(value_text, values))  # also in the CSV: 1 and 1.0 may differ in meaning
        axes.append(Column("", place, place, cells, {place: cells}, text=isinstance(values[0], str)))
    rules = _told([table.rules for table in tables], sweep.points)
    remarks = _told([table.remarks for table in tables], sweep.points)
    details = _told([table.details for table in tables], sweep.points)
    columns, ranking = _joined(tables, sizes), sweep_ranking(sweep)
    if ranking is not None:
        columns = _with_ranks(columns, sweep, ranking)
        rules, remarks = (*rules, *rank_rules(ranking)), (*remarks, *rank_remarks(ranking))
    return Table((*axes, *columns), rules, remarks, details)


def sweep_ranking(sweep: Sweep) -> Ranking | None:
    """Return the ranks of the rows over the points; None where points are no settings, or there is nothing to rank."""
    if not sweep.has_settings or len(sweep.comparisons[0].names) < 2:
        return None
    ranking = rank_settings(point_settings(sweep))
    return ranking if len(ranking.settings) > 1 else None


def _with_ranks(columns: Sequence[Column], sweep: Sweep, ranking: Ranking) -> list[Column]:
    """Return the columns with the rank inside of the point, behind local accuracy."""
    known = dict(zip(ranking.settings, ranking.ranks, strict=True))
    values = tuple(
        known[setting][ranking.names.index(name)] if setting in known and name in ranking.names else None
        for setting, comparison in point_settings(sweep)
        for name in comparison.names
    )
    group = FIGURES["local"][0]
    place = max(place for place, column in enumerate(columns) if column.group == group) + 1
    ranks = Column(group, "rank", "rank", tuple(map(rank_text, values)), {"rank": values})
    return [*columns[:place], ranks, *columns[place:]]


def _joined(tables: Sequence[Table], sizes: Sequence[int]) -> list[Column]:
    """Return the columns of tables below each other; a cell that a table does not have is missing."""
    by_heading = [{column.heading: column for column in table.columns} for table in tables]
    kinds = {heading: column for columns in by_heading for heading, column in columns.items()}
    order = list(dict.fromkeys(column.group for column in kinds.values()))
    joined = []
    for heading, kind in sorted(kinds.items(), key=lambda item: order.index(item[1].group)):
        found = list(zip((columns.get(heading) for columns in by_heading), sizes, strict=True))
        cells = tuple(cell for column, size in found for cell in (column.cells if column else (MISSING,) * size))
        data = {
            name: tuple(value for column, size in found for value in (column.data[name] if column else (None,) * size))
            for name in kind.data
        }
        joined.append(replace(kind, cells=cells, data=data))
    return joined


def _told(texts: Sequence[Sequence[str]], points: Sequence[Point]) -> tuple[str, ...]:
    """Return every text once: as it is if all points have it, else after those points that do."""
    told: list[tuple[bool, str]] = []
    for text in dict.fromkeys(text for own in texts for text in own):
        having = [point_text(point) for own, point in zip(texts, points, strict=True) if text in own]
        everywhere = len(having) == len(points)
        told.append((not everywhere, text if everywhere else f"At {'; '.join(having)}: {text}"))
    return tuple(text for _, text in sorted(told, key=lambda one: one[0]))


def sweep_figure(sweep: Sweep) -> Figure:
    """Draw local accuracy in the last round over the values of the first axis, with one deviation over seeds.

    One line a method and combination of the other axes; values stand at equal distances, in the order of the grid.
    """
    first, *others = sweep.grid
    places = {repr(value): position for position, value in enumerate(sweep.grid[first])}
    lines: dict[str, list[tuple[int, dict[str, Any]]]] = {}
    for point, comparison in zip(sweep.points, sweep.comparisons, strict=True):
        rest: dict[str, Value] = {place: point[place] for place in others}
        for line in comparison.table():
            name = ", ".join(filter(None, (str(line["method"]), point_text(rest))))
            if line.get("local"):
                lines.setdefault(name, []).append((places[repr(point[first])], line["local"]))
    with look():
        figure = new_figure()
        axes = figure.add_subplot()
        for position, (name, own) in enumerate(lines.items()):
            where = np.array([place for place, _ in own], dtype=np.float64)
            where += min(0.02, 0.3 / len(lines)) * (position - (len(lines) - 1) / 2)  # error bars beside each other
            means = [100 * figures["mean"] for _, figures in own]
            deviations = [100 * (figures["sd"] or 0.0) for _, figures in own]
            axes.errorbar(where, means, yerr=deviations, capsize=2, elinewidth=0.9, label=name, **line_style(position))
        values = list(map(value_text, sweep.grid[first]))
        name_ticks(axes.xaxis, values)
        turn_if_long(axes, values)
        axes.set_xlim(-0.3, len(values) - 0.7)
        axes.grid(visible=True)
        axes.set(xlabel=first, ylabel="local accuracy, %")
        legend_below(figure, axes)
        return figure
