"""A resolved configuration: from files and flags to options classes and back, with an answer to every mistake."""

import codecs
import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import ValidationError

from motley.engine.sections import EXTRA_SECTIONS
from motley.errors import InvalidConfig
from motley.methods.registry import MethodEntry, find_method, method_names, plain
from motley.options import Settings

SECTIONS: dict[str, type[Any]] = get_type_hints(Settings)
DEFAULT_PROXY = 500  # data.proxy of a method that needs it (CRAD)

# Flags are the names of the fields, except where two sections have the same one or a shorter word says it all.
FLAGS = {
    ("data", "source"): "data",
    ("data", "size"): "image_size",
    ("data", "limit"): "data_limit",
    ("partition", "scheme"): "partition",
    ("partition", "seed"): "partition_seed",
    ("models", "pool"): "models",
    ("models", "width"): "feature_width",
    ("eval", "every"): "eval_every",
    ("eval", "batch_size"): "eval_batch_size",
    ("eval", "state"): "eval_state",
}

NEIGHBOURS = {  # what other systems call it (conventions, section 2.2): ours
    "comm_round": "run.rounds",
    "global_rounds": "run.rounds",
    "n_rounds": "run.rounds",
    "num_rounds": "run.rounds",
    "num_server_rounds": "run.rounds",
    "join_ratio": "run.participation",
    "fraction_train": "run.participation",
    "fraction_fit": "run.participation",
    "client_num_per_round": "run.participation",
    "eligible_perc": "run.participation",
    "random_seed": "run.seed",
    "num_clients": "partition.clients",
    "n_clients": "partition.clients",
    "num_supernodes": "partition.clients",
    "client_num_in_total": "partition.clients",
    "alpha": "partition.scheme (dirichlet:ALPHA)",
    "partition_alpha": "partition.scheme (dirichlet:ALPHA)",
    "beta": "partition.scheme (dirichlet:ALPHA)",
    "epochs": "train.local_epochs",
    "local_steps": "train.local_epochs",
    "learning_rate": "train.lr",
    "local_learning_rate": "train.lr",
    "federated_optimizer": "method",
    "algorithm": "method",
    "model_family": "models.pool",
    "dataset": "data.source",
    "lamda": "loss_weight of the method",
    "gamma": "strength of fedtopo",
    "rho": "smoothing of fedtopo",
    "q": "negatives of fedtopo",
    "top_q": "negatives of fedtopo",
    "top_k": "negatives of fedtopo",
}

WANTED = {  # kinds of pydantic's complaints: what is wanted instead
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "literal_error": "one of {expected}",
    "greater_than": "above {gt}",
    "greater_than_equal": "{ge} or larger",
    "less_than": "below {lt}",
    "less_than_equal": "{le} or smaller",
}


