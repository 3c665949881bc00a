"""The executor of several processes on one machine: each owns some of the clients, and only messages cross."""

import pickle
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import get_context
from typing import Any

from torch import Tensor

from motley.data.dataset import Dataset
from motley.data.wording import listed
from motley.draws import Draws
from motley.engine.config import RunConfig
from motley.engine.crew import Crew
from motley.engine.devices import worker_devices
from motley.engine.executor import Outcome
from motley.engine.packing import Bundle, Packed
from motley.engine.placement import share_clients
from motley.engine.worker import Duty, Reply, answer, begin
from motley.errors import InvalidConfig, MotleyWarning, RunFailed
from motley.messages import Message
from motley.models.assign import ModelFactory
from motley.training.evaluation import Score


class WorkerExecutor:
    """Clients in long-lived processes, one pool of one process each.

    Args:
        duties: What each worker is given.
        costs: Seconds of training of every client; the costliest clients of a worker are begun first.
    """

    def __init__(self, duties: Sequence[Duty], costs: Mapping[int, float]) -> None:
        self._costs = costs
        self._begun: dict[int, Future[Reply]] = {}
        self._home = {client: number for number, duty in enumerate(duties) for client in duty.client_ids}
        context = get_context("spawn")
        self._pools = [
            ProcessPoolExecutor(max_workers=1, mp_context=context, initializer=begin, initargs=(duty,))
            for duty in duties
        ]

    def start(self, draws: Draws) -> None:
        self._ask_all("start", draws)

    def train(self, received: Mapping[int, Message], round: int, draws: Draws) -> Iterator[Outcome]:
        numbers = self._mail({client: [message] for client, message in received.items()})
        work = {client: ("train", client, numbers[id(message)], round, draws) for client, message in received.items()}
        return self._outcomes(work)

    def snapshots(self, ids: Iterable[int], round: int) -> dict[int, Message]:
        asked: dict[int, list[int]] = {}
        for client in ids:
            asked.setdefault(self._home[client], []).append(client)
        futures = {worker: self._submit(worker, "snapshots", own, round) for worker, own in asked.items()}
        found: dict[int, Message] = {}
        for worker, future in futures.items():
            for bundle in self._value(worker, future):
                found |= bundle.to_messages(asked[worker])
        return dict(sorted(found.items()))

    def learn(self, inboxes: Mapping[int, Mapping[int, Message]], round: int, draws: Draws) -> Iterator[Outcome]:
        numbers = self._mail({client: list(inbox.values()) for client, inbox in inboxes.items()})
        work = {
            client: ("learn", client, {peer: numbers[id(message)] for peer, message in inbox.items()}, round, draws)
            for client, inbox in inboxes.items()
        }
        return self._outcomes(work)

    def send(self, ids: Iterable[int], round: int, draws: Draws) -> Iterator[Outcome]:
        return self._outcomes({client: ("send", client, round, draws) for client in ids})

    def aggregate(self, client_id: int, inbox: Mapping[int, Message], round: int, draws: Draws) -> list[Outcome]:
        numbers = self._mail({client_id: list(inbox.values())})
        read = {peer: numbers[id(message)] for peer, message in inbox.items()}
        found = self._value(self._home[client_id], self._ask(client_id, "aggregate", client_id, read, round, draws))
        return [_unpacked(*one) for one in found]

    def receive(self, messages: Mapping[int, Message], round: int) -> None:
        numbers = self._mail({client: [message] for client, message in messages.items()})
        asked = {
            client: self._ask(client, "receive", client, numbers[id(message)], round)
            for client, message in messages.items()
        }
        for client, future in asked.items():
            self._value(self._home[client], future)

    def scores(self, views: Mapping[int, Message | None]) -> dict[int, dict[str, Score]]:
        numbers = self._mail({client: [view] for client, view in views.items() if view is not None})
        asked = {
            client: self._ask(client, "scores", client, None if view is None else numbers[id(view)])
            for client, view in views.items()
        }
        return {client: self._value(self._home[client], future) for client, future in asked.items()}

    def tensors(self) -> dict[str, Tensor]:
        for future in self._begun.values():  # after an interrupt: what has not begun need not begin
            future.cancel()
        found: dict[str, Tensor] = {}
        for packed in self._ask_all("tensors"):
            found |= packed.to_tensors()
        return found

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        owned: list[dict[str, Tensor]] = [{} for _ in self._pools]
        for name, tensor in tensors.items():
            kind, _, rest = name.partition("/")
            if kind == "client":
                owned[self._home[int(rest.partition("/")[0])]][name] = tensor
        self._ask_each("restore", [(Packed.tensors(own),) for own in owned])

    def finish_round(self) -> None:
        self._ask_all("finish round")

    def close(self) -> None:
        for pool in self._pools:
            pool.shutdown(wait=True, cancel_futures=True)

    def _mail(self, wanted: Mapping[int, Sequence[Message]]) -> dict[int, int]:
        """Send every worker the messages that its clients will read, each once; return their numbers by identity."""
        numbers: dict[int, int] = {}
        sent: dict[int, Message] = {}
        needed: list[set[int]] = [set() for _ in self._pools]
        for client, messages in wanted.items():
            for message in messages:
                number = numbers.setdefault(id(message), len(numbers))
                sent[number] = message
                needed[self._home[client]].add(number)
        bundles = list(Bundle.of(sent))
        self._ask_each("mail", [([one for one in bundles if own & one.parts.keys()], own) for own in needed])
        return numbers

    def _outcomes(self, work: Mapping[int, tuple[Any, ...]]) -> Iterator[Outcome]:
        order = sorted(work, key=self._costliest_first)
        self._begun = {client: self._ask(client, *work[client]) for client in order}
        for client in work:
            wait([self._begun[client]])
            if _lost(self._begun[client]):
                at_work = next(one for one, future in self._begun.items() if _lost(future))
                raise RunFailed(f"the worker process of client {at_work}, which was at work, {LOST}")
            yield _unpacked(*self._value(self._home[client], self._begun.pop(client)))

    def _costliest_first(self, client: int) -> tuple[float, int]:
        return -self._costs[client], client

    def _ask(self, client: int, name: str, *arguments: Any) -> "Future[Reply]":
        return self._submit(self._home[client], name, *arguments)

    def _ask_all(self, name: str, *arguments: Any) -> list[Any]:
        futures = [self._submit(worker, name, *arguments) for worker in range(len(self._pools))]
        return [self._value(worker, future) for worker, future in enumerate(futures)]

    def _ask_each(self, name: str, arguments: Sequence[tuple[Any, ...]]) -> None:
        futures = [self._submit(worker, name, *own) for worker, own in enumerate(arguments)]
        for worker, future in enumerate(futures):
            self._value(worker, future)

    def _submit(self, worker: int, name: str, *arguments: Any) -> "Future[Reply]":
        try:
            return self._pools[worker].submit(answer, name, *arguments)
        except BrokenProcessPool as error:
            raise RunFailed(f"{self._owner(worker)} {LOST}") from error

    def _value(self, worker: int, future: "Future[Reply]") -> Any:
        """Wait for a reply, tell its warnings again, and return what it says."""
        try:
            reply = future.result()
        except BrokenProcessPool as error:
            raise RunFailed(f"{self._owner(worker)} {LOST}") from error
        for text in reply.warnings:
            warnings.warn(text, MotleyWarning, stacklevel=2)
        return reply.value

    def _owner(self, worker: int) -> str:
        own = [str(client) for client, home in self._home.items() if home == worker]
        return f"the worker process of {'client' if len(own) == 1 else 'clients'} {listed(own)}"


