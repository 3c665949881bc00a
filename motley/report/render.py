"""A table as text: for the terminal, Markdown, CSV, LaTeX and HTML."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import pandas as pd
from markupsafe import Markup
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from motley.report.columns import Column, Table
from motley.report.templating import template
from motley.report.wording import MISSING

GAP = 2  # columns of the terminal between two columns of the table
LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}", "%": r"\%", "&": r"\&", "_": r"\_", "#": r"\#", "$": r"\$", "{": r"\{", "}": r"\}",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
        "±": r"$\pm$", "…": r"\ldots{}",
    }
)  # fmt: skip
MINUS = re.compile(r"(?<![\w.-])-(?=\d)")


@dataclass(frozen=True)
class _Fitting:
    """A table that fits itself to the console; groups of columns without room go into further tables below."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        for columns in _blocks(self.table, options.max_width):
            yield _rich_block(columns)
        for text in self.table.rules:
            yield Text(text, style="dim")
        for text in self.table.remarks:
            yield Text(text, style="yellow")


def to_rich(table: Table) -> RenderableType:
    """Return the table for rich, as wide as the console that prints it, with the rules and remarks below."""
    return _Fitting(table.short)


def _rich_block(columns: Sequence[Column]) -> RichTable:
    made = RichTable(box=SIMPLE_HEAD, padding=(0, 1), collapse_padding=True, pad_edge=False)
    for column in columns:
        made.add_column(
            Text(_stacked(column)), justify="left" if column.text else "right", no_wrap=True, vertical="bottom"
        )
    for row in zip(*(column.cells for column in columns), strict=True):
        made.add_row(*map(Text, row))
    return made


def _stacked(column: Column) -> str:
    """Return the heading in short lines, so that it is not wider than the figures."""
    words, lines = column.heading.split(" "), [""]
    room = max([10, *map(len, column.cells)])
    for word in words:
        if lines[-1] and len(lines[-1]) + 1 + len(word) > room:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def _blocks(table: Table, width: int) -> Iterator[list[Column]]:
    first = [column for column in table.columns if not column.group]
    groups = [list(own) for _, own in groupby((c for c in table.columns if c.group), key=lambda column: column.group)]
    block, empty = list(first), True
    for group in groups:
        if not empty and _width([*block, *group]) > width:
            yield block
            block = list(first)
        block, empty = [*block, *group], False
    yield block


def _width(columns: Sequence[Column]) -> int:
    return sum(max(map(len, [*_stacked(column).split("\n"), *column.cells])) + GAP for column in columns) + 2


def to_markdown(table: Table) -> str:
    """Return the table in Markdown, aligned also as plain text, with the rules and remarks below."""
    table = table.short
    columns = [[_cell(text) for text in (column.heading, *column.cells)] for column in table.columns]
    widths = [max(3, *map(len, texts)) for texts in columns]
    sides = [str.ljust if column.text else str.rjust for column in table.columns]
    marks = [
        "-" * width if column.text else "-" * (width - 1) + ":"
        for column, width in zip(table.columns, widths, strict=True)
    ]
    rows = [
        [side(text, width) for side, text, width in zip(sides, row, widths, strict=True)]
        for row in zip(*columns, strict=True)
    ]
    lines = [f"| {' | '.join(row)} |" for row in [rows[0], marks, *rows[1:]]]
    return "\n".join([*lines, "", *(f"{text}  " for text in (*table.rules, *table.remarks))]).rstrip() + "\n"


def _cell(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|")


def to_csv(table: Table) -> str:
    """Return the figures for programs: fractions, bytes and seconds; empty where there is none."""
    return str(
        pd.DataFrame({name: values for c in table.columns for name, values in c.data.items()}).to_csv(
            index=False, lineterminator="\n"
        )
    )


def to_latex(table: Table, caption: str = "") -> str:
    """Return the table in LaTeX, with the rules and remarks below; with a caption it floats.

    The document needs the package booktabs.
    """
    table = table.short
    kinds = "".join("l" if column.text else "r" for column in table.columns)
    groups = [(name, len(list(own))) for name, own in groupby(table.columns, key=lambda column: column.group)]
    above, rules, place = [], [], 1
    for name, width in groups:
        above.append(rf"\multicolumn{{{width}}}{{c}}{{{_latex(name)}}}" if name else " & " * (width - 1))
        if name:
            rules.append(rf"\cmidrule(lr){{{place}-{place + width - 1}}}")
        place += width
    head = [_latex_row(above, escape=False), " ".join(rules)] if rules else []
    titles = _latex_row([column.title for column in table.columns])
    body = [
        "% needs \\usepackage{booktabs}",
        rf"\begin{{tabular}}{{{kinds}}}",
        r"\toprule",
        *head,
        titles,
        r"\midrule",
        *map(_latex_row, table.rows),
        r"\bottomrule",
        r"\end{tabular}",
    ]
    notes = " ".join(map(_latex, (*table.rules, *table.remarks)))
    below = ["", rf"{{\footnotesize {notes}\par}}"] if notes else []
    if caption:
        body = [body[0], r"\begin{table}", r"\centering", rf"\caption{{{_latex(caption)}}}", *body[1:]]
        below.append(r"\end{table}")
    return "\n".join([*body, *below]) + "\n"


def _latex_row(cells: Sequence[str], *, escape: bool = True) -> str:
    return " & ".join(map(_latex, cells) if escape else cells) + r" \\"


def _latex(text: str) -> str:
    """Return text for LaTeX: nothing in it is a command, and numbers below 0 have a minus."""
    return MINUS.sub("$-$", ("--" if text == MISSING else text).translate(LATEX))


def to_html(table: Table) -> Markup:
    """Return the table in HTML with a head of groups, and its details as a table below; each scrolls by itself."""
    tables = [(table.short, "table of results")]
    if any(column.detail for column in table.columns):
        columns = tuple(column for column in table.columns if column.detail or not column.group)
        tables.append((Table(columns, table.details), "table of details"))
    return Markup("").join(_html(one, label) for one, label in tables)


def _html(table: Table, label: str) -> Markup:
    groups = [(name, len(list(own))) for name, own in groupby(table.columns, key=lambda column: column.group)]
    made = template("table.html.j2").render(table=table, groups=groups, label=label)
    return Markup(made)  # noqa: S704 - escaped there
