"""Results on standard output, warnings on standard error."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, RenderableType

from motley.errors import MotleyWarning

WIDTH_WITHOUT_TERMINAL = 160


def print_table(content: RenderableType) -> None:
    """Print a table, or text as it is, to standard output; a pipe gets plain characters and wide lines."""
    width = None if sys.stdout.isatty() else WIDTH_WITHOUT_TERMINAL
    console = Console(file=sys.stdout, width=width, soft_wrap=isinstance(content, str), markup=False, emoji=False)
    console.print(content, highlight=False)


@contextmanager
def warnings_to_stderr() -> Iterator[None]:
    """Show every motley warning of a block once, as one line on standard error."""
    told: set[str] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("always", MotleyWarning)
        usual = warnings.showwarning

        def show(message: Any, category: Any, *place: Any, **more: Any) -> None:
            if not issubclass(category, MotleyWarning):
                usual(message, category, *place, **more)
            elif str(message) not in told:
                told.add(str(message))
                sys.stderr.write(f"warning: {message}\n")

        warnings.showwarning = show
        yield
