"""Remarks about the data: every warning is shown once and kept for the results."""

import warnings

from motley.errors import MotleyWarning


class Notes:
    """Collects what was decided or warned of while data are read and given to the clients."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, text: str) -> None:
        """Keep a remark that needs no attention now."""
        self._texts.append(text)

    def warn(self, text: str) -> None:
        """Keep a remark and show it as a `MotleyWarning`."""
        self.add(text)
        warnings.warn(text, MotleyWarning, stacklevel=2)

    def all(self) -> tuple[str, ...]:
        """Return the remarks in the order in which they came."""
        return tuple(self._texts)
