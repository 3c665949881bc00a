"""A resolved configuration: from files and flags to options classes and back, with an answer to every mistake."""

import codecs
import difflib
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import ValidationError

from motley.errors import InvalidConfig
from motley.methods.registry import MethodEntry, find_method, plain
from motley.options import Settings

SECTIONS: dict[str, type[Any]] = get_type_hints(Settings)

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
        name: Where it came from, for errors.
    """

    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    method: str | None = None
    compare: Mapping[str, Any] = field(default_factory=dict)
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
        raise InvalidConfig(f"{path} is no valid TOML: {error}") from error
    return parse_config(table, str(path))


def parse_config(table: Mapping[str, Any], name: str) -> ConfigFile:
    """Sort the top level of a configuration into sections.

    Raises:
        InvalidConfig: It has keys or sections that do not exist; all are named with the nearest right ones, and so are
            unknown keys inside the known sections.
    """
    faults: list[str] = []
    sections: dict[str, Mapping[str, Any]] = {}
    method, compare = None, {}
    for key, value in table.items():
        if key == "method" and isinstance(value, str):
            method = value
        elif key == "compare" and isinstance(value, dict):
            compare = value
        elif key in SECTIONS and isinstance(value, dict):
            sections[key] = value
            faults += _unknown(key, value, SECTIONS[key])
        elif isinstance(value, dict) and (entry := _method_of(key)):
            sections[entry.name] = value
            faults += _unknown(key, value, entry.options)
        else:
            kind = "section" if isinstance(value, dict) else "key"
            faults.append(f"{kind} '{key}'{_hint(key, isinstance(value, dict))}")
    faults += _unknown("compare", compare, CompareSection)
    if faults:
        raise InvalidConfig(f"{name}: unknown {'; '.join(faults)}")
    return ConfigFile(sections, method, compare, name)


@dataclass(frozen=True)
class CompareSection:
    """The section `compare` of a file."""

    methods: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    reference: str | None = None


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
    settings = Settings(**{section: build(SECTIONS[section], values[section], section, file) for section in SECTIONS})
    own = {**file.sections.get(entry.name, {}), **method_flags}
    return RunConfig(entry.name, build(entry.options, own, entry.name, file), settings)


def flag_fields() -> dict[str, tuple[str, str]]:
    """Return section and field by flat flag name."""
    return {
        FLAGS.get((section, one.name), one.name): (section, one.name)
        for section, kind in SECTIONS.items()
        for one in fields(kind)
    }


def build(kind: type, values: Mapping[str, Any], section: str, file: ConfigFile) -> Any:
    """Make an options object of plain values.

    Raises:
        InvalidConfig: One sentence for all values that are not accepted.
    """
    if unknown := _unknown(section, values, kind):
        raise InvalidConfig(f"{file.name}: unknown {'; '.join(unknown)}")
    ready = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
    try:
        return kind(**ready)
    except ValidationError as error:
        places = {str(one["loc"][0]): one for one in reversed(error.errors())}
        faults = [
            f"{section}.{name} is {_show(one['input'])}: {_wanted(kind, name, one)}" for name, one in places.items()
        ]
        raise InvalidConfig(f"{'; '.join(faults)} (from {file.name}, or a flag)") from None


def _wanted(kind: type, name: str, fault: Any) -> str:
    message = str(fault["msg"]).removeprefix("Input ")
    about = next((one for one in fields(kind) if one.name == name), None)
    wanted = getattr(about.type, "__origin__", about.type) if about else ""
    return f"it {message} ({str(getattr(wanted, '__name__', wanted)).removeprefix('typing.')})"


def _show(value: Any) -> str:
    return f"'{value}'" if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


def _set_values(options: Any) -> dict[str, Any]:
    values = asdict(options) if is_dataclass(options) and not isinstance(options, type) else {}
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items() if value is not None
    }


def _unknown(section: str, values: Mapping[str, Any], kind: type) -> list[str]:
    names = [one.name for one in fields(kind)]
    return [f"key '{section}.{key}'{_near(key, names)}" for key in values if key not in names]


def _near(key: str, names: Any) -> str:
    by_plain = {plain(name): name for name in names}
    own = NEIGHBOURS.get(key.replace("-", "_"))
    near = difflib.get_close_matches(plain(key), by_plain, n=1, cutoff=0.5)
    if own and own.split(".")[-1].split(" ")[0] in names:
        return f" (here it is '{own.split('.')[-1]}')"
    if near:
        return f" (did you mean '{by_plain[near[0]]}'?)"
    return f" (here it is {own})" if own else f" (known: {', '.join(names)})"


def _hint(key: str, is_section: bool) -> str:
    if is_section:
        return _near(key, [*SECTIONS, "compare"])
    homes = {name: f"{section}.{name}" for section, name in flag_fields().values()}
    if key in homes:
        return f" (it belongs into the section [{homes[key].split('.')[0]}])"
    if own := NEIGHBOURS.get(key.replace("-", "_")):
        return f" (here it is {own})"
    near = difflib.get_close_matches(plain(key), [plain(name) for name in homes], n=1, cutoff=0.5)
    found = [home for name, home in homes.items() if near and plain(name) == near[0]]
    return f" (did you mean '{found[0]}'?)" if found else f" (known sections: {', '.join(SECTIONS)}, compare)"


def _method_of(key: str) -> MethodEntry | None:
    try:
        return find_method(key)
    except InvalidConfig:
        return None
