"""Numbers as a reader wants to see them; what is missing is "-", never 0 or NaN."""

import math

MISSING = "-"
LONGEST_NAME = 13


def percent(value: float | None, digits: int = 2) -> str:
    """Return a fraction in per cent, without the sign."""
    return MISSING if _unknown(value) else f"{100 * value:.{digits}f}"  # type: ignore[operator]


def points(value: float | None) -> str:
    """Return a difference of fractions in percentage points, with its sign."""
    return MISSING if _unknown(value) else f"{100 * value:+.2f}"  # type: ignore[operator]


def interval(low: float | None, high: float | None) -> str:
    """Return an interval of differences in percentage points."""
    return MISSING if _unknown(low) or _unknown(high) else f"[{points(low)}, {points(high)}]"


def p_value(value: float | None) -> str:
    """Return a p value: 0.031, < 0.001."""
    if _unknown(value):
        return MISSING
    assert value is not None
    return f"{value:.3f}" if value >= 0.0005 else "< 0.001"


def number(value: float | None) -> str:
    """Return a count: 110, 82,609, 11.2 M."""
    if _unknown(value):
        return MISSING
    assert value is not None
    for unit, size in (("G", 1e9), ("M", 1e6)):
        if abs(value) >= size:
            return f"{value / size:.1f} {unit}"
    return f"{value:,.0f}"


def size(value: float | None) -> str:
    """Return a number of bytes: 440 B, 330.4 kB, 44.7 MB."""
    if _unknown(value):
        return MISSING
    assert value is not None
    for unit, step in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= step:
            return f"{value / step:.1f} {unit}"
    return f"{value:.0f} B"


def duration(seconds: float | None) -> str:
    """Return a time: 0.88 s, 75 s, 12.5 min, 3.1 h."""
    if _unknown(seconds):
        return MISSING
    assert seconds is not None
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def plural(count: int, word: str, many: str | None = None) -> str:
    """Return "1 seed", "3 seeds"."""
    return f"{count} {word}" if count == 1 else f"{count} {many or word + 's'}"


def short(name: str, most: int = LONGEST_NAME, *, end: int = 0) -> str:
    """Return a name that fits, by default beside an axis: printable, cut before its last `end` letters if too long."""
    shown = "".join(letter if letter.isprintable() else "?" for letter in name)
    return shown if len(shown) <= most else shown[: most - 1 - end] + "…" + shown[len(shown) - end :]


def _unknown(value: float | None) -> bool:
    return value is None or not math.isfinite(value)
