"""How messages go round: through a server, among peers that each play the server, or among peers with snapshots."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from motley.draws import Draws
from motley.engine.executor import Executor, Outcome
from motley.errors import InvalidConfig, InvalidMessage, RunFailed
from motley.federation import Task, Value
from motley.messages import Message
from motley.methods.contracts import ServerMethod, Upload
from motley.methods.registry import MethodEntry


@dataclass
class Traffic:
    """Scalars and bytes that one client sent (up) and received (down) in a round."""

    up_scalars: int = 0
    up_bytes: int = 0
    down_scalars: int = 0
    down_bytes: int = 0

    def sent(self, message: Message, times: int = 1) -> None:
        """Count a message that left the client."""
        self.up_scalars += times * message.num_scalars
        self.up_bytes += times * message.num_bytes

    def received(self, message: Message) -> None:
        """Count a message that reached the client."""
        self.down_scalars += message.num_scalars
        self.down_bytes += message.num_bytes


@dataclass
class Played:
    """What came of one round.

    Attributes:
        participants: Ids of those who took part, ascending.
        missing: Reason by id of those whose upload is left out.
        journals, seconds, traffic: By id.
    """

    participants: list[int]
    missing: dict[int, str] = field(default_factory=dict)
    journals: dict[int, Mapping[str, Value]] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    traffic: dict[int, Traffic] = field(default_factory=dict)

    def note(self, outcome: Outcome) -> None:
        """Take over what an executor says of one client."""
        self.journals[outcome.client_id] = outcome.journal
        self.seconds[outcome.client_id] = outcome.seconds
        if outcome.missing:
            self.missing[outcome.client_id] = outcome.missing


class Exchange(Protocol):
    """One way for messages to go round."""

    def play(self, round: int, participants: list[int], draws: Draws) -> Played:
        """Play one round; afterwards the state is the new one."""

    def views(self) -> dict[int, Message | None]:
        """Return what each client's inference sees now."""

    def finish_round(self) -> None:
        """Forget what would be needed to undo the round."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the state by name, as after the last finished round."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the state from what `tensors` returned."""


