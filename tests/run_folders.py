"""What tests read of a run folder."""

import json
from pathlib import Path
from typing import Any

from motley.record.checkpoints import read_checkpoint


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Return the contents of all files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """Return the whole rows of a run without their times."""
    text = (folder / "rounds.jsonl").read_text(encoding="utf-8") if (folder / "rounds.jsonl").exists() else ""
    rows = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def rounds_of(folder: Path) -> list[int]:
    """Return the numbers of the finished rounds, as they stand in the file."""
    return [row["round"] for row in rows_of(folder) if row["kind"] == "round"]


def tensors_of(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all tensors of the newest checkpoint."""
    checkpoint = read_checkpoint(folder / "checkpoints")
    assert checkpoint is not None
    return {name: tensor.contiguous().numpy().tobytes() for name, tensor in checkpoint.tensors.items()}


def summary_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text(encoding="utf-8")))
