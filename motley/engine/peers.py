"""Exchanges without a server: snapshots among peers, with or without stale ones, and models to aggregators and back."""

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from torch import Tensor

from motley.draws import Draws
from motley.engine.executor import Executor, Outcome
from motley.engine.graph import Graph
from motley.engine.played import Played, Traffic, below
from motley.errors import InvalidMessage
from motley.federation import Task
from motley.messages import Message
from motley.methods.contracts import AggregatorMethod, PeerMethod, Turn

Kept = TypeVar("Kept", bound=Message)


class Stateless:
    """An exchange that keeps nothing between rounds, and whose clients need nothing of it for inference."""

    _task: Task

    def views(self) -> dict[int, Message | None]:
        return dict.fromkeys(range(self._task.num_clients))

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        pass

    def finish_round(self) -> None:
        pass


class PeerExchange(Stateless):
    """Peers send each other snapshots that were taken before the round; an active peer learns from its teachers.

    A snapshot exists once, whoever reads it: memory grows with the number of peers, not with that of edges.

    Args:
        method: Which snapshots can be used.
        executor, task, draws: Who owns the clients, what all know, and the run's generators.
        graph: Who sends to whom among the active peers.
    """

    def __init__(self, method: PeerMethod[Any], executor: Executor, task: Task, draws: Draws, graph: Graph) -> None:
        self._method, self._executor, self._task, self._graph = method, executor, task, graph
        executor.start(draws)

    def play(self, round: int, participants: list[int], draws: Draws) -> Played:
        played = Played(participants, traffic={peer: Traffic() for peer in participants})
        teachers = self._graph.teachers(participants, round, draws)
        asked = sorted(set().union(*teachers.values()))
        snapshots = _snapshots(self._method, self._executor, self._task, asked, round, played)
        inboxes = {
            peer: {other: snapshots[other] for other in others if other in snapshots}
            for peer, others in teachers.items()
        }
        for peer, inbox in inboxes.items():
            for other, message in inbox.items():
                played.traffic[other].sent(message)
                played.traffic[peer].received(message)
        for outcome in self._executor.learn(inboxes, round, draws):
            played.note(outcome)
        return played


class StalePeerExchange:
    """As `PeerExchange` on the complete graph, but everybody keeps the last valid snapshot of everybody.

    Who is active sends to all, also to those who do not take part, and learns from all that ever sent something.

    Args:
        method: Which snapshots can be used.
        executor, task, draws: Who owns the clients, what all know, and the run's generators.
        kind: The class of the snapshots.
    """

    def __init__(
        self, method: PeerMethod[Any], executor: Executor, task: Task, draws: Draws, kind: type[Message]
    ) -> None:
        self._method, self._executor, self._task, self._kind = method, executor, task, kind
        self._held: dict[int, Message] = {}
        self._before = self._held
        executor.start(draws)

    def play(self, round: int, participants: list[int], draws: Draws) -> Played:
        peers = range(self._task.num_clients)
        played = Played(participants, traffic={peer: Traffic() for peer in peers})
        fresh = _snapshots(self._method, self._executor, self._task, participants, round, played)
        for peer, message in fresh.items():
            played.traffic[peer].sent(message, times=len(peers) - 1)
            for other in peers:
                if other != peer:
                    played.traffic[other].received(message)
        self._held = dict(sorted({**self._held, **fresh}.items()))
        inboxes = {
            peer: {other: message for other, message in self._held.items() if other != peer} for peer in participants
        }
        for outcome in self._executor.learn(inboxes, round, draws):
            played.note(outcome)
        return played

    def views(self) -> dict[int, Message | None]:
        return dict.fromkeys(range(self._task.num_clients))

    def tensors(self) -> dict[str, Tensor]:
        return {
            f"held/{peer}/{name}": tensor
            for peer, message in self._before.items()
            for name, tensor in message.tensors().items()
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        self._held = self._before = held_snapshots(self._kind, tensors)

    def finish_round(self) -> None:
        self._before = self._held


class AggregatorExchange(Stateless):
    """Some participants of a round receive what others send, work on it, and send it back; one turn after the other."""

    def __init__(self, method: AggregatorMethod[Any], executor: Executor, task: Task, draws: Draws) -> None:
        self._method, self._executor, self._task = method, executor, task
        executor.start(draws)

    def play(self, round: int, participants: list[int], draws: Draws) -> Played:
        turns = self._method.plan(participants, round, draws)
        involved = sorted({one for turn in turns for one in (turn.aggregator, *turn.senders)})
        played = Played(involved, traffic={client_id: Traffic() for client_id in involved})
        for turn in turns:
            self._play_turn(turn, round, draws, played)
        return played

    def _play_turn(self, turn: Turn, round: int, draws: Draws, played: Played) -> None:
        at, traffic = turn.aggregator, played.traffic
        inbox = self._valid(self._executor.send(turn.senders, round, draws), "peer {}", played)
        for peer, message in inbox.items():
            traffic[peer].sent(message)
            traffic[at].received(message)
        back = self._valid(self._executor.aggregate(at, inbox, round, draws), f"aggregator {at} to peer {{}}", played)
        for peer, message in back.items():
            traffic[at].sent(message)
            traffic[peer].received(message)
        self._executor.receive(back, round)

    def _valid(self, outcomes: Iterable[Outcome], sender: str, played: Played) -> dict[int, Message]:
        """Note outcomes and return their valid messages by the id of whose they are."""
        found: dict[int, Message] = {}
        for outcome in outcomes:
            played.note(outcome)
            if outcome.message is None:
                continue
            try:
                _check(self._method, outcome.message, sender.format(outcome.client_id), outcome.client_id, self._task)
                found[outcome.client_id] = outcome.message
            except InvalidMessage as error:
                played.missing[outcome.client_id] = str(error)  # its model is not trained in this turn either
        return found


def held_snapshots(kind: type[Kept], tensors: Mapping[str, Tensor]) -> dict[int, Kept]:
    """Return what stale peers keep of each other, by id, from what `StalePeerExchange.tensors` stored."""
    senders = sorted({int(name.split("/")[1]) for name in tensors if name.startswith("held/")})
    return {peer: kind.from_tensors(below(f"held/{peer}/", tensors)) for peer in senders}


def _snapshots(
    method: PeerMethod[Any], executor: Executor, task: Task, peers: list[int], round: int, played: Played
) -> dict[int, Message]:
    """Return the valid snapshots of peers; who sends another is noted as missing."""
    valid: dict[int, Message] = {}
    for peer, message in executor.snapshots(peers, round).items():
        try:
            _check(method, message, f"peer {peer}", peer, task)
            valid[peer] = message
        except InvalidMessage as error:
            played.refuse(peer, str(error))
    return valid


def _check(
    method: PeerMethod[Any] | AggregatorMethod[Any], message: Message, sender: str, owner: int, task: Task
) -> None:
    """Refuse a message that is not as its schema says, or that the method cannot use.

    Raises:
        InvalidMessage: One sentence that names the sender.
    """
    message.check(sender, C=task.num_classes)
    try:
        method.check(message, owner, task)
    except InvalidMessage as error:
        raise InvalidMessage(f"{sender} sent what cannot be used: {error}") from error
