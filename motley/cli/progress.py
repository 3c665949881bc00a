"""Progress on standard error: a bar with rounds, accuracy and time left on a terminal, plain lines elsewhere."""

import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from motley.engine.config import RunConfig
from motley.engine.crew import Crew
from motley.engine.faults import bad_peers, faults_text
from motley.engine.header import participation_text
from motley.engine.runs import Watch
from motley.engine.setup import Federation
from motley.record.rows import RoundRow

SECONDS_BETWEEN_LINES = 10.0


class RunProgress:
    """Shows one run after the other."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, soft_wrap=True)
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[accuracy]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self.console,
            disable=not self.console.is_terminal,
        )
        self._task: TaskID | None = None
        self._label = ""
        self._total = 0
        self._began = self._last = time.monotonic()
        self._first_round = 0
        self._crew = Crew(1, 1)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def watch(self, label: str = "") -> Watch:
        """Return what the engine calls for the next run."""
        self._label = label
        return Watch(staffed=self._staff, began=self._start, finished_round=self._round, warned=self._warn)

    def say(self, text: str) -> None:
        """Write a line above the bar."""
        self.console.print(text, markup=False, highlight=False)

    def _staff(self, crew: Crew) -> None:
        self._crew = crew

    def _where(self, federation: Federation) -> str:
        threads = f"{self._crew.threads} thread{'s' if self._crew.threads > 1 else ''}"
        crew = f"{self._crew.workers} workers of {threads}" if self._crew.workers > 1 else threads
        numbers = "" if federation.precision == "fp32" else f", {federation.precision}"
        return (
            f"{federation.device}, {crew}{numbers}"
            if federation.device.type == "cpu"
            else f"{federation.device}{numbers}"
        )

    def _start(self, config: RunConfig, federation: Federation, path: Path) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
        self._label = self._label or config.method
        self._total = config.settings.run.rounds
        self._began = self._last = time.monotonic()
        self._first_round = -1
        data = federation.data
        counted = dict.fromkeys(federation.plan.names)
        models = ", ".join(f"{federation.plan.names.count(name)} {name}" for name in counted)
        self.say(
            f"{self._label}: {data.dataset_name}, {data.num_classes} classes, {data.partition.scheme}, folder {path}"
        )
        part = f"{participation_text(config, federation)} take part in a round"
        self.say(f"  {len(data.shards)} clients ({models}); {part}; {self._where(federation)}")
        if bad := bad_peers(config, len(data.shards)):
            self.say(f"  {faults_text(config.settings.faults, bad)}")
        self._task = self._bar.add_task(self._label, total=self._total, accuracy="")

    def _round(self, row: RoundRow) -> None:
        if self._first_round < 0:
            self._first_round = row.round
        accuracy = _accuracy(row)
        if self._task is not None:
            fields = {"accuracy": accuracy} if accuracy else {}
            self._bar.update(self._task, completed=row.round, **fields)  # type: ignore[arg-type]
        for client, reason in row.missing.items():
            self.say(f"  round {row.round}: client {client} is left out: {reason}")
        now = time.monotonic()
        due = now - self._last >= SECONDS_BETWEEN_LINES or row.round in {self._first_round, self._total}
        if not self.console.is_terminal and due:
            self._last = now
            done = row.round - self._first_round
            left = (now - self._began) / done * (self._total - row.round) if done else None
            rest = f", {left:.0f} s left" if left is not None and row.round < self._total else ""
            self.say(f"{self._label}: round {row.round}/{self._total} {accuracy}, {now - self._began:.0f} s{rest}")

    def _warn(self, text: str) -> None:
        self.say(f"warning: {text}")


def _accuracy(row: RoundRow) -> str:
    names = {"local_accuracy": "local", "global_accuracy": "global"}
    shown = [
        f"{word} {100 * row.metrics[name]:.2f} %" for name, word in names.items() if row.metrics.get(name) is not None
    ]
    return ", ".join(shown)


def print_result(text: str) -> None:
    """Write a result to standard output."""
    sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
