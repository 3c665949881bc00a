"""The table of architectures and of pools, by name; it imports no torch, so that listing it is quick.

The builders of the table stand in one file a family. Others come by `register`, or from the entry points
`motley.models` of packages.
"""

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from types import MappingProxyType
from typing import TYPE_CHECKING

from motley.errors import InvalidModel

if TYPE_CHECKING:
    from motley.models.spec import InputSpec
    from motley.models.split import SplitModel

GROUP = "motley.models"
Builder = Callable[["InputSpec"], "SplitModel"]


@dataclass(frozen=True)
class Architecture:
    """One architecture by name.

    Args:
        name: Name on the command line.
        builder: Makes a model with new random weights, drawn from torch's global generator; or the address
            "package.module:function" of what does.
        min_size: Smallest height, width or length of an input.
        description: One line for 'motley list models'.
        family: Name of the pool it was made for, which also gives the default feature width.
    """

    name: str
    builder: Builder | str
    min_size: int
    description: str
    family: str

    def build(self, spec: "InputSpec") -> "SplitModel":
        """Return a model with new random weights, drawn from torch's global generator.

        Raises:
            InvalidModel: The inputs are too small or of another kind.
        """
        if min(spec.shape[1:], default=self.min_size) < self.min_size:
            raise InvalidModel(f"{self.name} needs inputs of size {self.min_size} or more; resize them")
        if not isinstance(self.builder, str):
            return self.builder(spec)
        module, _, function = self.builder.partition(":")
        build: Builder = getattr(import_module(module), function)
        return build(spec)


@dataclass(frozen=True)
class Pool:
    """A named list of architectures, given to the clients in turn.

    Args:
        name: Name on the command line.
        members: Names of architectures; client i has member i mod K.
        width: Default feature width; None: each architecture's own.
        description: One line for 'motley list models'.
    """

    name: str
    members: tuple[str, ...]
    width: int | None
    description: str


_SMALL, _FEDTOPO, _CRAD, _SIGNAL = (f"motley.models.{name}:" for name in ("small", "fedtopo8", "crad3", "signal"))

_ARCHITECTURES = {
    architecture.name: architecture
    for architecture in (
        Architecture("small-linear", _SMALL + "small_linear", 1, "one hidden linear layer of 64", "small4"),
        Architecture("small-cnn", _SMALL + "small_cnn", 4, "two convolutions with max pooling, Linear(64)", "small4"),
        Architecture("small-bn", _SMALL + "small_bn", 1, "two convolutions with batch norm, global average", "small4"),
        Architecture("small-mlp", _SMALL + "small_mlp", 1, "two hidden linear layers of 128 and 64", "small4"),
        Architecture("cnn", _FEDTOPO + "cnn", 1, "two 5x5 convolutions, Linear(512); 0.9 M parameters", "fedtopo8"),
        Architecture("googlenet", _FEDTOPO + "googlenet", 1, "without auxiliary heads; 5.6 M parameters", "fedtopo8"),
        Architecture("mobilenetv2", _FEDTOPO + "mobilenetv2", 1, "MobileNetV2; 2.2 M parameters", "fedtopo8"),
        *(
            Architecture(
                f"resnet{depth}", f"{_FEDTOPO}resnet{depth}", 1, f"with a 7x7 stem; {millions} M parameters", "fedtopo8"
            )
            for depth, millions in ((18, 11.2), (34, 21.3), (50, 23.5), (101, 42.5), (152, 58.1))
        ),
        Architecture(
            "resnet18-3x3", _CRAD + "resnet18_3x3", 1, "ResNet-18 with a 3x3 stem; 11.2 M parameters", "crad3"
        ),
        Architecture(
            "resnet18-3x3-half", _CRAD + "resnet18_3x3_half", 1, "the same at half width; 2.8 M parameters", "crad3"
        ),
        Architecture("cnn6", _CRAD + "cnn6", 4, "six 3x3 convolutions with batch norm; 0.8 M parameters", "crad3"),
        Architecture("signal-cnn", _SIGNAL + "signal_cnn", 4, "three 1-D convolutions with max pooling", "signal3"),
        Architecture(
            "signal-residual", _SIGNAL + "signal_residual", 1, "dilated 1-D residual blocks with batch norm", "signal3"
        ),
        Architecture("signal-gru", _SIGNAL + "signal_gru", 1, "a GRU over a strided convolution", "signal3"),
    )
}


