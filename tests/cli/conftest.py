"""The command as users meet it: a process of its own, or the same function in this process where only words matter."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from run_folders import rounds_of, snapshot

from motley.cli.main import main

SMALL = ("--clients", "4", "--data-limit", "400", "--rounds", "3", "--device", "cpu")


@dataclass(frozen=True)
class Said:
    """What a command left: exit status, standard output and standard error."""

    status: int
    out: str
    err: str

    def error(self, *words: str) -> str:
        """Return the message of a user's mistake, after checking its form."""
        assert self.status == 2, self
        assert self.err.startswith("motley: "), self
        assert self.err.count("\n") == 1, self
        assert self.err.endswith("\n"), self
        assert "Traceback" not in self.err, self
        assert self.out == "", self
        for word in words:
            assert word in self.err, (word, self.err)
        return self.err


def _environment(**more: str) -> dict[str, str]:
    root = str(Path(__file__).resolve().parents[2])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": root, "COLUMNS": "80"} | more


@dataclass
class Process:
    """A command that runs in a process of its own, so that it can be interrupted."""

    popen: subprocess.Popen[str]
    folder: Path

    def wait_for_round(self, number: int) -> None:
        """Wait until a round stands in the folder."""
        self.wait_for(lambda: rounds_of(self.folder)[-1:] >= [number])

    def wait_for(self, reached: Callable[[], bool], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not reached():
            assert self.popen.poll() is None, self.popen.communicate()
            assert time.monotonic() < end, "nothing happened in time"
            time.sleep(0.01)

    def stop(self, number: signal.Signals) -> Said:
        """Send a signal and return what the process left; ten seconds are allowed."""
        self.popen.send_signal(number)
        said = self.end(10)
        with pytest.raises(ProcessLookupError):
            os.killpg(self.popen.pid, 0)  # no child of it is left
        return said

    def end(self, seconds: float) -> Said:
        out, err = self.popen.communicate(timeout=seconds)
        return Said(self.popen.returncode, out, err)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Start a command; what is left of it is ended with the test."""
    processes: list[Process] = []

    def start(*words: object, folder: Path, script: Path | None = None, **more: str) -> Process:
        popen = subprocess.Popen(
            [sys.executable, *([str(script)] if script else ["-m", "motley"]), *map(str, words)],
            cwd=tmp_path,
            env=_environment(**more),
            start_new_session=True,  # a Ctrl-C in the terminal of the tests is not meant for it
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        processes.append(Process(popen, folder))
        return processes[-1]

    yield start
    for process in processes:
        if process.popen.poll() is None:
            process.popen.kill()
        process.popen.communicate()


@pytest.fixture
def process(started: Callable[..., Process], tmp_path: Path) -> Callable[..., Said]:
    """Run a command in a process of its own, to its end."""
    return lambda *words, **more: started(*words, folder=tmp_path, **more).end(120)


@pytest.fixture
def motley(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """Run a command in this process, inside of an empty working directory."""
    monkeypatch.chdir(tmp_path)

    def call(*words: object) -> Said:
        capsys.readouterr()
        status = main([str(word) for word in words])
        return Said(status, *capsys.readouterr())

    return call


@pytest.fixture
def refuses(motley: Callable[..., Said], tmp_path: Path) -> Callable[..., str]:
    """Run a command that must be refused with these words, and see that no file was made, changed or removed."""

    def call(command: str | Sequence[object], *words: str) -> str:
        before = snapshot(tmp_path)
        said = motley(*(command.split() if isinstance(command, str) else command))
        assert snapshot(tmp_path) == before
        return said.error(*words)

    return call
