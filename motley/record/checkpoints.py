"""Checkpoints: all tensors of a run in one safetensors file, beside it a small JSON file with its checksum.

The JSON file is written last, so a checkpoint without it does not exist. Files are written aside, flushed and renamed;
the last two checkpoints are kept.
"""

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import load, save
from torch import Tensor

from motley.errors import InvalidRunFolder, MotleyWarning
from motley.record.files import dump_json, write_bytes, write_text

KEPT = 2
FORMAT = 1
HEADER = {"format", "round", "sha256", "notes"}


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after a round.

    Attributes:
        round: The last finished round; 0 is before any training.
        tensors: Everything, by name: client/3/model/..., client/3/memory/..., state/....
        notes: Plain values that belong to it.
    """

    round: int
    tensors: Mapping[str, Tensor]
    notes: Mapping[str, Any]


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint and remove all but the last two."""
    folder.mkdir(exist_ok=True)
    name = f"round-{checkpoint.round:06d}"
    tensors = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in checkpoint.tensors.items()}
    data = save(tensors)
    write_bytes(folder / f"{name}.safetensors", data)
    header = {
        "format": FORMAT,
        "round": checkpoint.round,
        "sha256": hashlib.sha256(data).hexdigest(),
        "notes": dict(checkpoint.notes),
    }
    write_text(folder / f"{name}.json", dump_json(header, indent=1) + "\n")
    for old in sorted(folder.glob("round-*.json"))[:-KEPT]:
        old.with_suffix(".safetensors").unlink(missing_ok=True)
        old.unlink()


def read_checkpoint(folder: Path, *, last_round: int | None = None) -> Checkpoint | None:
    """Return the newest checkpoint that is whole, or None if none was ever written.

    A damaged one is passed over with a warning that names it, and so is one of a round after `last_round`, with which
    the rows end: they would have a gap.

    Raises:
        InvalidRunFolder: There are checkpoints and none of them is whole.
    """
    names = sorted(
        {path.stem for path in folder.glob("round-*") if path.suffix in {".json", ".safetensors"}}, reverse=True
    )
    faults = []
    for name in names:
        try:
            found = _read(folder / name)
            if last_round is not None and found.round > last_round:
                raise ValueError(f"the rows end with round {last_round}")
            return found
        except (OSError, ValueError) as error:
            faults.append(f"{name} ({error})")
            warnings.warn(f"checkpoint {folder / name} was passed over: {error}", MotleyWarning, stacklevel=2)
    if faults:
        raise InvalidRunFolder(
            f"no checkpoint in {folder} is whole: {'; '.join(faults[:10])}; restore one from a copy or start a new run"
        )
    return None


def _read(stem: Path) -> Checkpoint:
    header_path = stem.with_suffix(".json")
    if not header_path.exists():
        raise ValueError("it was not finished")
    try:
        header = json.loads(header_path.read_bytes())
    except ValueError:
        header = None
    if not isinstance(header, dict) or not header.keys() >= HEADER:
        raise ValueError("its header is damaged")
    data = stem.with_suffix(".safetensors").read_bytes()
    if not data:
        raise ValueError("it is empty")
    if hashlib.sha256(data).hexdigest() != header["sha256"]:
        raise ValueError("its checksum is wrong")
    if header["format"] != FORMAT:
        raise ValueError(f"it has format {header['format']}, this version reads format {FORMAT}")
    return Checkpoint(header["round"], load(data), header["notes"])
