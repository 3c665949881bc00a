"""How a command is put together; flags that belong to no options class."""

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any

from cyclopts import App, Group, Parameter, Token


def as_markdown(text: str) -> str:
    """Return a help text whose indented examples are code, so that nothing joins or wraps their lines."""
    lines, inside = [], False
    for line in text.splitlines():
        indented = line.startswith("    ")
        if indented != inside:
            lines.append("```")
            inside = indented
        lines.append(line.removeprefix("    "))
    return "\n".join([*lines, "```"] if inside else lines)


def make_app(name: str, text: str) -> App:
    """Return the application of one command; its help begins with `text`."""
    return App(name=name, help=as_markdown(text), help_format="markdown")


def extra(name: str, kind: Any, text: str, *, default: Any = None, negative: str = "") -> inspect.Parameter:
    """Return a flag that belongs to no options class."""
    rule = Parameter(
        name=flag_name(name), help=text, group=Group("Output", sort_key=1), negative=negative, show_default=False
    )
    return keyword(name, kind if default is False else kind | None, rule, default)


def command(
    function: Callable[[dict[str, Any]], Any], parameters: Sequence[inspect.Parameter], text: str
) -> Callable[..., Any]:
    """Return a command that takes arguments and flags and calls `function` with those that were given, by name."""
    signature = inspect.Signature(list(parameters))

    def call(*arguments: Any, **values: Any) -> Any:
        bound = signature.bind(*arguments, **values)
        bound.apply_defaults()
        return function({name: value for name, value in bound.arguments.items() if value is not None})

    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__annotations__ = {one.name: one.annotation for one in parameters}
    call.__doc__ = as_markdown(text)
    return call


def positional(name: str, kind: Any, text: str) -> inspect.Parameter:
    """Return an argument that stands without a flag."""
    rule = Parameter(help=text, show_default=False)
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY, annotation=Annotated[kind, rule])


def words(kind: type, tokens: Sequence[Token]) -> tuple[str, ...]:  # noqa: ARG001
    """Read a,b,c as three words."""
    return tuple(word.strip() for token in tokens for word in token.value.split(",") if word.strip())


def whole_number(kind: type, tokens: Sequence[Token]) -> int:
    """Read a whole number; 3.5 and true are none."""
    return whole_numbers(kind, tokens[:1])[0]


def whole_numbers(kind: type, tokens: Sequence[Token]) -> tuple[int, ...]:  # noqa: ARG001
    """Read 0,1,2 as three whole numbers.

    Raises:
        ValueError: A word is none; the message says what is wanted.
    """
    found = [word.strip() for token in tokens for word in token.value.split(",")]
    wrong = [word for word in found if not word.removeprefix("-").isdecimal()]
    if wrong:
        raise ValueError(f"'{wrong[0]}' is no whole number")
    return tuple(map(int, found))


def value_of(kinds: Sequence[Any], kind: Any, tokens: Sequence[Token]) -> int | float | str:  # noqa: ARG001
    """Read a number where the kinds have numbers, else text; what is not accepted is said by the options class.

    Where both numbers and shares are accepted, 10 is a number, 0.5 and 1.0 are shares.
    """
    text = tokens[0].value
    if int in kinds and text.removeprefix("-").isdecimal():
        return int(text)
    if float in kinds:
        with suppress(ValueError):
            return float(text)
    return text


def keyword(name: str, kind: Any, rule: Parameter, default: Any) -> inspect.Parameter:
    """Return a parameter that is given by its flag."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, rule])


def flag_name(name: str) -> str:
    """Return the flag of a field; a `_` at its end, which only keeps a word of Python's apart, is not written."""
    return f"--{name.removesuffix('_').replace('_', '-')}"
