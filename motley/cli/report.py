"""`motley report DIR`."""

from pathlib import Path
from typing import Any

from motley.cli.command import command, extra, make_app, positional
from motley.cli.output import warnings_to_stderr
from motley.cli.progress import print_result
from motley.cli.results import (
    FORMATS,
    render_json,
    render_published,
    render_ranks,
    render_study,
    render_table,
    sweep_of,
)
from motley.errors import InvalidConfig
from motley.record.sweep import CONFIG as SWEEP_CONFIG
from motley.report.page import write_report
from motley.report.sweep import write_sweep

HELP = """Write report.html of a run or a comparison, or print its table or that of a sweep.

    motley report runs/topo
    motley report runs/digits --replace
    motley report runs/digits --table markdown
    motley report runs/digits --published
    motley report runs/digits --table csv --reference fedproto
    motley report runs/digits --study support
    motley report runs/digits runs/cifar10 runs/har --ranks

Of a sweep, table.md, table.csv and figure.svg are written anew; its comparisons stand below DIR/points.
"""


def _report(values: dict[str, Any]) -> None:
    paths: tuple[Path, ...] = values["paths"]
    path, reference = paths[0], values.get("reference")
    with warnings_to_stderr():
        if {"table", "caption", "study"} & set(values) or values["published"] or values["ranks"]:
            _print_table(paths, values)
            return
        _only_one(paths)
        if (path / SWEEP_CONFIG).is_file():
            print_result("\n".join(map(str, write_sweep(sweep_of(path, reference)))))
            return
        print_result(str(write_report(path, replace=values["replace"], reference=reference)))


def _print_table(paths: tuple[Path, ...], values: dict[str, Any]) -> None:
    form, caption, reference = values.get("table", "text"), values.get("caption", ""), values.get("reference")
    if form not in {*FORMATS, "json"}:
        raise InvalidConfig(f"--table is '{form}'; it can be {', '.join([*FORMATS, 'json'])}")
    if caption and form != "latex":
        raise InvalidConfig(f"--caption is for --table latex, not for {form}")
    asked = [f"--{name}" for name in ("published", "ranks", "study") if values.get(name)]
    if len(asked) > 1:
        raise InvalidConfig(f"{' and '.join(asked)} are different tables; ask for one of them")
    if values["ranks"]:
        render_ranks(paths, form, reference=reference, caption=caption)
        return
    _only_one(paths)
    if values["published"]:
        render_published(paths[0], form, reference=reference, caption=caption)
    elif "study" in values:
        render_study(paths[0], values["study"], form, reference=reference, caption=caption)
    elif form == "json":
        render_json(paths[0], reference=reference)
    else:
        render_table(paths[0], form, reference=reference, caption=caption)


def _only_one(paths: tuple[Path, ...]) -> None:
    if len(paths) > 1:
        raise InvalidConfig(f"{len(paths)} folders are given; one has a report, and several are ranked with --ranks")


app = make_app("report", HELP)
app.default(
    command(
        _report,
        [
            positional("paths", tuple[Path, ...], "folder of a run, a comparison or a sweep; several with --ranks"),
            extra("replace", bool, "write over a report that exists", default=False),
            extra("table", str, f"print the table instead: {', '.join([*FORMATS, 'json'])}"),
            extra("caption", str, "caption of a table in LaTeX, which then floats"),
            extra("reference", str, "another row that the others are compared with; nothing is run again"),
            extra(
                "study",
                str,
                "print a comparison's accuracy by how much a client has of a class (support), by how many classes it "
                "holds (classes), or its convergence",
            ),
            extra("ranks", bool, "print mean ranks over several comparisons or the points of a sweep", default=False),
            extra(
                "published",
                bool,
                "print what public code would report, the best test round over samples, beside ours: an oracle",
                default=False,
            ),
        ],
        HELP,
    )
)
