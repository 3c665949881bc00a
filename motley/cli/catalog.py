"""What `motley list` shows, written into catalog.json so that listing needs no torch; a test holds the two equal.

Run `python -m motley.cli.catalog` after a method, a source or a partition has changed.
"""

import json
from pathlib import Path
from typing import Any

from motley.data.schemes import ABOUT
from motley.data.sources import SOURCES
from motley.messages import Message
from motley.methods.registry import BUILT_IN, find_method, needs_text

CATALOG = Path(__file__).with_name("catalog.json")


def build_catalog() -> dict[str, Any]:
    """Return the catalog as it follows from the code."""
    return {"methods": [_method(name) for name in BUILT_IN], "sources": SOURCES, "partitions": ABOUT}


def describe(message: type[Message]) -> list[dict[str, str]]:
    """Return the entries of a message: name, shape, dtype and what it is."""
    return [
        {
            "entry": name,
            "shape": "state dict" if rule.named else "(" + ", ".join(map(str, rule.shape)) + ")",
            "dtype": "as stored" if rule.named else str(rule.dtype).removeprefix("torch."),
            "about": rule.about,
        }
        for name, rule in message.schema().items()
    ]


def _method(name: str) -> dict[str, Any]:
    entry = find_method(name)
    return {
        "name": name,
        "summary": entry.summary,
        "exchange": entry.exchange,
        "needs": needs_text(entry.needs),
        "sends": {way: describe(message) for way, message in entry.sends.items()},
    }


if __name__ == "__main__":
    CATALOG.write_text(json.dumps(build_catalog(), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
