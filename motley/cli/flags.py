"""Flags made from the options classes: name, type, help text, range and default stand there and nowhere else."""

import inspect
import types
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields
from functools import partial
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import annotated_types
from cyclopts import Group, Parameter
from pydantic.fields import FieldInfo

from motley.cli.command import flag_name, keyword, value_of, words
from motley.engine.config import FLAGS, SECTIONS

LONGEST_METAVAR = 24
NAMES = {int: "N", float: "X", str: "TEXT"}
TITLES = {
    "data": "Data",
    "partition": "Federation",
    "models": "Models",
    "train": "Local training",
    "eval": "Evaluation",
    "run": "Run",
    "faults": "Faulty peers (studies)",
}


def section_parameters(sections: Sequence[str] = tuple(SECTIONS)) -> list[inspect.Parameter]:
    """Return the flags of the sections of a configuration."""
    found = []
    for position, section in enumerate(sections):
        group = Group(TITLES[section], sort_key=10 + position)
        kind = SECTIONS[section]
        found += [_parameter(kind, one, FLAGS.get((section, one.name), one.name), group) for one in fields(kind)]
    return found


def option_parameters(kind: type, title: str) -> list[inspect.Parameter]:
    """Return the flags of one options class, in a group of their own."""
    group = Group(title, sort_key=5)
    return [_parameter(kind, one, one.name, group) for one in fields(kind)]


def _parameter(owner: type, one: Field[Any], name: str, group: Group) -> inspect.Parameter:
    hint = get_type_hints(owner, include_extras=True)[one.name]
    kind, *extras = get_args(hint)
    about = next(extra for extra in extras if isinstance(extra, FieldInfo))
    negative = f"--no-{name.replace('_', '-')}" if kind is bool else ""
    shown, converter, metavar = _reading(_kinds(kind))
    rule = Parameter(
        name=flag_name(name),
        help=f"{about.description}  [{_range_and_default(one, about, kind if metavar == 'CHOICE' else None)}]",
        group=group,
        negative=negative,
        show_default=False,
        converter=converter,
        metavar=metavar,
        consume_multiple=False,
        n_tokens=1 if converter else None,
    )
    return keyword(name, shown | None, rule, None)


def _reading(kinds: list[Any]) -> tuple[Any, Any, str | None]:
    """Return what a flag is for cyclopts, how its value is read, and what stands for the value in the help.

    What is no number stays as it was written, and the options class says what is wrong with it, as for a file.
    """
    if kinds == [bool]:
        return bool, None, None
    if get_origin(kinds[0]) is tuple:
        return tuple[str, ...], words, "A,B,C"
    return Any, partial(value_of, kinds), "|".join(map(_metavar, kinds))


def _kinds(kind: Any) -> list[Any]:
    """Return the kinds of values that a field accepts; None is not one that can be written."""
    kinds = get_args(kind) if get_origin(kind) in {Union, types.UnionType} else (kind,)
    return [get_args(one)[0] if get_origin(one) is Annotated else one for one in kinds if one is not type(None)]


def _metavar(kind: Any) -> str:
    if get_origin(kind) is not Literal:
        return NAMES[kind]
    joined = "|".join(map(str, get_args(kind)))
    return joined if len(joined) <= LONGEST_METAVAR else "CHOICE"


def _range_and_default(one: Field[Any], about: FieldInfo, choices: Any) -> str:
    default = None if one.default is MISSING else one.default
    text = (
        "none" if default is None or default == () else str(default).lower() if isinstance(default, bool) else default
    )
    signs = {annotated_types.Ge: ">=", annotated_types.Gt: ">", annotated_types.Le: "<=", annotated_types.Lt: "<"}
    bounds = [
        f"{sign} {getattr(rule, kind.__name__.lower())}"
        for rule in about.metadata
        for kind, sign in signs.items()
        if isinstance(rule, kind)
    ]
    named = [f"choices: {', '.join(map(str, get_args(choices)))}"] if choices else []
    return "; ".join([f"default: {text}", *bounds, *named])
