"""The executor of one process: it owns the clients and works them off one after the other.

What an executor must offer is `Executor`; the rounds and the exchanges know nothing else. No result depends on the
order in which clients are worked off.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from motley.data.shards import Samples
from motley.draws import Draws
from motley.errors import InvalidMessage, NonFiniteLoss, RunFailed
from motley.federation import Client, Value
from motley.messages import Message
from motley.methods.contracts import AggregatorMethod, PeerMethod, Returned, ServerMethod
from motley.methods.registry import Method
from motley.training.evaluation import Score, evaluate_all


@dataclass(frozen=True)
class Outcome:
    """What came of one client's round.

    Attributes:
        client_id: Whose.
        message: Its upload; None if it is left out.
        missing: Why it is left out, or None.
        journal: What was measured on the client.
        seconds: Time of its round.
    """

    client_id: int
    message: Message | None
    missing: str | None
    journal: Mapping[str, Value]
    seconds: float


class Executor(Protocol):
    """Whoever owns the clients."""

    def start(self, draws: Draws) -> None:
        """Prepare the clients before round 1."""

    def train(self, received: Mapping[int, Message], round: int, draws: Draws) -> Iterator[Outcome]:
        """Work off the clients of a server method; `received` is what each is sent."""

    def snapshots(self, ids: Iterable[int], round: int) -> dict[int, Message]:
        """Return what the peers of a round send at its start."""

    def learn(self, inboxes: Mapping[int, Mapping[int, Message]], round: int, draws: Draws) -> Iterator[Outcome]:
        """Work off the peers of a round, each with its inbox."""

    def send(self, ids: Iterable[int], round: int, draws: Draws) -> Iterator[Outcome]:
        """Let the senders of a turn make what they send to its aggregator."""

    def aggregate(self, client_id: int, inbox: Mapping[int, Message], round: int, draws: Draws) -> list[Outcome]:
        """Let an aggregator work on what it was sent; the outcomes are its own and those of what goes back."""

    def receive(self, messages: Mapping[int, Message], round: int) -> None:
        """Give senders what came back from an aggregator."""

    def scores(self, views: Mapping[int, Message | None]) -> dict[int, dict[str, Score]]:
        """Evaluate clients on all sets they have; `views` is what their inference sees."""

    def tensors(self) -> dict[str, Tensor]:
        """Return all that the clients own, by name, as after the last finished round."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Give the clients what `tensors` returned."""

    def finish_round(self) -> None:
        """Forget what would be needed to undo the round."""

    def close(self) -> None:
        """Give back what the executor holds beyond its clients."""


