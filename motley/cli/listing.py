"""`motley list`."""

import json
from importlib.metadata import entry_points
from importlib.resources import files
from typing import Any

from rich.table import Table

from motley.cli.command import command, extra, make_app, positional
from motley.cli.output import print_table
from motley.errors import InvalidConfig
from motley.models.registry import POOLS, architectures

HELP = """List methods with what they send, models, sources and partitions.

    motley list
    motley list methods
    motley list models --json

METHODS of installed packages that use the entry points 'motley.methods' are listed by name.
"""
KINDS = ("methods", "models", "sources", "partitions")


def _list(values: dict[str, Any]) -> None:
    kind = values.get("kind")
    if kind is not None and kind not in KINDS:
        raise InvalidConfig(f"'{kind}' cannot be listed; 'motley list' knows {', '.join(KINDS)}")
    shown = KINDS if kind is None else (kind,)
    content = {name: _content(name) for name in shown}
    if values["json"]:
        print_table(json.dumps(content, ensure_ascii=False, indent=1))
        return
    for name in shown:
        print_table(f"{name.capitalize()}\n")
        print_table(_methods(content[name]) if name == "methods" else _pairs(content[name]))


def _content(kind: str) -> Any:
    catalog = json.loads(files("motley.cli").joinpath("catalog.json").read_text(encoding="utf-8"))
    if kind == "models":
        pools = {f"{pool.name} (pool)": f"{pool.description}: {', '.join(pool.members)}" for pool in POOLS.values()}
        return pools | {one.name: f"{one.description}; from {one.min_size} px on" for one in architectures().values()}
    if kind == "methods":
        others = [{"name": point.name, "from": point.value} for point in entry_points(group="motley.methods")]
        return catalog["methods"] + others
    return catalog[kind]


def _methods(methods: list[dict[str, Any]]) -> Table:
    table = Table("method", "exchange", "what travels", "needs", box=None, pad_edge=False, padding=(0, 2, 1, 0))
    for one in methods:
        sends = "\n".join(
            f"{way}: {entry['about'] or entry['entry']} {entry['shape']}"
            for way, entries in one.get("sends", {}).items()
            for entry in entries
        )
        about = one.get("summary", f"from {one.get('from')}").partition(": ")[2] or one.get("from", "")
        table.add_row(f"{one['name']}", one.get("exchange", "-"), f"{about}\n{sends}".strip(), one.get("needs", "-"))
    return table


def _pairs(pairs: dict[str, str]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for name, text in pairs.items():
        table.add_row(name, text)
    return table


app = make_app("list", HELP)
app.default(
    command(
        _list,
        [
            positional("kind", str | None, "methods, models, sources or partitions  [default: all]").replace(
                default=None
            ),
            extra("json", bool, "print the list as JSON", default=False),
        ],
        HELP,
    )
)
