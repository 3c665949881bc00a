"""The command `motley`: it finds the command that was asked for, and turns errors into one sentence and a status."""

import sys
from collections.abc import Sequence

from cyclopts import App, CycloptsError

import motley
from motley.cli.command import make_app
from motley.errors import MotleyError

HELP = """Federated learning in which every participant keeps its own architecture.

    motley demo
    motley compare --methods local,local-scaled,fedtopo --seeds 0,1,2 --rounds 30
    motley run crad --protocol global --partition dirichlet:0.3 --clients 10 --out runs/crad
    motley resume runs/crad --rounds 60

Results go to standard output, progress and messages to standard error. Exit status: 0 done, 1 the run failed, 2 a
mistake in what was asked for, 130 interrupted.
"""

COMMANDS = {
    "demo": "Train a small federation of different models in a minute and compare methods.",
    "run": "Train one METHOD on a federation and write a run folder.",
    "compare": "Run several methods on the same seeds and compare them.",
    "resume": "Continue an interrupted run or comparison, or add rounds to a run.",
    "report": "Write report.html of a run or a comparison, or print its table.",
    "partition": "Show which client gets which samples, without training.",
    "data": "Read a data source and report what is in it.",
    "list": "List methods with what they send, models, sources and partitions.",
}


def build_app() -> App:
    """Return the application; a command is imported when it is asked for."""
    app = make_app("motley", HELP)
    app.version = motley.__version__
    app.result_action = "return_value"
    for name, text in COMMANDS.items():
        app.command(f"motley.cli.{name.replace('list', 'listing')}:app", name=name, help=text)
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="replace")
    try:
        build_app()(arguments, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        return _complain(f"{str(error).strip()} ('motley --help' and 'motley COMMAND --help' show what there is)", 2)
    except MotleyError as error:
        return _complain(str(error), error.exit_status)
    except KeyboardInterrupt:
        return _complain("interrupted; everything that was finished is kept", 130)
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    return 0


def _complain(text: str, status: int) -> int:
    sys.stderr.write(f"motley: {text}\n")
    return status
