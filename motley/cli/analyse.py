"""`motley analyse DIR`."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from motley.cli.command import command, extra, make_app, positional, whole_number
from motley.cli.output import print_table, warnings_to_stderr
from motley.engine.analyse import analyse
from motley.record.files import dump_json
from motley.report.analysis import PAGE, check_free, plain, write_analysis
from motley.report.analysis_tables import analysis_tables
from motley.report.render import to_rich

HELP = """Study the mechanism of FedTopo in a run: how far clients' prototypes and relations lie from the global ones.

    motley analyse runs/topo
    motley analyse runs/local --replace
    motley analyse runs/pooled --permutations 999 --json

The models are those of the run's newest checkpoint; any method's run will do, if its models have features.
DIR/analysis gets analysis.md, tables as CSV, figures, all numbers as analysis.json, and relations.csv, which a run of
fedtopo can be given (--relation-control given --relations DIR/analysis/relations.csv).
"""
PERMUTATIONS = 199
SHOWN = ("measures", "controls", "consistency")
WHOLE = Annotated[int, Parameter(converter=whole_number)]


def _analyse(values: dict[str, Any]) -> None:
    path: Path = values["path"]
    with warnings_to_stderr():
        check_free(path, replace=values["replace"])
        found = analyse(path, draws=values["permutations"])
        target = write_analysis(found, replace=values["replace"])
    if values["json"]:
        print_table(dump_json(plain(found), indent=1))
        return
    for name, (title, table) in analysis_tables(found).items():
        if name in SHOWN:
            print_table(f"{title}\n")
            print_table(to_rich(table))
            print_table("")
    print_table(f"written to {target}; all in one: {target / PAGE}")


app = make_app("analyse", HELP)
app.default(
    command(
        _analyse,
        [
            positional("path", Path, "folder of a run"),
            extra(
                "permutations",
                WHOLE,
                f"random draws that tell what chance would give  [default: {PERMUTATIONS}]",
                default=PERMUTATIONS,
            ),
            extra("replace", bool, "write over an analysis that exists", default=False),
            extra("json", bool, "print all numbers as JSON", default=False),
        ],
        HELP,
    )
)