class LocalExecutor:
    """All clients in this process.

    Args:
        clients: In the order of their ids.
        method: The method that runs.
        common_test: The test set of all, if the protocol has one.
    """

    def __init__(self, clients: list[Client], method: Method, common_test: Samples | None) -> None:
        self._clients = {client.id: client for client in clients}
        self._method = method
        self._common_test = common_test
        self._before: dict[int, dict[str, Tensor]] = {}

    def start(self, draws: Draws) -> None:
        if isinstance(self._method, PeerMethod | AggregatorMethod):
            for client in self._clients.values():
                self._method.start(client, draws)

    def train(self, received: Mapping[int, Message], round: int, draws: Draws) -> Iterator[Outcome]:
        method = self._method
        assert isinstance(method, ServerMethod)
        for client_id, message in received.items():
            client = self._begin(client_id)
            yield _attempt(
                client, round, lambda client=client, message=message: _upload(method, client, message, round, draws)
            )

    def snapshots(self, ids: Iterable[int], round: int) -> dict[int, Message]:
        method = self._method
        assert isinstance(method, PeerMethod)
        return {client_id: method.snapshot(self._clients[client_id], round) for client_id in ids}

    def learn(self, inboxes: Mapping[int, Mapping[int, Message]], round: int, draws: Draws) -> Iterator[Outcome]:
        method = self._method
        assert isinstance(method, PeerMethod)
        for client_id, inbox in inboxes.items():
            client = self._begin(client_id)
            yield _attempt(
                client, round, lambda client=client, inbox=inbox: method.peer_round(client, inbox, round, draws)
            )

    def send(self, ids: Iterable[int], round: int, draws: Draws) -> Iterator[Outcome]:
        method = self._method
        assert isinstance(method, AggregatorMethod)
        for client_id in ids:
            client = self._begin(client_id)
            yield _attempt(client, round, lambda client=client: method.snapshot(client, round, draws))

    def aggregate(self, client_id: int, inbox: Mapping[int, Message], round: int, draws: Draws) -> list[Outcome]:
        method = self._method
        assert isinstance(method, AggregatorMethod)
        client = self._begin(client_id)
        back: dict[int, Returned[Any]] = {}
        own = _attempt(client, round, lambda: back.update(method.aggregate(client, inbox, round, draws)))
        return [own, *(Outcome(peer, one.message, one.missing, one.journal, 0.0) for peer, one in back.items())]

    def receive(self, messages: Mapping[int, Message], round: int) -> None:
        method = self._method
        assert isinstance(method, AggregatorMethod)
        for client_id, message in messages.items():
            method.receive(self._clients[client_id], message, round)

    def scores(self, views: Mapping[int, Message | None]) -> dict[int, dict[str, Score]]:
        return {client_id: self._score(self._clients[client_id], view) for client_id, view in views.items()}

    def tensors(self) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        for client in self._clients.values():
            own = self._before.get(client.id) or _tensors(client)
            found |= {f"client/{client.id}/{name}": tensor for name, tensor in own.items()}
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        for client in self._clients.values():
            prefix = f"client/{client.id}/"
            own = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
            _restore(client, own)

    def finish_round(self) -> None:
        self._before.clear()

    def close(self) -> None:
        pass

    def _begin(self, client_id: int) -> Client:
        """Keep what the client had before the round, so that an interrupt can leave a whole round behind."""
        client = self._clients[client_id]
        if client_id not in self._before:  # a client may have several turns in a round
            self._before[client_id] = {name: tensor.detach().clone() for name, tensor in _tensors(client).items()}
        client.journal.clear()
        return client

    def _score(self, client: Client, view: Message | None) -> dict[str, Score]:
        method, held = self._method, view if client.evaluation.state == "server" else None
        client = replace(client, model=client.for_inference)

        def predict(x: Tensor) -> dict[str, Tensor]:
            if isinstance(method, ServerMethod):
                return {"": method.predict(client, held, x), **method.other_predictions(client, held, x)}
            return {"": method.predict(client, x), **method.other_predictions(client, x)}

        sets = {
            "test_local": client.shard.test,
            "validation": client.shard.validation,
            "test_global": self._common_test,
        }
        found: dict[str, Score] = {}
        for name, samples in sets.items():
            if samples is None or not len(samples):
                continue
            scores = evaluate_all(
                client.model,
                predict,
                samples,
                client.shard.normalization,
                num_classes=client.num_classes,
                batch_size=client.evaluation.batch_size,
            )
            found |= {f"{name}:{other}" if other else name: score for other, score in scores.items()}
        return found


def _upload(
    method: ServerMethod[Any, Any, Any], client: Client, received: Message, round: int, draws: Draws
) -> Message:
    message: Message = method.client_round(client, received, round, draws)
    message.check(f"client {client.id}", C=client.num_classes, d=client.model.feature_width)
    return message


def _attempt(client: Client, round: int, work: Any) -> Outcome:
    """Do a client's work; what is not finite leaves the client out of the round, any other fault ends the run."""
    began = time.perf_counter()
    message, missing = None, None
    try:
        message = work()
    except (NonFiniteLoss, InvalidMessage) as error:
        missing = str(error)
    except Exception as error:
        text = f"client {client.id} failed in round {round}: {type(error).__name__}: {error}"
        raise RunFailed(text) from error
    return Outcome(client.id, message, missing, dict(client.journal), time.perf_counter() - began)


def _tensors(client: Client) -> dict[str, Tensor]:
    model = {f"model/{name}": tensor for name, tensor in client.model.state_dict().items()}
    return model | {f"memory/{name}": tensor for name, tensor in client.memory.items()}


def _restore(client: Client, tensors: Mapping[str, Tensor]) -> None:
    groups: dict[str, dict[str, Tensor]] = {"model": {}, "memory": {}}
    for name, tensor in tensors.items():
        group, _, key = name.partition("/")
        groups[group][key] = tensor
    client.model.load_state_dict(groups["model"])
    device = next(iter(client.model.state_dict().values()), torch.empty(0)).device
    client.memory.clear()
    client.memory.update({name: tensor.to(device) for name, tensor in groups["memory"].items()})
