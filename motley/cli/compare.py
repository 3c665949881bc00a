"""`motley compare`."""

import inspect
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from motley.cli.command import command, extra, make_app, whole_numbers, words
from motley.cli.flags import section_parameters
from motley.cli.output import warnings_to_stderr
from motley.cli.progress import RunProgress
from motley.cli.results import show_result
from motley.engine.comparison import CompareWatch, plan_comparison, start_comparison
from motley.engine.config import ConfigFile, flag_fields, read_config
from motley.errors import InvalidConfig
from motley.methods.registry import find_method

HELP = """Run several methods on the same seeds and compare them.

    motley compare --methods local,local-scaled,fedtopo --seeds 0,1,2 --rounds 30
    motley compare --methods local,uniform-kd,crad --protocol global --clients 10
    motley compare --config recipes/fedtopo-digits.toml --out runs/digits
    motley compare --methods local,fedtopo --set fedtopo.strength=2

All methods get the same partition, initial weights, batches and participants for a seed; the first method is the
reference of the paired differences. Runs that have finished are not run again by 'motley resume DIR'.
"""


def _compare(values: dict[str, Any]) -> None:
    file = read_config(values["config"]) if "config" in values else ConfigFile()
    flags = {flag: value for flag, value in values.items() if flag in flag_fields()}
    plan = plan_comparison(
        file,
        flags,
        method_flags(values.get("set", ())),
        methods=values.get("methods", ()),
        seeds=values.get("seeds", ()),
        reference=values.get("reference"),
    )
    with warnings_to_stderr(), RunProgress() as progress:
        comparison = start_comparison(plan, values.get("out"), compare_watch(progress))
    show_result(comparison.path, as_json=values["json"])


def compare_watch(progress: RunProgress) -> CompareWatch:
    """Return what the engine calls: every run is labelled with its number, method and seed."""
    return CompareWatch(
        lambda method, seed, position, total: progress.watch(f"[{position + 1}/{total}] {method}, seed {seed}")
    )


def method_flags(settings: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Read METHOD.OPTION=VALUE as values by method and option.

    Raises:
        InvalidConfig: One is written otherwise, or there is no such method.
    """
    found: dict[str, dict[str, Any]] = {}
    for setting in settings:
        place, equals, text = setting.partition("=")
        method, dot, name = place.partition(".")
        if not (equals and dot):
            raise InvalidConfig(f"--set {setting}: write METHOD.OPTION=VALUE, for example fedtopo.strength=2")
        found.setdefault(find_method(method).name, {})[name.replace("-", "_")] = plain_value(text)
    return found


def plain_value(text: str) -> Any:
    """Read true, false, a number, or else text."""
    if text in {"true", "false"}:
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def comparison_flags() -> list[inspect.Parameter]:
    """Return the flags that say what is compared."""
    return [
        extra(
            "methods",
            Annotated[tuple[str, ...], Parameter(converter=words, n_tokens=1)],
            "methods, separated by commas",
        ),
        extra(
            "seeds",
            Annotated[tuple[int, ...], Parameter(converter=whole_numbers, n_tokens=1)],
            "seeds, separated by commas  [default: 0]",
        ),
        extra("reference", str, "method that the others are compared with  [default: the first]"),
        extra("set", tuple[str, ...], "METHOD.OPTION=VALUE, an option of one method; may be repeated"),
    ]


app = make_app("compare", HELP)
app.default(
    command(
        _compare,
        [
            *comparison_flags(),
            extra("out", Path, "folder of the comparison  [default: runs/compare-DATE-TIME]"),
            extra("config", Path, "TOML file with options; flags win over it"),
            extra("json", bool, "print the table as JSON", default=False),
            *[one for one in section_parameters() if one.name != "seed"],
        ],
        HELP,
    )
)
