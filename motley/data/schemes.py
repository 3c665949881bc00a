"""The words by which a partition is asked for, such as `dirichlet:0.1`."""

import math
from dataclasses import dataclass
from difflib import get_close_matches

from motley.errors import InvalidPartition

ABOUT = {
    "iid": "equal shares, drawn without regard to classes",
    "dirichlet:ALPHA": "each class is given to the clients in shares from Dirichlet(ALPHA); smaller is more skewed",
    "dirichlet-capped:ALPHA": "the same as published code does it: a client that has its fair share gets nothing more",
    "pathological:K": "exactly K classes a client, handed out in class order as published code does it",
    "pathological-random:K": "exactly K classes a client, drawn at random, every class at least once",
    "shared": "no partition: every client has all samples, in the same training and test parts; for comparing models",
    "column:NAME": "natural clients: the distinct values of a column of the source, for example subject or user",
}

FORMS = {form.partition(":")[0]: form for form in ABOUT}


@dataclass(frozen=True)
class Scheme:
    """A parsed scheme; only the field that belongs to its kind means something."""

    kind: str
    alpha: float = 1.0
    classes_per_client: int = 1
    column: str = ""


def parse_scheme(text: str) -> Scheme:
    """Return the scheme that a text names.

    Raises:
        InvalidPartition: The text has none of the known forms.
    """
    kind, colon, value = text.partition(":")
    if kind not in FORMS:
        close = get_close_matches(kind, FORMS, n=1)
        hint = f"; did you mean '{FORMS[close[0]]}'?" if close else ""
        raise InvalidPartition(f"partition.scheme is '{text}', which is not one of {', '.join(FORMS.values())}{hint}")
    if kind in {"iid", "shared"} and not colon:
        return Scheme(kind)
    if kind == "column" and value:
        return Scheme(kind, column=value)
    if kind.startswith("dirichlet"):
        return Scheme(kind, alpha=_positive_number(text, kind, value))
    if kind.startswith("pathological") and value.isascii() and value.isdigit() and int(value) >= 1:
        return Scheme(kind, classes_per_client=int(value))
    raise InvalidPartition(f"partition.scheme is '{text}', but this one is written {FORMS[kind]}{_meaning(kind)}")


def _positive_number(text: str, kind: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number > 0):
        raise InvalidPartition(f"partition.scheme is '{text}', but this one is written {FORMS[kind]}{_meaning(kind)}")
    return number


def _meaning(kind: str) -> str:
    if kind.startswith("dirichlet"):
        return " with a number above 0, for example dirichlet:0.1"
    if kind.startswith("pathological"):
        return " with K, a whole number of classes per client, for example pathological:2"
    return ""
