"""`motley cost`."""

import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from motley.cli.command import command, extra, make_app, whole_number
from motley.cli.compare import comparison_flags, method_flags
from motley.cli.flags import section_parameters
from motley.cli.output import print_table, warnings_to_stderr
from motley.cli.results import FORMATS
from motley.engine.comparison import plan_comparison
from motley.engine.config import ConfigFile, flag_fields, read_config
from motley.engine.cost import measure_costs
from motley.engine.footprint import measure_footprint
from motley.errors import InvalidConfig
from motley.record.files import dump_json
from motley.report.cost import cost_data, cost_table

HELP = """Count what methods send and compute beyond Local, from real messages and torch's counter of FLOPs.

    motley cost --methods fedtopo,fedgh,fedtgp,fedmrl
    motley cost --methods fedtopo --set fedtopo.wire=sparse --table markdown
    motley cost --methods uniform-kd,crad --protocol global --clients 4 --timed
    motley cost --config recipes/fedtopo/table3.toml --data parquet:DIR

A few rounds are played in this process, and the last one is counted; a warm-up is cut so that it ends before. Counts
are proportional to the samples, so that few are enough (--data-limit). Nothing is written.
"""

ROUNDS = 2  # a method that starts from nothing sends all it does from round 2 on
WHOLE = Annotated[int, Parameter(converter=whole_number)]
FORMS = (*FORMATS, "json")


def _cost(values: dict[str, Any]) -> None:
    file = read_config(values["config"]) if "config" in values else ConfigFile()
    flags = {flag: value for flag, value in values.items() if flag in flag_fields() and flag != "rounds"}
    form, rounds = values["table"], values["rounds"]
    if form not in FORMS:
        raise InvalidConfig(f"--table is '{form}'; it can be {', '.join(FORMS)}")
    if rounds < 1:
        raise InvalidConfig(f"--rounds is {rounds}; at least one round must be played")
    plan = plan_comparison(file, flags, method_flags(values.get("set", ())), methods=values.get("methods", ()))
    with warnings_to_stderr():
        study = measure_costs(plan.rows, rounds, footprint=measure_footprint if values["timed"] else None, began=_tell)
    print_table(dump_json(cost_data(study), indent=1) if form == "json" else FORMATS[form](cost_table(study)))


def _tell(name: str) -> None:
    sys.stderr.write(f"counting {name}\n")


app = make_app("cost", HELP)
app.default(
    command(
        _cost,
        [
            *[one for one in comparison_flags() if one.name in {"methods", "set"}],
            extra(
                "rounds", WHOLE, f"rounds that are played; the last one is counted  [default: {ROUNDS}]", default=ROUNDS
            ),
            extra(
                "timed",
                bool,
                "also measure seconds and peak memory, each method in a process of its own",
                default=False,
            ),
            extra("table", str, f"{', '.join(FORMS)}  [default: text]", default="text"),
            extra("config", Path, "TOML file with options; flags win over it"),
            *[one for one in section_parameters() if one.name != "rounds"],
        ],
        HELP,
    )
)
