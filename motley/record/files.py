"""Writing files so that a reader, or a power cut, never meets half of one."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np


def write_bytes(path: Path, data: bytes) -> None:
    """Write a file aside, flush it to the disk and rename it into its place."""
    part = path.with_name(path.name + ".part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 file with plain line ends, whatever the locale."""
    write_bytes(path, text.encode("utf-8"))


def dump_json(value: Any, *, indent: int | None = None) -> str:
    """Return JSON in which a number that is not finite is null."""
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False, indent=indent)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    if isinstance(value, np.generic):
        return _finite(value.item())
    if isinstance(value, float) and value - value != 0:  # nan and infinities differ from themselves when subtracted
        return None
    return value
