"""What is wrong with a command line, as one sentence: what cyclopts found, in motley's words."""

import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence

from cyclopts import App, CycloptsError, UnknownOptionError
from cyclopts.exceptions import CoercionError, MissingArgumentError, RepeatArgumentError, UnusedCliTokensError

from motley.errors import InvalidConfig

ROOT_FLAGS = ("--help", "-h", "--version")


def check_command(arguments: Sequence[str], commands: Mapping[str, str]) -> None:
    """Refuse a first word that is no command; the commands need not be imported for that.

    Raises:
        InvalidConfig: It is none; the nearest one is given.
    """
    if not arguments or arguments[0] in {*commands, *ROOT_FLAGS}:
        return
    word, kind = arguments[0], "option" if arguments[0].startswith("-") else "command"
    known = ROOT_FLAGS if kind == "option" else tuple(commands)
    raise InvalidConfig(f"'{word}' is not {_article(kind)} of motley{_near(word, known)}; it has {', '.join(known)}")


def explain(error: CycloptsError) -> str:
    """Return one sentence on what is wrong, and where help is."""
    chain = list(error.command_chain or ())
    return f"{_sentence(error, chain)} ('{' '.join(['motley', *chain, '--help'])}' shows what there is)"


def _sentence(error: CycloptsError, chain: list[str]) -> str:
    command = " ".join(["motley", *chain])
    argument = error.argument
    name = "" if argument is None else argument.name
    match error:
        case UnknownOptionError(token=token):
            return _unknown_option((token.keyword or token.value).partition("=")[0], error, chain)
        case CoercionError(token=token) if token is not None:
            wanted = str(error.msg) if error.msg is not None else "that is not accepted"
            if argument is not None and argument.hint is bool:
                wanted = f"it is switched by {' or '.join(argument.names)}, without a value"
            return f"{token.keyword or name} is '{token.value}': {wanted}"
        case RepeatArgumentError():
            return f"{name} is given twice; keep one of the two"
        case MissingArgumentError() if argument is not None:
            about = str(argument.parameter.help or "").partition("  [")[0]
            return f"'{command}' needs {name}: {about}" if not name.startswith("-") else f"{name} needs a value: {about}"
        case UnusedCliTokensError(unused_tokens=[word, *_]):
            return _unused(word, error, chain)
    return str(error).strip().rstrip(".")


def _unknown_option(word: str, error: UnknownOptionError, chain: list[str]) -> str:
    flags = _flags(error)
    owners = _owners(word) if chain[:1] == ["run"] else []
    text = f"'{' '.join(['motley', *chain])}' has no option {word}"
    if owners and len(chain) == 1:
        return f"{text}: it belongs to a method, which stands first: 'motley run {owners[0]} {word} ...'"
    if owners:
        return f"{text}: it belongs to {', '.join(owners)}"
    return f"{text}{_elsewhere(word, flags) or _near(word, flags)}"


def _elsewhere(word: str, flags: Iterable[str]) -> str:
    """Return our name of what other systems call so."""
    from motley.engine.config import FLAGS, NEIGHBOURS

    place = NEIGHBOURS.get(word.removeprefix("--").replace("-", "_"), "").partition(" ")[0]
    section, _, name = place.rpartition(".")
    flag = f"--{FLAGS.get((section, name), name).replace('_', '-')}"
    return f"; here it is {flag}" if flag in flags else ""


def _unused(word: str, error: CycloptsError, chain: list[str]) -> str:
    tokens = error.root_input_tokens or []
    before = tokens[tokens.index(word) - 1] if word in tokens[1:] else ""
    switch = next((names for names in _switches(error) if before in names), None)
    if switch:
        return f"{before} takes no value, but '{word}' follows it; write {' or '.join(switch)} alone"
    if chain == ["run"]:
        from motley.methods.registry import find_method

        return f"the method stands before the options: 'motley run {find_method(word).name} ...'"
    return f"'{' '.join(['motley', *chain])}' does not take the word '{word}'"


def _flags(error: CycloptsError) -> list[str]:
    found = [name for names in _parameters(error) for name in names if name.startswith("-")]
    return [*found, "--help"]


def _switches(error: CycloptsError) -> list[tuple[str, ...]]:
    return [names for names in _parameters(error, switches=True)]


def _parameters(error: CycloptsError, *, switches: bool = False) -> list[tuple[str, ...]]:
    """Return the names of all parameters of the command that was called, or of its switches."""
    app = error.app
    if not isinstance(app, App):
        return []
    return [one.names for one in app.assemble_argument_collection() if not switches or one.hint is bool]


def _owners(word: str) -> list[str]:
    """Return the methods that have an option."""
    from dataclasses import fields

    from motley.methods.registry import find_method, method_names

    name = word.removeprefix("--").removeprefix("no-").replace("-", "_")
    return [one for one in method_names() if name in {field.name for field in fields(find_method(one).options)}]


def _near(word: str, known: Iterable[str]) -> str:
    known = list(known)
    longer = [one for one in known if one.startswith(word) and len(word) > 3]
    near = longer[:1] or difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
