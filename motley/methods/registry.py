"""Methods by name: built-in ones are imported when they are asked for, others come from entry points of packages."""

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal, TypeVar, get_args, get_type_hints

from motley.errors import InvalidConfig
from motley.messages import Message
from motley.methods.contracts import AggregatorMethod, Nothing, PeerMethod, ServerMethod

GROUP = "motley.methods"
BUILT_IN = {
    "local": "motley.methods.local",
    "local-scaled": "motley.methods.local",
    "fedtopo": "motley.methods.fedtopo",
    "lg-fedavg": "motley.methods.lg_fedavg",
    "fedavg": "motley.methods.fedavg",
    "fedrod": "motley.methods.fedrod",
    "fedgen": "motley.methods.fedgen",
    "fedsce": "motley.methods.fedsce",
    "fml": "motley.methods.fml",
    "fedkd": "motley.methods.fedkd",
    "fedmrl": "motley.methods.fedmrl",
    "crad": "motley.methods.crad",
    "uniform-kd": "motley.methods.uniform_kd",
    "uncertainty-kd": "motley.methods.uncertainty_kd",
    "fedmkd": "motley.methods.fedmkd",
    "dfml": "motley.methods.dfml",
    "fedproto": "motley.methods.fedproto",
    "fedtgp": "motley.methods.fedtgp",
    "fedgh": "motley.methods.fedgh",
    "fedre": "motley.methods.fedre",
    "fd": "motley.methods.fd",
    "fedmd": "motley.methods.fedmd",
    "fedgd": "motley.methods.fedgd",
    "msfkd": "motley.methods.msfkd",
    "feddf": "motley.methods.feddf",
}
Need = Literal[
    "features",
    "equal-width",
    "equal-head",
    "one-architecture",
    "proxy",
    "proxy-labels",
    "synthetic",
    "complete-graph",
    "validation",
]
Method = ServerMethod[Any, Any, Any] | PeerMethod[Any] | AggregatorMethod[Any]
Kind = TypeVar("Kind", bound=type)


@dataclass(frozen=True)
class MethodEntry:
    """What is known of a method without running it.

    Attributes:
        name: How users call it.
        method: Its class.
        options: The class of its options.
        needs: What it asks of the federation, or makes for itself.
        replicated: Written for a server, but meant to run without one: every peer computes what the server would.
        about: One line on what it does; that of its file if empty.
    """

    name: str
    method: type[Method]
    options: type
    needs: frozenset[Need]
    replicated: bool = False
    about: str = ""

    @property
    def has_server(self) -> bool:
        """Tell whether it is made for a server."""
        return issubclass(self.method, ServerMethod)

    @property
    def exchange(self) -> Literal["server", "replicated", "peers"]:
        """Return how its messages go round if nothing else is asked for."""
        if self.replicated:
            return "replicated"
        return "server" if self.has_server else "peers"

    @property
    def has_aggregators(self) -> bool:
        """Tell whether participants of a round work on what others send them."""
        return issubclass(self.method, AggregatorMethod)

    @property
    def is_silent(self) -> bool:
        """Tell whether nothing travels, so that no question of who sends to whom arises."""
        return all(issubclass(message, Nothing) for message in self.sends.values())

    @property
    def summary(self) -> str:
        """Return one line on what it does."""
        return self.about or (inspect.getdoc(inspect.getmodule(self.method)) or "").splitlines()[0]

    @property
    def sends(self) -> dict[str, type[Message]]:
        """Return its message classes: up and down, or between peers."""
        if issubclass(self.method, ServerMethod):
            hints = get_type_hints(self.method.client_round)
            return {"up": hints["return"], "down": hints["received"]}
        return {"peers": get_type_hints(self.method.snapshot)["return"]}


_found: dict[str, MethodEntry] = {}


def register(
    name: str, *, options: type, needs: tuple[Need, ...] = (), replicated: bool = False, about: str = ""
) -> Callable[[Kind], Kind]:
    """Give a method class a name, the class of its options, and say what it asks of the federation; see `MethodEntry`.

    One class may have several names, each with options of its own.
    """

    def decorate(method: Kind) -> Kind:
        _found[name] = MethodEntry(name, method, options, frozenset(needs), replicated, about)
        return method

    return decorate


def method_names() -> tuple[str, ...]:
    """Return the names of all methods, built-in ones first."""
    return (*BUILT_IN, *sorted(point.name for point in entry_points(group=GROUP)))


def find_method(name: str) -> MethodEntry:
    """Return a method's entry; case, hyphens and underscores do not matter.

    Raises:
        InvalidConfig: There is no such method; the nearest names are given.
    """
    known = {plain(one): one for one in method_names()}
    if plain(name) not in known:
        near = difflib.get_close_matches(plain(name), known, n=1)
        hint = f"; did you mean '{known[near[0]]}'?" if near else ""
        raise InvalidConfig(f"'{name}' is not a known method{hint} ('motley list methods' shows all)")
    exact = known[plain(name)]
    if exact in BUILT_IN:
        import_module(BUILT_IN[exact])
    else:
        for point in entry_points(group=GROUP, name=exact):
            point.load()
    if exact not in _found:
        raise InvalidConfig(
            f"the entry point '{exact}' registers no method of that name; use @register('{exact}', ...)"
        )
    return _found[exact]


def plain(name: str) -> str:
    """Return a name without case, hyphens, underscores and blanks."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def needs_text(needs: frozenset[Need]) -> str:
    """Return a method's needs as words for a list."""
    return ", ".join(sorted(needs, key=get_args(Need).index)) or "-"
