"""Warnings of motley: each is told once, as one line."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from motley.errors import MotleyWarning


@contextmanager
def told_warnings(tell: Callable[[str], None]) -> Iterator[list[str]]:
    """Tell every motley warning of a block once and collect them; other warnings go their usual way."""
    told: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", MotleyWarning)
        usual = warnings.showwarning

        def show(message: Any, category: Any, *place: Any, **more: Any) -> None:
            if not issubclass(category, MotleyWarning):
                usual(message, category, *place, **more)
            elif str(message) not in told:
                told.append(str(message))
                tell(str(message))

        warnings.showwarning = show
        yield told
