"""The three contracts of a method. The engine is the only caller; a method owns no loop over rounds, file or socket."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from torch import Tensor

from motley.draws import Draws
from motley.federation import Client, Task, Value
from motley.messages import Message

State = TypeVar("State", bound=Message)
Down = TypeVar("Down", bound=Message)
Up = TypeVar("Up", bound=Message)
Sent = TypeVar("Sent", bound=Message)


@dataclass(frozen=True)
class Nothing(Message):
    """The message of a method that sends nothing."""


@dataclass(frozen=True)
class Upload(Generic[Up]):
    """One client's message of a round."""

    client_id: int
    message: Up


class ServerMethod(ABC, Generic[State, Down, Up]):
    """A method with a server, which holds no data; without a server every peer plays it for itself (replicated)."""

    @abstractmethod
    def __init__(self, options: Any) -> None: ...

    @abstractmethod
    def start(self, task: Task, draws: Draws) -> State:
        """Return the server's state before round 1."""

    @abstractmethod
    def broadcast(self, state: State, client_id: int) -> Down:
        """Return what a client receives at the start of a round."""

    @abstractmethod
    def client_round(self, client: Client, received: Down, round: int, draws: Draws) -> Up:
        """Train one client and return what it sends."""

    @abstractmethod
    def server_round(self, state: State, uploads: Iterable[Upload[Up]], round: int, draws: Draws) -> State:
        """Return the state after a round; `uploads` is a stream in ascending client id and can be read once."""

    def predict(self, client: Client, view: Down | None, x: Tensor) -> Tensor:
        """Return scores (B, C) of normalised inputs.

        `view` is what `broadcast` would send now (rule R8); None: with what the client itself holds after its round
        (`eval.state = local`). The model may be a copy for inference with other names inside its backbone: use
        `features`, `classify` and `model(x)`, and change nothing.
        """
        scores: Tensor = client.model(x)
        return scores

    def other_predictions(self, client: Client, view: Down | None, x: Tensor) -> Mapping[str, Tensor]:
        """Return scores (B, C) of further predictors by name, recorded beside the headline of `predict`."""
        return {}


class PeerMethod(ABC, Generic[Sent]):
    """A method without a server: peers exchange snapshots that were taken before the round."""

    @abstractmethod
    def __init__(self, options: Any) -> None: ...

    @abstractmethod
    def start(self, client: Client, draws: Draws) -> None:
        """Prepare a client's memory before round 1."""

    @abstractmethod
    def snapshot(self, client: Client, round: int) -> Sent:
        """Return what a client sends at the start of a round; it must not change while the client trains."""

    @abstractmethod
    def peer_round(self, client: Client, inbox: Mapping[int, Sent], round: int, draws: Draws) -> None:
        """Train one client with what its peers sent: snapshots of round - 1, by peer id in ascending order."""

    def check(self, message: Sent, peer: int, task: Task) -> None:
        """Refuse what a peer sent if it cannot be used, beyond what the message's schema says.

        Raises:
            InvalidMessage: One sentence that says why; the peer is left out of the round, and nobody else.
        """

    def predict(self, client: Client, x: Tensor) -> Tensor:
        """Return scores (B, C) of normalised inputs."""
        scores: Tensor = client.model(x)
        return scores

    def other_predictions(self, client: Client, x: Tensor) -> Mapping[str, Tensor]:
        """Return scores (B, C) of further predictors by name, recorded beside the headline of `predict`."""
        return {}


@dataclass(frozen=True)
class Turn:
    """One aggregation of a round: who sends to whom."""

    aggregator: int
    senders: tuple[int, ...]


@dataclass(frozen=True)
class Returned(Generic[Sent]):
    """What goes back to one sender after an aggregation, and what its row says of it.

    Attributes:
        message: None if nothing goes back.
        missing: Why nothing does, or None.
        journal: What the aggregator measured for it; plain numbers, by the name in the sender's row.
    """

    message: Sent | None
    missing: str | None = None
    journal: Mapping[str, Value] = field(default_factory=dict)


class AggregatorMethod(ABC, Generic[Sent]):
    """A method without a fixed server: some participants of a round work on what others send them, and send it back.

    The turns of a round are played one after the other; each starts from what the ones before it left behind.
    """

    @abstractmethod
    def __init__(self, options: Any) -> None: ...

    @abstractmethod
    def start(self, client: Client, draws: Draws) -> None:
        """Prepare a client's memory before round 1."""

    @abstractmethod
    def plan(self, participants: Sequence[int], round: int, draws: Draws) -> Sequence[Turn]:
        """Return the turns of a round in their order; `participants` is ascending."""

    @abstractmethod
    def snapshot(self, client: Client, round: int, draws: Draws) -> Sent:
        """Return what a client sends in a turn; it may train first."""

    @abstractmethod
    def aggregate(
        self, client: Client, inbox: Mapping[int, Sent], round: int, draws: Draws
    ) -> Mapping[int, Returned[Sent]]:
        """Do a turn's work at its aggregator, and return what each sender gets back; `inbox` is ascending by id.

        The result may have an entry of the aggregator itself, for its journal or why it is left out.
        """

    @abstractmethod
    def receive(self, client: Client, message: Sent, round: int) -> None:
        """Take over what came back from an aggregator."""

    def check(self, message: Sent, peer: int, task: Task) -> None:
        """Refuse what a peer sent if it cannot be used, beyond what the message's schema says.

        Raises:
            InvalidMessage: One sentence that says why; the peer is left out of the round, and nobody else.
        """

    def predict(self, client: Client, x: Tensor) -> Tensor:
        """Return scores (B, C) of normalised inputs."""
        scores: Tensor = client.model(x)
        return scores

    def other_predictions(self, client: Client, x: Tensor) -> Mapping[str, Tensor]:
        """Return scores (B, C) of further predictors by name, recorded beside the headline of `predict`."""
        return {}