@dataclass(frozen=True)
class RunConfig:
    """Everything that is needed to repeat a run.

    Attributes:
        method: Its registered name.
        options: Its options.
        settings: All other sections.
    """

    method: str
    options: Any
    settings: Settings

    @property
    def entry(self) -> MethodEntry:
        """Return the method's entry."""
        return find_method(self.method)

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as TOML holds it: complete, without what is not set."""
        sections = {name: _set_values(getattr(self.settings, name)) for name in SECTIONS}
        return {"method": self.method, **sections, self.method: _set_values(self.options)}


@dataclass(frozen=True)
class ConfigFile:
    """What a configuration file says.

    Attributes:
        sections: Values by section name or method name.
        method: The method of `motley run`, if it names one.
        compare: The values of the section `compare`.
        variants: Changed options by name of the variant (see `motley.engine.variants`).
        paper: The values of the section `paper`.
        name: Where it came from, for errors.
    """

    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    method: str | None = None
    compare: Mapping[str, Any] = field(default_factory=dict)
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)
    name: str = "the command line"


def read_config(path: Path) -> ConfigFile:
    """Read a TOML file; a byte-order mark and Windows line ends are accepted.

    Raises:
        InvalidConfig: It cannot be read, is not UTF-8, or is not TOML; the place is named.
    """
    try:
        data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
        table = tomllib.loads(data.decode("utf-8"))
    except OSError as error:
        raise InvalidConfig(f"the configuration {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidConfig(
            f"{path} is not UTF-8: byte 0x{data[error.start]:02x} at position {error.start} (line {line}); save it so"
        ) from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidConfig(f"{path} is no valid TOML: {_place(error)}") from error
    return parse_config(table, str(path))


def parse_config(table: Mapping[str, Any], name: str) -> ConfigFile:
    """Sort the top level of a configuration into sections.

    Raises:
        InvalidConfig: It has keys or sections that do not exist; all are named with the nearest right ones, and so are
            unknown keys inside the known sections.
    """
    faults: list[str] = []
    extra, rest = _split_extra(table, faults)
    sections: dict[str, Mapping[str, Any]] = {}
    method = None
    for key, value in rest.items():
        if key == "method" and isinstance(value, str):
            method = value
        elif key in SECTIONS and isinstance(value, dict):
            sections[key] = value
            faults += _unknown(key, value, SECTIONS[key])
        elif isinstance(value, dict) and (entry := _method_of(key)):
            sections[entry.name] = value
            faults += _unknown(key, value, entry.options)
        elif key == "method":
            faults.append(f"method is {_show(value)}; it must be text")
        elif key in SECTIONS or _method_of(key):
            faults.append(f"'{key}' is {_show(value)}; it must be a section [{key}]")
        else:
            kind = "section" if isinstance(value, dict) else "key"
            faults.append(f"unknown {kind} '{key}'{_hint(key, isinstance(value, dict))}")
    if faults:
        raise InvalidConfig(f"{name}: {'; '.join(faults)}")
    file = ConfigFile(sections, method, name=name, **extra)
    for section, options in EXTRA_SECTIONS.items():
        build(options, extra.get(section, {}), section, file)
    return file


def _split_extra(table: Mapping[str, Any], faults: list[str]) -> tuple[dict[str, Mapping[str, Any]], dict[str, Any]]:
    """Return the sections that are not of a run, and the rest; what is wrong with them is added to `faults`."""
    extra: dict[str, Mapping[str, Any]] = {}
    rest = dict(table)
    for key in (*EXTRA_SECTIONS, "variants"):
        value = rest.pop(key, {})
        if not isinstance(value, dict):
            faults.append(f"'{key}' is {_show(value)}; it must be a section [{key}]")
        elif wrong := [name for name, one in value.items() if key == "variants" and not isinstance(one, dict)]:
            faults.append(
                f"variants.{wrong[0]} is {_show(value[wrong[0]])}; it must be a section [variants.{wrong[0]}]"
            )
        else:
            extra[key] = value
            faults += _unknown(key, value, EXTRA_SECTIONS[key]) if key in EXTRA_SECTIONS else []
    return extra, rest


def resolve(method: str, file: ConfigFile, flags: Mapping[str, Any], method_flags: Mapping[str, Any]) -> RunConfig:
    """Join a file and flags into a checked configuration; flags win.

    Args:
        method: Name of the method.
        file: What the configuration file says.
        flags: Values by flat flag name, as in `flag_fields`.
        method_flags: Values of the method's own options by name.

    Raises:
        InvalidConfig: A name is unknown or a value is not accepted.
    """
    entry = find_method(method)
    known = flag_fields()
    values: dict[str, dict[str, Any]] = {section: dict(file.sections.get(section, {})) for section in SECTIONS}
    for flag, value in flags.items():
        if flag not in known:
            raise InvalidConfig(f"unknown option '{flag}'{_near(flag, known)}")
        section, name = known[flag]
        values[section][name] = value
    values[entry.name] = {**file.sections.get(entry.name, {}), **method_flags}
    given = {known[flag]: flag for flag in flags} | {(entry.name, name): name for name in method_flags}
    kinds = {**SECTIONS, entry.name: entry.options}
    built, faults = {}, []
    for section, kind in kinds.items():
        try:
            built[section] = build(kind, values[section], section, file, given)
        except InvalidConfig as error:
            faults.append(str(error))
    if faults:
        raise InvalidConfig("; ".join(faults))
    if "proxy" in entry.needs and built["data"].proxy is None:
        built["data"] = replace(built["data"], proxy=DEFAULT_PROXY)
    return RunConfig(entry.name, built.pop(entry.name), Settings(**built))


def flag_fields() -> dict[str, tuple[str, str]]:
    """Return section and field by flat flag name."""
    return {
        FLAGS.get((section, one.name), one.name): (section, one.name)
        for section, kind in SECTIONS.items()
        for one in fields(kind)
    }


def build(
    kind: type,
    values: Mapping[str, Any],
    section: str,
    file: ConfigFile,
    given: Mapping[tuple[str, str], str] | None = None,
) -> Any:
    """Make an options object of plain values.

    Args:
        kind: The class.
        values: By name.
        section: Where they belong.
        file: The file that they are from.
        given: Those that are from a flag instead: name of the flag by section and name.

    Raises:
        InvalidConfig: One sentence for all values that are not accepted.
    """
    if unknown := _unknown(section, values, kind):
        raise InvalidConfig(f"{file.name}: {'; '.join(unknown)}")
    ready = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    try:
        return kind(**ready)
    except ValidationError as error:
        wanted: dict[str, list[Any]] = {}
        for one in error.errors():
            wanted.setdefault(str(one["loc"][0]), []).append(one)
        faults = []
        for name, complaints in wanted.items():
            flag = (given or {}).get((section, name))
            place = f"--{flag.replace('_', '-')}" if flag else file.name
            words = list(dict.fromkeys(map(_wanted, complaints)))
            if words == ["a number", "a whole number"]:
                words.pop()
            entry = isinstance(complaints[0]["loc"][-1], int)
            what = f"holds {_show(complaints[0]['input'])}" if entry else f"is {_show(values[name])}"
            faults.append(f"{section}.{name} {what}; it must be {' or '.join(words)} ({place})")
        raise InvalidConfig("; ".join(faults)) from None


def _wanted(complaint: Any) -> str:
    """Return what a value must be instead, with the nearest choice."""
    words = WANTED.get(complaint["type"], str(complaint["msg"])).format(**complaint.get("ctx", {}))
    choices = re.findall(r"'([^']*)'", words)
    near = difflib.get_close_matches(str(complaint["input"]), choices, n=1)
    if complaint["type"] == "literal_error" and len(choices) == 1:
        return words.removeprefix("one of ")
    return f"{words}; did you mean '{near[0]}'?" if near else words


def _place(error: tomllib.TOMLDecodeError) -> str:
    """Return what is wrong in a file and where; a key or section that stands twice is said in plain words."""
    text = str(error)
    line = re.search(r"line \d+", text)
    if line and text.startswith(("Cannot overwrite a value", "Cannot declare")):
        return f"a key or section stands there twice ({line[0]}); keep one of the two"
    return text


def _show(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_show, value))}]"
    return f"'{value}'" if isinstance(value, str) else "a section" if isinstance(value, dict) else str(value)


def _set_values(options: Any) -> dict[str, Any]:
    values = asdict(options) if is_dataclass(options) and not isinstance(options, type) else {}
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if value is not None
    }


def _unknown(section: str, values: Mapping[str, Any], kind: type) -> list[str]:
    names = [one.name for one in fields(kind)]
    return [f"unknown key '{section}.{key}'{_near(key, names)}" for key in values if key not in names]


def _near(key: str, names: Iterable[str]) -> str:
    """Return a hint at what an unknown key of a section, or an unknown section, may have meant."""
    by_plain = {plain(name): name for name in names}
    word = key.replace("-", "_")
    own = NEIGHBOURS.get(word, "")
    known = own.split(".")[-1].split(" ")[0]
    if known in by_plain.values():
        form = own.partition(" (")[2].rstrip(")")
        return f" (here it is '{known}', as {form})" if form else f" (here it is '{known}')"
    near = difflib.get_close_matches(plain(key), by_plain, n=1, cutoff=0.6)
    if near:
        return f" (did you mean '{by_plain[near[0]]}'?)"
    if own or word in _homes():
        return f" (here it is {own})" if own else f" (it belongs into the section [{_homes()[word].split('.')[0]}])"
    return f" (known: {', '.join(by_plain.values())})" if by_plain else " (there are no options in this section)"


def _hint(key: str, is_section: bool) -> str:
    """Return a hint at what an unknown key at the top of a file, or an unknown section, may have meant."""
    if is_section:
        return _near(key, [*SECTIONS, *EXTRA_SECTIONS, "variants", *method_names()])
    word = key.replace("-", "_")
    homes = _homes()
    if word in homes:
        return f" (it belongs into the section [{homes[word].split('.')[0]}])"
    if word in NEIGHBOURS:
        return f" (here it is {NEIGHBOURS[word]})"
    places = {plain(name): place for name, place in {**NEIGHBOURS, **homes, "method": "method"}.items()}
    near = difflib.get_close_matches(plain(key), places, n=1)
    if near:
        return f" (did you mean '{places[near[0]]}'?)"
    return f" (known sections: {', '.join([*SECTIONS, *EXTRA_SECTIONS, 'variants'])})"


def _homes() -> dict[str, str]:
    """Return section and name of every option by its name; of those that share a name, the last one."""
    return {name: f"{section}.{name}" for section, name in flag_fields().values()}


def _method_of(key: str) -> MethodEntry | None:
    try:
        return find_method(key)
    except InvalidConfig:
        return None
