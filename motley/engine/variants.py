"""Variants of a method in a comparison: a name of its own for a method with some options changed.

    [variants.no-reliability]
    method = "fedtopo"
    fedtopo.use_s = false
    train.lr = 0.1

A row of a comparison is then the name of a method or of a variant. What a variant says wins over files and flags.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from motley.engine.config import SECTIONS, ConfigFile, RunConfig, parse_config, resolve
from motley.errors import InvalidConfig
from motley.methods.registry import find_method, method_names, plain

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=-]{0,59}")  # also the name of a folder
EXAMPLE = '[variants.NAME] with method = "fedtopo" and fedtopo.use_s = false'


@dataclass(frozen=True)
class Row:
    """One row of a comparison.

    Attributes:
        name: Of the method or of the variant.
        base: The method without the changes of the variant.
        config: What is run, with any seed.
    """

    name: str
    base: RunConfig
    config: RunConfig


def make_row(
    name: str, file: ConfigFile, flags: Mapping[str, Any], method_flags: Mapping[str, Mapping[str, Any]]
) -> Row:
    """Return the row of a method or of a variant of the file.

    Raises:
        InvalidConfig: There is no such method or variant, or an option is not accepted.
    """
    if name not in file.variants:
        base = resolve(_method(name, file), file, flags, method_flags.get(find_method(name).name, {}))
        return Row(base.method, base, base)
    changes = dict(file.variants[name])
    method = changes.pop("method", None)
    place = f"{file.name}, variant '{name}'"
    if not isinstance(method, str):
        raise InvalidConfig(f"{place}: it names no method; write {EXAMPLE}")
    if not NAME.fullmatch(name):
        raise InvalidConfig(f"{place}: its name must be of letters, digits and . _ + = -, at most 60")
    if plain(name) in map(plain, method_names()):
        raise InvalidConfig(f"{place}: this is the name of a method; choose another name")
    base = resolve(method, file, flags, method_flags.get(find_method(method).name, {}))
    changed = parse_config(nested(changes), place)
    if others := [section for section in changed.sections if section not in {*SECTIONS, base.method}]:
        raise InvalidConfig(f"{place}: it is of {base.method}, but changes options of {others[0]}")
    if changed.compare or changed.variants or changed.paper or "seed" in changed.sections.get("run", {}):
        raise InvalidConfig(f"{place}: it may change options of the run and of its method only, and not the seed")
    table = base.to_dict()
    for section, values in changed.sections.items():
        table[section] = {**table[section], **values}
    return Row(name, base, resolve(method, parse_config(table, place), {}, {}))


def nested(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes with SECTION.FIELD in quotes, as in a sweep, put where TOML puts it without quotes."""
    nested: dict[str, Any] = {}
    for key, value in changes.items():
        section, dot, name = key.partition(".")
        if dot:
            nested[section] = {**nested.get(section, {}), name: value}
        else:
            nested[key] = {**nested.get(key, {}), **value} if isinstance(value, dict) else value
    return nested


def _method(name: str, file: ConfigFile) -> str:
    try:
        return find_method(name).name
    except InvalidConfig as error:
        if not file.variants:
            raise
        raise InvalidConfig(f"{error}; variants of {file.name}: {', '.join(file.variants)}") from None
