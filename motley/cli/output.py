"""Results on standard output, warnings on standard error."""

import sys
from contextlib import AbstractContextManager

from rich.console import Console, RenderableType

from motley.engine.notices import told_warnings

WIDTH_WITHOUT_TERMINAL = 160


def print_table(content: RenderableType) -> None:
    """Print a table, or text as it is, to standard output; a pipe gets plain characters and wide lines."""
    width = None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL
    console = Console(file=sys.stdout, width=width, soft_wrap=isinstance(content, str), markup=False, emoji=False)
    console.print(content, highlight=False)


def warnings_to_stderr() -> AbstractContextManager[list[str]]:
    """Show every motley warning of a block once, as one line on standard error."""
    return told_warnings(lambda text: print(f"warning: {text}", file=sys.stderr))  # noqa: T201
