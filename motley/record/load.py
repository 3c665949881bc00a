"""Finished and unfinished runs as data frames, for notebooks and for the report."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from motley.errors import InvalidRunFolder
from motley.record.folder import SUMMARY, RunFolder
from motley.record.summary import summarise


@dataclass(frozen=True)
class RunRecord:
    """One run on disk.

    Attributes:
        path: Its folder.
        config: The resolved configuration.
        rows: All whole rows, as dictionaries.
        summary: The figures of the run, so far if its status is "unfinished", and what it says of itself.
    """

    path: Path
    config: dict[str, Any]
    rows: list[dict[str, Any]]
    summary: dict[str, Any]

    @property
    def method(self) -> str:
        """Return the name of the method."""
        return str(self.config["method"])

    @property
    def seed(self) -> int:
        """Return the run's seed."""
        return int(self.config["run"]["seed"])

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """Return one line a round: participants, who was missing, metrics (fractions) and seconds."""
        table = [
            {
                "round": row["round"],
                "participants": len(row["participants"]),
                "missing": len(row["missing"]),
                **row["metrics"],
                **{f"seconds_{phase}": value for phase, value in row["seconds"].items()},
            }
            for row in self.rows
            if row["kind"] == "round"
        ]
        return pd.DataFrame(table)

    @cached_property
    def clients(self) -> pd.DataFrame:
        """Return one line a client and round: steps, loss terms, accuracies (fractions), scalars and bytes."""
        table = []
        for row in self.rows:
            if row["kind"] != "client":
                continue
            train = row["train"] or {}
            entry = {"round": row["round"], "client": row["client"], "active": row["active"], "missing": row["missing"]}
            entry |= {name: train.get(name) for name in ("steps", "samples", "lr")}
            entry |= {f"loss_{name}": value for name, value in train.get("terms", {}).items()}
            for name, score in row["scores"].items():
                count = sum(score["count"])
                entry[f"{name}_accuracy"] = sum(score["correct"]) / count if count else None
                entry[f"{name}_samples"] = count
            table.append(entry | row["traffic"])
        return pd.DataFrame(table)

    @property
    def finished(self) -> bool:
        """Tell whether all rounds have been played."""
        return bool(self.summary["status"] == "finished")

    @property
    def final(self) -> dict[str, Any]:
        """Return the metrics of the last round."""
        return dict(self.summary.get("last") or {})


def load_run(path: str | Path) -> RunRecord:
    """Read a run folder; nothing in it can run code.

    Raises:
        InvalidRunFolder: It is no run folder, or damaged beyond an incomplete last line.
    """
    folder = RunFolder.open(Path(path))
    rows, summary = folder.rows(), read_json(folder.path / SUMMARY)
    if summary.get("status", "unfinished") == "unfinished":
        summary = {"status": "unfinished", **summary, **summarise(rows)}
    return RunRecord(folder.path, folder.config(), rows, summary)


def read_json(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file, or an empty one if the file does not exist.

    Raises:
        InvalidRunFolder: The file is damaged.
    """
    if not path.exists():
        return {}
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise InvalidRunFolder(f"{path} is damaged ({error}); remove it and resume the run to make it again") from error
    if not isinstance(value, dict):
        raise InvalidRunFolder(f"{path} holds no object; remove it and resume the run to make it again")
    return value
