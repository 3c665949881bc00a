"""How messages go round: through a server, or among peers that each play the server; `peers.py` has the other ways."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from motley.draws import Draws
from motley.engine.executor import Executor, Outcome
from motley.engine.graph import Graph
from motley.engine.peers import AggregatorExchange, PeerExchange, StalePeerExchange
from motley.engine.played import Exchange, Played, Traffic, below
from motley.errors import InvalidConfig, InvalidMessage, RunFailed
from motley.federation import Task
from motley.messages import Message
from motley.methods.contracts import ServerMethod, Upload
from motley.methods.registry import MethodEntry
from motley.options import RunOptions


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
        self._state = self._before = type(self._state).from_tensors(below("state/", tensors))

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
            peer: type(state).from_tensors(below(f"replica/{peer}/", tensors)) for peer, state in self._states.items()
        }

    def finish_round(self) -> None:
        self._before = self._states


def make_exchange(
    options: RunOptions, entry: MethodEntry, method: Any, executor: Executor, task: Task, draws: Draws
) -> Exchange:
    """Return the exchange of a run.

    Raises:
        InvalidConfig: The method cannot run that way.
    """
    kind, graph = check_exchange(options, entry)
    if kind == "server":
        return ServerExchange(method, executor, task, draws)
    if kind == "replicated":
        return ReplicatedExchange(method, executor, task, draws)
    if entry.has_aggregators:
        return AggregatorExchange(method, executor, task, draws)
    if options.peers == "stale":
        return StalePeerExchange(method, executor, task, draws, entry.sends["peers"])
    return PeerExchange(method, executor, task, draws, graph)


def check_exchange(options: RunOptions, entry: MethodEntry) -> tuple[str, Graph]:
    """Return how messages go round in a run, and the graph of its peers.

    Raises:
        InvalidConfig: The method cannot run that way.
    """
    kind, graph = options.exchange, Graph.parse(options.graph)
    if kind == "auto":
        kind = entry.exchange
    if entry.has_server and kind == "peers":
        raise InvalidConfig(
            f"run.exchange is 'peers', but {entry.name} has a server; among peers it runs with 'replicated'"
        )
    if not entry.has_server and kind != "peers":
        raise InvalidConfig(f"run.exchange is '{kind}', but {entry.name} has no server; use 'peers'")
    _check_peers(options, entry, graph)
    return kind, graph


def _check_peers(options: RunOptions, entry: MethodEntry, graph: Graph) -> None:
    """Refuse a graph, or stale peers, where nobody chooses whom to learn from.

    Raises:
        InvalidConfig: As said.
    """
    given = "graph" if graph.kind != "complete" else "peers" if options.peers != "active" else None
    if given is None or entry.is_silent:
        return
    if entry.has_server:
        reason = "has a server, which hears all clients of a round (so does every peer that plays it)"
    elif entry.has_aggregators:
        reason = "draws for itself who sends to whom (--senders, --aggregators)"
    elif graph.kind != "complete" and "complete-graph" in entry.needs:
        reason = "needs all peers to hear the same"
    elif graph.kind != "complete" and options.peers == "stale":
        raise InvalidConfig(
            f"run.peers is 'stale' with run.graph = '{options.graph}', but whoever keeps the snapshots of all peers "
            "must be sent them; take one of the two"
        )
    else:
        return
    value = getattr(options, given)
    raise InvalidConfig(f"run.{given} is '{value}', but {entry.name} {reason}; leave --{given} out")


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
