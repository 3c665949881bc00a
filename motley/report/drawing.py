"""How every figure looks, and how it becomes SVG or a file: one size, one palette, text as text, the same bytes."""

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.colors import Colormap
from matplotlib.figure import Figure

from motley.errors import InvalidInput
from motley.record.files import write_bytes
from motley.report.material import Floats
from motley.report.wording import short

WIDTH, HEIGHT = 4.8, 3.0  # inches; small, so that the text stays readable on a narrow screen
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#7f7f7f")  # Okabe and Ito
DASHES = ("-", "--", "-.", ":")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
GREY = "#777777"
LONGEST_LABEL = 24  # letters of a name in a legend
MOST_LABELS = 30  # names beside an axis; with more of them only some positions are numbered
BANDS_UP_TO = 5  # more lines than that are drawn without bands, which would hide each other
LOOK: dict[str, Any] = {
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": "#e2e2e2",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 3.5,
    "svg.fonttype": "none",
    "svg.hashsalt": "motley",
    "text.parse_math": False,  # the name of a class may hold dollar signs
    "savefig.dpi": 200,
}


@contextmanager
def look() -> Iterator[None]:
    """Draw in the look of the report, whatever the user's own settings are."""
    with matplotlib.style.context(["default", LOOK]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # the browser has the letter
        yield


def new_figure(width: float = WIDTH, height: float = HEIGHT) -> Figure:
    """Return an empty figure."""
    return Figure(figsize=(width, height), layout="constrained")


def line_style(position: int) -> dict[str, Any]:
    """Return colour, dashes and mark of the line at a position; they differ without the colour too."""
    return {
        "color": COLOURS[position % len(COLOURS)],
        "linestyle": DASHES[(position // len(COLOURS) + position) % len(DASHES)],
        "marker": MARKS[position % len(MARKS)],
    }


def name_ticks(axis: Axis, names: Sequence[str], *, most: int = MOST_LABELS) -> None:
    """Name positions 0, 1, 2 ... of an axis; with too many names some positions are numbered instead."""
    if len(names) <= most:
        axis.set_ticks(range(len(names)), [short(name) for name in names])
    else:
        step = _step(len(names))
        axis.set_ticks(range(0, len(names), step), [str(one) for one in range(0, len(names), step)])


def id_ticks(axis: Axis, ids: Sequence[int], *, most: int = 12) -> None:
    """Number positions by ids, as many as fit."""
    step = 1 if len(ids) <= most else _step(len(ids))
    axis.set_ticks(range(0, len(ids), step), [str(one) for one in ids[::step]])


def _step(count: int) -> int:
    return next(step for step in (2, 5, 10, 20, 50, 100, 200, 500, 1000, count) if count / step <= 11)


def turn_if_long(axes: Axes, names: Sequence[str], room: int = 60) -> None:
    """Turn the names below an axis if together they are wider than it, and make the figure as much higher."""
    if len(names) <= MOST_LABELS and sum(len(short(name)) + 1 for name in names) > room:
        axes.tick_params(axis="x", labelrotation=90)
        figure = axes.get_figure(root=True)
        assert figure is not None
        figure.set_figheight(figure.get_figheight() + 0.05 * max(len(short(name)) for name in names))


def legend_below(figure: Figure, axes: Axes) -> None:
    """Put the legend below the axes, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        longest = max(map(len, labels))
        columns = max(1, min(len(labels), 54 // (longest + 6)))
        more = -(-len(labels) // columns) - 1
        figure.set_figheight(figure.get_figheight() + 0.19 * more)
        figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=2.6, columnspacing=1.4)


def legend_name(name: str) -> str:
    """Return a label that matplotlib shows even if it begins with an underscore; variants differ at their ends."""
    shown = short(name, LONGEST_LABEL, end=LONGEST_LABEL // 2)
    return f"\u200b{shown}" if name.startswith("_") else shown


def heat_map(
    figure: Figure, axes: Axes, values: Floats, *, label: str, low: float | None = None, high: float | None = None
) -> None:
    """Draw a matrix, rows downwards; NaN is grey, small matrices show their numbers.

    The colours run from `low` to `high`, by default from the smallest to the largest value.
    """
    known = values[np.isfinite(values)]
    lowest = (float(known.min()) if known.size else 0.0) if low is None else low
    highest = (float(known.max()) if known.size else 1.0) if high is None else high
    highest = highest if highest > lowest else lowest + 1.0
    palette: Colormap = matplotlib.colormaps["YlGnBu"].with_extremes(bad="#d9d9d9")
    large = values.size > 600
    mesh = axes.pcolormesh(
        np.ma.masked_invalid(values), cmap=palette, vmin=lowest, vmax=highest, edgecolors="none", rasterized=large
    )
    axes.set_xlim(0, values.shape[1])
    axes.set_ylim(values.shape[0], 0)
    for side in axes.spines.values():
        side.set_visible(False)
    bar = figure.colorbar(mesh, ax=axes, shrink=0.9, pad=0.02, aspect=25)
    bar.set_label(label, labelpad=7)
    bar.outline.set_visible(False)
    if max(values.shape) <= 12:
        _write_numbers(axes, values, lowest + 0.6 * (highest - lowest))


def _write_numbers(axes: Axes, values: Floats, dark: float) -> None:
    digits = 0 if values.size and np.nanmax(values, initial=0) > 1 else 2
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            text = f"{value:.{digits}f}".removeprefix("0" if digits else "") if value else "0"
            colour = "white" if value > dark else "black"
            shown = axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=7.5, color=colour)
            shown.set_in_layout(False)  # it lies inside; measuring it takes longer than all the rest


def centre_ticks(axes: Axes) -> None:
    """Move the ticks of a heat map from the corners of its cells to their middles."""
    for axis in (axes.xaxis, axes.yaxis):
        labels = [label.get_text() for label in axis.get_ticklabels()]
        axis.set_ticks([float(place) + 0.5 for place in axis.get_ticklocs()], labels)
    axes.tick_params(length=0)


def to_svg(figure: Figure, name: str) -> str:
    """Return a figure as an inline SVG element without width, height and outside references.

    The page sets `stroke-linejoin: round; stroke-linecap: butt` for all of them.

    Args:
        figure: What to draw.
        name: Put before every id, so that several figures can stand on one page.
    """
    buffer = StringIO()
    with look():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    text, name = buffer.getvalue(), slug(name)
    text = text[text.index("<svg") :].strip()
    text = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", text, flags=re.DOTALL)
    return re.sub(r"<[^>]+>", lambda tag: _own_tag(tag.group(), name), text)


def slug(name: str) -> str:
    """Return a name in letters that an id may hold."""
    return re.sub(r"[^A-Za-z0-9-]", "-", name)


def _own_tag(tag: str, name: str) -> str:
    if tag.startswith("<svg"):
        tag = re.sub(r' (xmlns(:\w+)?|width|height|version)="[^"]*"', "", tag)
    tag = re.sub(r' id="', f' id="{name}-', tag)
    tag = re.sub(r'href="#', f'href="#{name}-', tag)
    return tag.replace("url(#", f"url(#{name}-")


def check_figure_path(path: Path) -> str:
    """Return the kind of file that the ending of a path asks for.

    Raises:
        InvalidInput: The ending is none of png, svg and pdf.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in {"png", "svg", "pdf"}:
        raise InvalidInput(f"a figure cannot be written as '{path.name}'; let its name end in .png, .svg or .pdf")
    return kind


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, SVG or PDF, by the ending of the path.

    Raises:
        InvalidInput: The ending is another one.
    """
    kind = check_figure_path(path)
    buffer = BytesIO()
    with look():
        date = {} if kind == "png" else {"Date" if kind == "svg" else "CreationDate": None}
        figure.savefig(buffer, format=kind, metadata=date)
    write_bytes(path, buffer.getvalue())
