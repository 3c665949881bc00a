"""The rows of rounds.jsonl: one for every round, and one for every client that took part or was evaluated in it."""

import json
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motley.errors import InvalidRunFolder, MotleyWarning
from motley.record.files import dump_json, write_text


@dataclass(frozen=True)
class ClientRow:
    """What happened on one client in one round; all numbers are plain.

    Attributes:
        round, client: Where and when; round 0 is the evaluation before any training.
        active: Whether it took part.
        missing: Why its upload is left out, or None.
        train: Steps, samples, rate, digest of the sample order and mean of each loss term; None if it did not train.
        traffic: Scalars and bytes that it sent (up) and received (down).
        seconds: Time of its round.
        scores: By set (test_local, validation, test_global): correct and count per class, and the mean loss.
        method: What the method measured on it.
    """

    round: int
    client: int
    active: bool
    missing: str | None = None
    train: dict[str, Any] | None = None
    traffic: dict[str, int] = field(default_factory=dict)
    seconds: float | None = None
    scores: dict[str, Any] = field(default_factory=dict)
    method: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RoundRow:
    """One round of the federation.

    Attributes:
        round: From 0.
        participants: Ids of those who took part, ascending.
        missing: Reason by id of those whose upload is left out.
        metrics: Accuracies as fractions, None where nobody has data; empty if the round was not evaluated.
        seconds: By phase.
    """

    round: int
    participants: list[int]
    missing: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


def to_line(row: ClientRow | RoundRow) -> str:
    """Return a row as one line of JSON."""
    kind = "client" if isinstance(row, ClientRow) else "round"
    return dump_json({"kind": kind, **vars(row)}) + "\n"


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Return all whole rows of a file; what an interrupted run left behind them is passed over with a warning.

    Raises:
        InvalidRunFolder: A damaged line stands before whole ones, so the file was not just cut off; or there is none.
    """
    rows: list[dict[str, Any]] = []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise InvalidRunFolder(f"{path} cannot be read ({error.strerror}); restore it from a copy") from error
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            row = json.loads(line)
        except ValueError:
            if any(rest.strip(b"\x00 \r") for rest in lines[number:]):
                raise InvalidRunFolder(
                    f"{path}, line {number} is damaged in the middle of the file; restore it from a copy"
                ) from None
            text = f"{path}, line {number} is incomplete and was passed over; the {len(rows)} rows before it are whole"
            warnings.warn(text, MotleyWarning, stacklevel=2)
            break
        if not isinstance(row, dict):
            raise InvalidRunFolder(f"{path}, line {number} is no row of a run; restore the file from a copy")
        rows.append(row)
    return rows


def keep_rows(path: Path, last_round: int) -> int:
    """Drop all rows after a round, because they will be made again; return how many rows are left."""
    rows = [row for row in read_rows(path) if row["round"] <= last_round]
    write_text(path, "".join(dump_json(row) + "\n" for row in rows))
    return len(rows)
