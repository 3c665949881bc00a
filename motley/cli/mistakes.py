"""What is wrong with a command line, as one sentence: what cyclopts found, in motley's words."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import fields

from cyclopts import App, Argument, CycloptsError, UnknownOptionError
from cyclopts.exceptions import CoercionError, MissingArgumentError, RepeatArgumentError, UnusedCliTokensError

from motley.engine.config import FLAGS, NEIGHBOURS
from motley.methods.registry import find_method, method_names


def explain(error: CycloptsError, command: App) -> str:
    """Return one sentence on what is wrong, and where help is.

    Args:
        error: What cyclopts found.
        command: The command that was called.
    """
    called = " ".join(["motley", *(error.command_chain or ())])
    return f"{_sentence(error, command, called)} ('{called} --help' shows what there is)"


def near(word: str, known: Iterable[str]) -> str:
    """Return a question for what may have been meant, or nothing."""
    known = list(known)
    longer = [one for one in known if len(word) > len("--x") and one.startswith(word)]
    found = longer or difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {found[0]}?" if found else ""


def _sentence(error: CycloptsError, command: App, called: str) -> str:
    match error:
        case UnknownOptionError(token=token):
            return _unknown((token.keyword or token.value).partition("=")[0], _names(command), called)
        case RepeatArgumentError(token=token):
            return f"{token.keyword} is given twice; keep one of the two"
        case UnusedCliTokensError(unused_tokens=[word, *_]):
            return _unused(word, error.root_input_tokens or [], command, called)
    return _wrong_value(error, called) or str(error).strip().rstrip(".")


def _wrong_value(error: CycloptsError, called: str) -> str:
    argument = error.argument
    if argument is None:
        return ""
    match error:
        case CoercionError(token=token) if token is not None:
            if _is_switch(argument):
                return f"{token.keyword} takes no value, but it got '{token.value}'; {_alone(argument.names)}"
            return f"{token.keyword or argument.name} is '{token.value}': {error.msg}"
        case MissingArgumentError():
            about = str(argument.parameter.help or "").partition("  [")[0]
            name = argument.name
            return f"{name} needs a value: {about}" if name.startswith("-") else f"{called} needs {name}: {about}"
    return ""


def _unknown(word: str, names: Sequence[tuple[str, ...]], called: str) -> str:
    flags = [name for one in names for name in one if name.startswith("-")]
    place = NEIGHBOURS.get(word.removeprefix("--").replace("-", "_"), "").partition(" ")[0]
    section, _, field = place.rpartition(".")
    ours = f"--{FLAGS.get((section, field), field).replace('_', '-')}"
    if ours in flags:
        return f"{called} has no option {word}; here it is {ours}"
    name = word.removeprefix("--").removeprefix("no-").replace("-", "_")
    owners = [one for one in method_names() if name in {field.name for field in fields(find_method(one).options)}]
    if owners and called == "motley run":
        return f"{word} is an option of a method, which stands first: motley run {owners[0]} {word} ..."
    if owners and called in {"motley compare", "motley sweep"}:
        return f"{word} is an option of {', '.join(owners)}; write --set {owners[0]}.{name}=VALUE"
    if owners and called.startswith("motley run"):
        return f"{called} has no option {word}; it is one of {', '.join(owners)}"
    return f"{called} has no option {word}{near(word, flags)}"


def _unused(word: str, tokens: Sequence[str], command: App, called: str) -> str:
    before = tokens[tokens.index(word) - 1] if word in tokens[1:] else ""
    switch = next((one for one in _names(command, switches=True) if before in one), None)
    if switch:
        return f"{before} takes no value, but it got '{word}'; {_alone(switch)}"
    if called == "motley run":
        return f"the method stands before the options: motley run {find_method(word).name} ..."
    return f"{called} does not take the word '{word}'"


def _alone(names: Sequence[str]) -> str:
    return f"write {' or '.join(names)} alone"


def _names(command: App, *, switches: bool = False) -> list[tuple[str, ...]]:
    """Return the names of every parameter of a command, or of every one that is switched on and off."""
    found = command.assemble_argument_collection()
    return [tuple(one.names) for one in found if not switches or _is_switch(one)]


def _is_switch(argument: Argument) -> bool:
    return argument.hint in {bool, bool | None}
