"""What a reader must know of a method before comparing it: whose reading it is, and what more than the others it uses.

It is read from the list of methods that `motley list` shows (`cli/catalog.json`, made from the registry), so that no
method is imported; of methods of other packages nothing is known here.
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

READING = "our reading"  # as a method's summary says it


@cache
def _catalog() -> dict[str, tuple[bool, bool]]:
    """Return by method whether it is our reading, and whether it needs proxy data."""
    text = files("motley").joinpath("cli", "catalog.json").read_text(encoding="utf-8")
    return {
        one["name"]: (READING in one["summary"], "proxy" in one["needs"].split(", "))
        for one in json.loads(text)["methods"]
    }


def remarks_on_methods(methods: Mapping[str, str]) -> list[str]:
    """Return what must stand beside the figures of these rows.

    Args:
        methods: The method of every row, by the row's name.
    """
    known = {name: _catalog().get(method, (False, False)) for name, method in methods.items()}
    ours = [name for name, (reading, _) in known.items() if reading]
    proxy = [name for name, (_, needed) in known.items() if needed]
    remarks = []
    if ours:
        remarks.append(
            f"Our reading of a paper, not to be quoted as its method: {', '.join(ours)}; docs/methods says "
            "what we filled in."
        )
    if proxy:
        remarks.append(f"Uses a proxy set, which the other rows do without: {', '.join(proxy)}.")
    return remarks
