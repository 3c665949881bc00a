"""`motley run METHOD`."""

from functools import partial
from pathlib import Path
from typing import Any

import tomli_w

from motley.cli.command import command, extra, make_app
from motley.cli.flags import option_parameters, section_parameters
from motley.cli.progress import RunProgress, print_result
from motley.cli.results import show_result
from motley.engine.config import ConfigFile, flag_fields, read_config, resolve
from motley.engine.runs import Material, start_run
from motley.errors import InvalidConfig
from motley.methods.registry import find_method, method_names

HELP = """Train METHOD on a federation of different models and write a run folder.

    motley run fedtopo --rounds 30 --clients 20 --out runs/topo
    motley run fedtopo --data parquet:DIR --models small4 --strength 2
    motley run crad --protocol global --clients 10 --models small3
    motley run --config runs/topo/config.toml --seed 1

'motley run METHOD --help' shows the options of METHOD beside those that all have; a configuration file holds the same
options in sections, and flags win over it.
"""

OUTPUT = [
    extra("out", Path, "folder of the run; it must not exist or be empty  [default: runs/METHOD-DATE-TIME]"),
    extra("config", Path, "TOML file with options; flags win over it"),
    extra("print_config", bool, "print the resolved configuration as TOML and do not run", default=False),
    extra("json", bool, "print the summary as JSON", default=False),
]


def _run(method: str | None, values: dict[str, Any]) -> None:
    file = read_config(values["config"]) if "config" in values else ConfigFile()
    name = method or file.method
    if name is None:
        raise InvalidConfig("no method was named; give one ('motley list methods' shows all) or --config FILE with one")
    flags = {flag: value for flag, value in values.items() if flag in flag_fields()}
    own = {
        flag: value for flag, value in values.items() if flag not in {*flags, "out", "config", "print_config", "json"}
    }
    config = resolve(name, file, flags, own)
    if values["print_config"]:
        print_result(tomli_w.dumps(config.to_dict()))
        return
    with RunProgress() as progress:
        record = start_run(config, values.get("out"), Material(), progress.watch())
    show_result(record.path, as_json=values["json"])


app = make_app("run", HELP)
app.default(command(partial(_run, None), [*OUTPUT, *section_parameters()], HELP))
for _name in method_names():
    _entry = find_method(_name)
    app.command(
        command(
            partial(_run, _name),
            [*OUTPUT, *option_parameters(_entry.options, f"Method ({_name})"), *section_parameters()],
            f"{_entry.summary}\n\n    motley run {_name} --rounds 30 --out runs/{_name}\n",
        ),
        name=_name,
    )