LOST = (
    "ended without a word: stopped by the system for want of memory (fewer --workers need less), or it never began, "
    "because the script that started the run has no 'if __name__ == \"__main__\":'"
)


def _unpacked(outcome: Outcome, packed: Packed | None) -> Outcome:
    return replace(outcome, message=None if packed is None else packed.to_message())


def _lost(future: "Future[Reply]") -> bool:
    return future.done() and isinstance(future.exception(), BrokenProcessPool)


def hire(
    config: RunConfig, crew: Crew, costs: Mapping[int, float], dataset: Dataset | None, factory: ModelFactory | None
) -> WorkerExecutor:
    """Return the executor of a crew of several workers; the processes start when they are first asked something.

    Raises:
        InvalidConfig: The models' factory cannot be sent to another process.
    """
    try:
        pickle.dumps(factory)  # only to see whether it can be; it goes to processes that this one starts
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise InvalidConfig(
            f"run.workers is {crew.workers}, but the models' factory cannot be sent to another process ({error}); make "
            "it a function of a module, or take --workers 1"
        ) from error
    shares = share_clients(costs, crew.workers)
    places = worker_devices(config.settings.run.device, crew.workers)
    return WorkerExecutor(
        [
            Duty(_on_device(config, place), own, crew.threads, dataset, factory)
            for own, place in zip(shares, places, strict=True)
        ],
        costs,
    )


def _on_device(config: RunConfig, device: str) -> RunConfig:
    settings = config.settings
    return replace(config, settings=replace(settings, run=replace(settings.run, device=device)))
