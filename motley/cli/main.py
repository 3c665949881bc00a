"""The command `motley`: it finds the command that was asked for, and turns errors into one sentence and a status."""

import difflib
import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from types import FrameType

from cyclopts import App, CycloptsError

import motley
from motley.cli.command import make_app
from motley.engine.signals import STATUS
from motley.errors import InvalidConfig, MotleyError

HELP = """Federated learning in which every participant keeps its own architecture.

    motley demo
    motley compare --methods local,local-scaled,fedtopo --seeds 0,1,2 --rounds 30
    motley run crad --protocol global --clients 10 --out runs/crad
    motley resume runs/crad --rounds 60

Results go to standard output, progress and messages to standard error. Exit status: 0 done, 1 the run failed, 2 a
mistake in what was asked for, 130 interrupted.
"""

FLAGS = ("--help", "-h", "--version")
COMMANDS = {
    "demo": "Train a small federation of different models in a minute and compare methods.",
    "run": "Train one METHOD on a federation and write a run folder.",
    "compare": "Run several methods on the same seeds and compare them.",
    "sweep": "Run the same comparison at every point of a grid of option values.",
    "resume": "Continue an interrupted run, comparison or sweep, or add rounds to a run.",
    "report": "Write report.html of a run or a comparison, or print its table or that of a sweep.",
    "analyse": "Study how far clients' prototypes and relations lie from the global ones.",
    "trace": "Show how CRAD's teachers decided one sample, as a table and a figure.",
    "cost": "Count what methods send and compute beyond Local.",
    "partition": "Show which client gets which samples, without training.",
    "data": "Read a data source and report what is in it.",
    "bench": "Measure how fast this machine trains, infers and aggregates.",
    "list": "List methods with what they send, models, sources and partitions.",
}

REMEDIES = {  # what the system refuses, and what its user can do about it
    errno.EACCES: "allow it, or choose a folder that may be written",
    errno.EPERM: "allow it, or choose a folder that may be written",
    errno.EROFS: "choose a folder on a disk that may be written",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOSPC: "make room, and continue; everything that was finished is kept",
}


def build_app(chosen: str = "") -> App:
    """Return the application; the chosen command is imported, of the others only a line is known."""
    app = make_app("motley", HELP)
    app.version = motley.__version__
    app.result_action = "return_value"
    for name, text in COMMANDS.items():
        module = f"motley.cli.{name.replace('list', 'listing')}"
        if name == chosen:
            app.command(import_module(module).app)
        else:
            app.command(f"{module}:app", name=name, help=text)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with _leaving_at_once():
            _run(words)
    except MotleyError as error:
        return _complain(str(error), error.exit_status)
    except KeyboardInterrupt:
        return _complain("interrupted; everything that was finished is kept", 130)
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except OSError as error:
        if error.errno not in REMEDIES:
            raise
        return _complain(f"{error.filename or 'a file'}: {error.strerror}; {REMEDIES[error.errno]}", 2)
    return 0


def _run(words: list[str]) -> None:
    """Find the command and call it; what only explains mistakes is imported when there is one, because of torch."""
    if words and words[0] not in {*COMMANDS, *FLAGS}:
        kind, known = ("option", FLAGS) if words[0].startswith("-") else ("command", tuple(COMMANDS))
        near = difflib.get_close_matches(words[0], known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(known)}"
        raise InvalidConfig(f"there is no {kind} '{words[0]}'; {hint}")
    app = build_app(words[0] if words else "")
    if words[:1] == ["run"] and len(words) > 1 and not words[1].startswith("-"):
        words[1] = import_module("motley.methods.registry").find_method(words[1]).name
    try:
        app(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        command = app.parse_commands(words)[1][-1]
        raise InvalidConfig(import_module("motley.cli.mistakes").explain(error, command)) from None


@contextmanager
def _leaving_at_once() -> Iterator[None]:
    """End the process at Ctrl-C or termination while nothing runs yet; a run listens in its own way.

    An exception would not do: some of the modules that are imported meanwhile swallow it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        _complain("interrupted; everything that was finished is kept", 0)
        sys.stderr.flush()
        os._exit(STATUS[signal.Signals(number)])

    before = {number: signal.signal(number, leave) for number in STATUS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _complain(text: str, status: int) -> int:
    sys.stderr.write(f"motley: {' '.join(text.splitlines())}\n")
    return status
