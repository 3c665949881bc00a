"""`motley data SOURCE`."""

import json
from dataclasses import replace
from typing import Any

from rich.table import Table

from motley.cli.command import command, extra, make_app, positional
from motley.cli.flags import section_parameters
from motley.cli.output import print_table, warnings_to_stderr
from motley.data.dataset import DataReport
from motley.data.sources import load_dataset
from motley.engine.config import ConfigFile, flag_fields, resolve

HELP = """Read a data source and report what is in it: shapes, classes, counts, modes, duplicates, what was ignored.

    motley data digits
    motley data parquet:DIR
    motley data folder:DIR --skip-damaged
    motley data npz:pathmnist.npz --json
"""


def _data(values: dict[str, Any]) -> None:
    source: str = values["source"]
    flags = {flag: value for flag, value in values.items() if flag in flag_fields()}
    options = replace(resolve("local", ConfigFile(), flags, {}).settings.data, source=source)
    with warnings_to_stderr():
        report = load_dataset(options).report
    if values["json"]:
        print_table(json.dumps(report.as_dict(), ensure_ascii=False, indent=1))
        return
    print_table(_summary(report))
    print_table(_counts(report))


def _summary(report: DataReport) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    splits = ", ".join(f"{name} {sum(counts):,}" for name, counts in report.counts.items())
    lines = {
        "source": report.source,
        "shape": " x ".join(map(str, report.shape)),
        "classes": str(len(report.class_names)),
        "samples": splits,
        "image modes": ", ".join(f"{mode} {number:,}" for mode, number in report.modes.items()),
        "duplicates": ", ".join(f"{place} {number:,}" for place, number in report.duplicates.items()) or "none",
        "ignored files": f"{report.ignored_files} ({', '.join(report.ignored_examples)})"
        if report.ignored_files
        else "",
        "damaged": ", ".join(report.damaged),
    }
    for name, text in lines.items():
        if text:
            table.add_row(name, text)
    for note in report.notes:
        table.add_row("note", note)
    return table


def _counts(report: DataReport) -> Table:
    table = Table("label", "class", box=None, pad_edge=False)
    for split in report.counts:
        table.add_column(split, justify="right")
    for label, name in enumerate(report.class_names):
        table.add_row(str(label), name, *(f"{counts[label]:,}" for counts in report.counts.values()))
    return table


app = make_app("data", HELP)
app.default(
    command(
        _data,
        [
            positional("source", str, "digits, parquet:PATH, npz:PATH or folder:PATH"),
            extra("json", bool, "print the report as JSON", default=False),
            *[one for one in section_parameters(("data",)) if one.name != "data"],
        ],
        HELP,
    )
)
