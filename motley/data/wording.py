"""Phrases that messages about data share: a number with its noun, and a list that ends."""

from collections.abc import Sequence

SHOWN = 10  # items that a message lists


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return `1 sample`, `3 samples`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def listed(items: Sequence[str], separator: str = ", ") -> str:
    """Return the first ten items, and how many more there are."""
    more = f"{separator}and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return separator.join(items[:SHOWN]) + more
