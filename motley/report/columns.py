"""A table before it is drawn: its columns for readers and for programs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

Value = float | int | str | None


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        group: What it belongs to; columns of a group stand together.
        title: What it shows, understood inside the group.
        heading: The same, understood without the group.
        cells: As a reader sees them, one a method.
        data: The same for programs, by name: accuracies and differences as fractions, sizes in bytes, times in seconds.
        text: Whether it is aligned to the left.
        detail: Whether it is for programs and the page alone, and left out of the terminal, Markdown and LaTeX.
    """

    group: str
    title: str
    heading: str
    cells: tuple[str, ...]
    data: Mapping[str, tuple[Value, ...]]
    text: bool = False
    detail: bool = False


@dataclass(frozen=True)
class Table:
    """A table with what one must know to read it.

    Attributes:
        columns: The first ones, without a group, tell the rows apart.
        rules: How the figures were made.
        remarks: What is special in this table.
        details: How the columns that are details were made.
    """

    columns: tuple[Column, ...]
    rules: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    details: tuple[str, ...] = ()

    @property
    def short(self) -> "Table":
        """Return the table without details."""
        return replace(self, columns=tuple(column for column in self.columns if not column.detail), details=())

    @property
    def rows(self) -> list[tuple[str, ...]]:
        """Return the cells row by row."""
        return list(zip(*(column.cells for column in self.columns), strict=True))