class ServerExchange:
    """One server holds the state; clients send to it and receive from it."""

    def __init__(self, method: ServerMethod[Any, Any, Any], executor: Executor, task: Task, draws: Draws) -> None:
        self._method, self._executor, self._task = method, executor, task
        self._state: Message = method.start(task, draws)
        self._before = self._state

    def play(self, round: int, participants: list[int], draws: Draws) -> Played:
        method, state = self._method, self._state
        played = Played(participants, traffic={client_id: Traffic() for client_id in participants})
        received = {client_id: method.broadcast(state, client_id) for client_id in participants}
        for client_id, message in received.items():
            played.traffic[client_id].received(message)
        outcomes = self._executor.train(received, round, draws)
        uploads = _uploads(outcomes, played, copies=1)
        new = method.server_round(state, uploads, round, draws)
        for _ in uploads:  # a method that reads no uploads still has its clients trained
            pass
        self._state = _checked(new, round, self._task)
        return played

    def views(self) -> dict[int, Message | None]:
        return {
            client_id: self._method.broadcast(self._state, client_id) for client_id in range(self._task.num_clients)
        }

    def tensors(self) -> dict[str, Tensor]:
        return {f"state/{name}": tensor for name, tensor in self._before.tensors().items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self._state = self._before = type(self._state).from_tensors(_below("state/", tensors))

    def finish_round(self) -> None:
        self._before = self._state


class ReplicatedExchange:
    """No server: every peer receives all uploads and computes the same state for itself (design, section 4)."""

    def __init__(self, method: ServerMethod[Any, Any, Any], executor: Executor, task: Task, draws: Draws) -> None:
        self._method, self._executor, self._task = method, executor, task
        self._states: dict[int, Message] = {peer: method.start(task, draws) for peer in range(task.num_clients)}
        self._before = self._states

    def play(self, round: int, participants: list[int], draws: Draws) -> Played:
        method, peers = self._method, range(self._task.num_clients)
        played = Played(participants, traffic={peer: Traffic() for peer in peers})
        own = {peer: method.broadcast(self._states[peer], peer) for peer in participants}
        uploads = list(_uploads(self._executor.train(own, round, draws), played, copies=len(peers) - 1))
        new = {}
        for peer in peers:
            for upload in uploads:
                if upload.client_id != peer:
                    played.traffic[peer].received(upload.message)
            new[peer] = _checked(
                method.server_round(self._states[peer], iter(uploads), round, draws), round, self._task
            )
        self._states = new
        return played

    def views(self) -> dict[int, Message | None]:
        return {peer: self._method.broadcast(state, peer) for peer, state in self._states.items()}

    def tensors(self) -> dict[str, Tensor]:
        return {
            f"replica/{peer}/{name}": tensor
            for peer, state in self._before.items()
            for name, tensor in state.tensors().items()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self._states = self._before = {
            peer: type(state).from_tensors(_below(f"replica/{peer}/", tensors)) for peer, state in self._states.items()
        }

    def finish_round(self) -> None:
        self._before = self._states


class PeerExchange:
    """Peers send each other snapshots that were taken before the round; every active peer learns from the others."""

    def __init__(self, executor: Executor, task: Task, draws: Draws) -> None:
        self._executor, self._task = executor, task
        executor.start(draws)

    def play(self, round: int, participants: list[int], draws: Draws) -> Played:
        played = Played(participants, traffic={peer: Traffic() for peer in participants})
        snapshots: dict[int, Message] = {}
        for peer, message in self._executor.snapshots(participants, round).items():
            try:
                message.check(f"peer {peer}", C=self._task.num_classes)
                snapshots[peer] = message
            except InvalidMessage as error:
                played.missing[peer] = str(error)
        inboxes = {
            peer: {other: message for other, message in snapshots.items() if other != peer} for peer in participants
        }
        for peer in participants:
            if peer in snapshots:
                played.traffic[peer].sent(snapshots[peer], times=len(participants) - 1)
            for message in inboxes[peer].values():
                played.traffic[peer].received(message)
        for outcome in self._executor.learn(inboxes, round, draws):
            played.note(outcome)
        return played

    def views(self) -> dict[int, Message | None]:
        return dict.fromkeys(range(self._task.num_clients))

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        pass

    def finish_round(self) -> None:
        pass


def make_exchange(kind: str, entry: MethodEntry, method: Any, executor: Executor, task: Task, draws: Draws) -> Exchange:
    """Return the exchange of a run.

    Raises:
        InvalidConfig: The method cannot run that way.
    """
    if kind == "auto":
        kind = "server" if entry.has_server else "peers"
    if entry.has_server and kind == "peers":
        raise InvalidConfig(
            f"run.exchange is 'peers', but {entry.name} has a server; among peers it runs with 'replicated'"
        )
    if not entry.has_server and kind != "peers":
        raise InvalidConfig(f"run.exchange is '{kind}', but {entry.name} has no server; use 'peers'")
    if kind == "server":
        return ServerExchange(method, executor, task, draws)
    if kind == "replicated":
        return ReplicatedExchange(method, executor, task, draws)
    return PeerExchange(executor, task, draws)


def _uploads(outcomes: Iterator[Outcome], played: Played, copies: int) -> Iterator[Upload[Any]]:
    """Pass on the uploads of a stream of outcomes; what else they say is noted on the way."""
    for outcome in outcomes:
        played.note(outcome)
        if outcome.message is not None:
            played.traffic[outcome.client_id].sent(outcome.message, times=copies)
            yield Upload(outcome.client_id, outcome.message)


def _checked(state: Message, round: int, task: Task) -> Message:
    try:
        state.check("the server", C=task.num_classes)
    except InvalidMessage as error:
        raise RunFailed(f"the state after round {round} is not valid: {error}") from error
    return state


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
