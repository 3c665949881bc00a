"""What a reader must know of a method before comparing it: whose reading it is, and what more than the others it uses.

It is read from the list of methods that `motley list` shows (`cli/catalog.json`, made from the registry), so that no
method is imported; of methods of other packages nothing is known here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from motley.record.load import RunRecord
from motley.report.wording import plural

READING = "our reading"  # as a method's summary says it


@dataclass(frozen=True)
class _Known:
    """What the list of methods says of one."""

    is_reading: bool = False
    needs: tuple[str, ...] = ()


@cache
def _catalog() -> dict[str, _Known]:
    """Return what is known, by method."""
    text = files("motley").joinpath("cli", "catalog.json").read_text(encoding="utf-8")
    return {
        one["name"]: _Known(READING in one["summary"], tuple(one["needs"].split(", ")))
        for one in json.loads(text)["methods"]
    }


def remarks_on_methods(
    methods: Mapping[str, str], runs: Mapping[str, Mapping[int, RunRecord]] | None = None
) -> list[str]:
    """Return what must stand beside the figures of these rows.

    Args:
        methods: The method of every row, by the row's name.
        runs: The runs of the rows, by name and seed, which tell how many samples a set has.
    """
    known = {name: _catalog().get(method, _Known()) for name, method in methods.items()}
    ours = [name for name, one in known.items() if one.is_reading]
    remarks = []
    if ours:
        remarks.append(
            f"Our reading of a paper, not to be quoted as its method: {', '.join(ours)}; docs/methods says "
            "what we filled in."
        )
    for need, section, option, words in (
        ("proxy", "data", "proxy", "Needs proxy data, which no client owns and the other rows do without"),
        ("synthetic", "", "synthetic", "Learns on synthetic data, which a generator makes for it"),
    ):
        rows = {name: methods[name] for name, one in known.items() if need in one.needs}
        if rows:
            told = [
                f"{name}{_size((runs or {}).get(name, {}), section or method, option)}" for name, method in rows.items()
            ]
            remarks.append(f"{words}: {', '.join(told)}.")
    return remarks


def _size(runs: Mapping[int, RunRecord], section: str, option: str) -> str:
    sizes = {run.config.get(section, {}).get(option) for run in runs.values()} - {None}
    return f" ({' or '.join(plural(size, 'sample') for size in sorted(sizes))})" if sizes else ""
