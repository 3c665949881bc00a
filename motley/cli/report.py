"""`motley report DIR`."""

from pathlib import Path
from typing import Any

from motley.cli.command import command, extra, make_app, positional
from motley.cli.output import warnings_to_stderr
from motley.cli.progress import print_result
from motley.cli.results import FORMATS, render_json, render_table
from motley.errors import InvalidConfig
from motley.record.sweep import CONFIG as SWEEP_CONFIG
from motley.record.sweep import load_sweep
from motley.report.page import write_report
from motley.report.sweep import write_sweep

HELP = """Write report.html of a run or a comparison, or print its table or that of a sweep.

    motley report runs/topo
    motley report runs/digits --replace
    motley report runs/digits --table markdown

Of a sweep, table.md, table.csv and figure.svg are written anew; its comparisons stand below DIR/points.
"""


def _report(values: dict[str, Any]) -> None:
    path: Path = values["path"]
    with warnings_to_stderr():
        if "table" in values:
            form = values["table"]
            if form == "json":
                render_json(path)
            elif form in FORMATS:
                render_table(path, form)
            else:
                raise InvalidConfig(f"--table is '{form}'; it can be {', '.join([*FORMATS, 'json'])}")
            return
        if (path / SWEEP_CONFIG).is_file():
            print_result("\n".join(map(str, write_sweep(load_sweep(path)))))
            return
        print_result(str(write_report(path, replace=values["replace"])))


app = make_app("report", HELP)
app.default(
    command(
        _report,
        [
            positional("path", Path, "folder of a run, a comparison or a sweep"),
            extra("replace", bool, "write over a report that exists", default=False),
            extra("table", str, f"print the table instead: {', '.join([*FORMATS, 'json'])}"),
        ],
        HELP,
    )
)
