"""The folder of a run: made in one step, owned by one run, never overwritten."""

import os
import re
import shutil
import tempfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import tomli_w

from motley.errors import InvalidRunFolder
from motley.record.checkpoints import Checkpoint, read_checkpoint, write_checkpoint
from motley.record.files import dump_json, write_text
from motley.record.rows import ClientRow, RoundRow, keep_rows, read_rows, to_line

CONFIG, ROWS, SUMMARY, LOG = "config.toml", "rounds.jsonl", "summary.json", "log.txt"
PARTITION, CLIENTS, CHECKPOINTS, REPORT = "partition.npz", "clients.csv", "checkpoints", "report.html"


class RunFolder:
    """A run on disk.

    Args:
        path: An existing run folder; `RunFolder.create` makes a new one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: TextIO | None = None

    @classmethod
    def create(cls, path: Path, files: dict[str, bytes]) -> "RunFolder":
        """Make a run folder with its first files, in one step.

        Raises:
            InvalidRunFolder: The folder exists and is not empty, or cannot be made.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            staging = Path(tempfile.mkdtemp(prefix=".motley-", dir=path.parent))
        except OSError as error:
            raise InvalidRunFolder(
                f"the folder {path} cannot be made ({error.strerror}); choose another with --out"
            ) from error
        try:
            for name, data in files.items():
                (staging / name).write_bytes(data)
            staging.chmod(0o755)
            staging.rename(path)
        except OSError as error:
            shutil.rmtree(staging)
            check_free(path)
            raise InvalidRunFolder(
                f"{path} cannot be a run folder ({error.strerror}); choose another with --out"
            ) from error
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> "RunFolder":
        """Open an existing run folder.

        Raises:
            InvalidRunFolder: It is none.
        """
        if not (path / CONFIG).is_file():
            raise InvalidRunFolder(f"{path} is no run folder: it has no {CONFIG}; name the folder that a run printed")
        return cls(path)

    def config(self) -> dict[str, Any]:
        """Return the resolved configuration.

        Raises:
            InvalidRunFolder: It cannot be read.
        """
        try:
            return tomllib.loads((self.path / CONFIG).read_text(encoding="utf-8"))
        except (ValueError, OSError) as error:
            raise InvalidRunFolder(f"{self.path / CONFIG} is damaged; restore it from a copy") from error

    def write_config(self, config: dict[str, Any]) -> None:
        """Replace the configuration, when more rounds are asked for."""
        write_text(self.path / CONFIG, tomli_w.dumps(config))

    def append(self, rows: list[ClientRow | RoundRow]) -> None:
        """Append the rows of a round; they can be read while the run goes on."""
        if self._rows is None:
            self._rows = (self.path / ROWS).open("a", encoding="utf-8", newline="\n")
        self._rows.write("".join(map(to_line, rows)))
        self._rows.flush()

    def rows(self) -> list[dict[str, Any]]:
        """Return all whole rows."""
        return read_rows(self.path / ROWS)

    def rewind(self, last_round: int) -> None:
        """Drop the rows after a round before they are made again."""
        self.close()
        keep_rows(self.path / ROWS, last_round)

    def save(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, after the rows of its rounds have reached the disk."""
        if self._rows is not None:
            os.fsync(self._rows.fileno())
        write_checkpoint(self.path / CHECKPOINTS, checkpoint)

    def latest(self) -> Checkpoint | None:
        """Return the newest whole checkpoint whose rounds are all in the rows, or None."""
        recorded = [row["round"] for row in self.rows() if row["kind"] == "round"]
        return read_checkpoint(self.path / CHECKPOINTS, last_round=max(recorded, default=-1))

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON file."""
        write_text(self.path / name, dump_json(value, indent=1) + "\n")

    def log(self, text: str) -> None:
        """Append a line with the time to log.txt."""
        with (self.path / LOG).open("a", encoding="utf-8", newline="\n") as file:
            file.write(f"{datetime.now(UTC).isoformat(timespec='seconds')} {text}\n")

    def close(self) -> None:
        """Flush the rows to the disk and close the file."""
        if self._rows is not None:
            os.fsync(self._rows.fileno())
            self._rows.close()
            self._rows = None


def check_free(path: Path) -> None:
    """Refuse a path at which no new folder can be made.

    Raises:
        InvalidRunFolder: It is a file, or a folder that is not empty.
    """
    if path.is_dir() and any(path.iterdir()):
        raise InvalidRunFolder(
            f"the folder {path} exists and is not empty; continue it with 'motley resume {path}' or choose another "
            "with --out"
        )
    if path.exists() and not path.is_dir():
        raise InvalidRunFolder(f"{path} is a file and cannot be a run folder; choose another with --out")


def fresh_path(parent: Path, name: str) -> Path:
    """Return a path that does not exist yet: name, date and time, and a number if that is taken."""
    stem = f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    path, number = parent / stem, 2
    while path.exists():
        path, number = parent / f"{stem}-{number}", number + 1
    return path