def _family(name: str) -> tuple[str, ...]:
    return tuple(architecture.name for architecture in _ARCHITECTURES.values() if architecture.family == name)


POOLS: Mapping[str, Pool] = MappingProxyType(
    {
        pool.name: pool
        for pool in (
            Pool("small4", _family("small4"), 64, "four small networks for small pictures; quick on a CPU"),
            Pool("small3", _family("small4")[:3], 64, "the first three of small4"),
            Pool("fedtopo8", _family("fedtopo8"), 512, "the eight networks of FedTopo; also 'strong'"),
            Pool("fedtopo8-mild", ("cnn", "resnet18"), 512, "two of fedtopo8; also 'mild'"),
            Pool("fedtopo8-moderate", _family("fedtopo8")[:4], 512, "four of fedtopo8; also 'moderate'"),
            Pool("crad3", _family("crad3"), None, "the three networks of CRAD"),
            Pool("signal3", _family("signal3"), 64, "three networks for series (channels, length); quick on a CPU"),
        )
    }
)

ALIASES: Mapping[str, str] = MappingProxyType(
    {"mild": "fedtopo8-mild", "moderate": "fedtopo8-moderate", "strong": "fedtopo8"}
)


def register(name: str, *, family: str, min_size: int, description: str) -> Callable[[Builder], Builder]:
    """Return a decorator that enters a builder under a name, for the process that runs it.

    Raises:
        InvalidModel: The name is taken, or could not be told from a list or a factory on the command line.
    """
    if plain(name) in {plain(other) for other in (*_ARCHITECTURES, *POOLS, *ALIASES)}:
        raise InvalidModel(f"the model name {name!r} is taken; choose another")
    if not plain(name) or any(sign in name for sign in ":, "):
        raise InvalidModel(f"the model name {name!r} is empty or has a colon, comma or blank; choose another")

    def enter(build: Builder) -> Builder:
        _ARCHITECTURES[name] = Architecture(name, build, min_size, description, family)
        return build

    return enter


def architectures() -> Mapping[str, Architecture]:
    """Return all known architectures by name, those of other packages included."""
    others = {point.name: point.value for point in entry_points(group=GROUP)}
    return {
        **{name: Architecture(name, value, 1, f"from {value}", "") for name, value in others.items()},
        **_ARCHITECTURES,
    }


def pools() -> Mapping[str, Pool]:
    """Return all pools by name."""
    return POOLS


def find_pool(name: str) -> Pool | None:
    """Return the pool of this name or alias, or None; case, hyphens and underscores do not matter."""
    known = {plain(pool): pool for pool in POOLS} | {plain(alias): pool for alias, pool in ALIASES.items()}
    return POOLS[known[plain(name)]] if plain(name) in known else None


def find_architecture(name: str, *, also: Iterable[str] = ()) -> Architecture:
    """Return the architecture of this name; case, hyphens and underscores do not matter.

    Args:
        name: Name to look up.
        also: Other names that would have been right in the place where the name stood.

    Raises:
        InvalidModel: Nothing has this name; the message has the nearest right names.
    """
    everything = architectures()
    known = {plain(other): architecture for other, architecture in everything.items()}
    if plain(name) in known:
        return known[plain(name)]
    right = {plain(other): other for other in (*also, *everything)}
    near = [right[other] for other in difflib.get_close_matches(plain(name), right, n=3)]
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise InvalidModel(f"{name!r} is not a known model{hint} ('motley list models' shows all)")


def plain(name: str) -> str:
    """Return a name without case, hyphens, underscores and blanks."""
    return "".join(letter for letter in name.lower() if letter.isalnum())
