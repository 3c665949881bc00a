"""`motley resume DIR`."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from motley.cli.command import command, extra, make_app, positional, whole_number
from motley.cli.compare import compare_watch
from motley.cli.output import warnings_to_stderr
from motley.cli.progress import RunProgress
from motley.cli.results import show_result, show_sweep
from motley.cli.sweep import sweep_watch
from motley.engine.comparison import resume_comparison
from motley.engine.runs import Material, resume_run
from motley.engine.sweep import resume_sweep
from motley.errors import InvalidConfig
from motley.record.comparison import CONFIG as COMPARE_CONFIG
from motley.record.sweep import CONFIG as SWEEP_CONFIG

HELP = """Continue an interrupted run, comparison or sweep, or add rounds to a run.

    motley resume runs/topo
    motley resume runs/topo --rounds 100

It goes on after the newest whole checkpoint and gives the same numbers as a run that was never interrupted, bit for bit
on a CPU.
"""


def _resume(values: dict[str, Any]) -> None:
    path: Path = values["path"]
    if (path / SWEEP_CONFIG).is_file():
        _resume_sweep(path, values)
        return
    with warnings_to_stderr(), RunProgress() as progress:
        if (path / COMPARE_CONFIG).is_file():
            if "rounds" in values:
                raise InvalidConfig(f"{path} is a comparison; --rounds is for one of its runs, below {path / 'runs'}")
            resume_comparison(path, compare_watch(progress))
        else:
            resume_run(path, Material(), progress.watch(), rounds=values.get("rounds"))
    show_result(path, as_json=values["json"])


def _resume_sweep(path: Path, values: dict[str, Any]) -> None:
    if "rounds" in values:
        raise InvalidConfig(f"{path} is a sweep; --rounds is for one of its runs, below {path / 'points'}")
    with warnings_to_stderr(), RunProgress() as progress:
        resume_sweep(path, sweep_watch(progress))
    show_sweep(path, as_json=values["json"])


app = make_app("resume", HELP)
app.default(
    command(
        _resume,
        [
            positional("path", Path, "folder of a run, a comparison or a sweep"),
            extra(
                "rounds",
                Annotated[int, Parameter(converter=whole_number)],
                "new number of rounds, larger than before",
            ),
            extra("json", bool, "print the summary as JSON", default=False),
        ],
        HELP,
    )
)
