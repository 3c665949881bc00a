"""One worker process: it builds the federation for itself and owns the clients that it was given.

What runs here is called by name through the process pool of `workers.py`; the pool keeps one process a worker, so what
`begin` makes stands in this module for the life of the process.
"""

import os
import signal
import threading
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing import connection, parent_process
from typing import Any

import torch

from motley.data.dataset import Dataset
from motley.draws import Draws
from motley.engine.config import RunConfig
from motley.engine.executor import LocalExecutor
from motley.engine.faults import make_method
from motley.engine.packing import Bundle, Packed
from motley.engine.setup import build_federation
from motley.errors import MotleyWarning
from motley.messages import Message
from motley.models.assign import ModelFactory


@dataclass(frozen=True)
class Duty:
    """What a worker is given when it starts.

    Attributes:
        config: The run's resolved configuration.
        client_ids: Its clients.
        threads: How many threads of torch it may use.
        dataset, factory: Data and models in memory, if the configuration names none.
    """

    config: RunConfig
    client_ids: tuple[int, ...]
    threads: int
    dataset: Dataset | None
    factory: ModelFactory | None


@dataclass(frozen=True)
class Reply:
    """What an outcome or an answer is on its way back.

    Attributes:
        value: Plain values; messages and tensors packed.
        warnings: Texts of motley's warnings on the way.
    """

    value: Any
    warnings: tuple[str, ...]


@dataclass
class _Owned:
    executor: LocalExecutor
    mail: dict[int, Message] = field(default_factory=dict)


_owned: list[_Owned] = []  # the one thing that this process holds


def begin(duty: Duty) -> None:
    """Prepare this process; it is the pool's initializer."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # the run's own process decides when to stop, and ends this one
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(duty.threads)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the run's own process builds the same federation and has told them
        federation = build_federation(duty.config, dataset=duty.dataset, factory=duty.factory)
    own = [client for client in federation.clients if client.id in duty.client_ids]
    common = federation.data.common_test
    method = make_method(duty.config, federation)
    executor = LocalExecutor(own, method, common.to(federation.device) if common is not None else None)
    _owned.append(_Owned(executor))


def answer(name: str, *arguments: Any) -> Reply:
    """Do what a question names."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MotleyWarning)
        value = QUESTIONS[name](_owned[0], *arguments)
    texts = [str(one.message) for one in caught if issubclass(one.category, MotleyWarning)]
    return Reply(value, tuple(texts))


def _start(own: _Owned, draws: Draws) -> None:
    own.executor.start(draws)


def _mail(own: _Owned, bundles: Sequence[Bundle], wanted: Collection[int]) -> None:
    """Take the messages of a step that this worker's clients read, by number; several clients may read one."""
    own.mail = {}
    for bundle in bundles:
        own.mail |= bundle.to_messages(wanted)


def _train(own: _Owned, client_id: int, number: int, round: int, draws: Draws) -> Any:
    return _packed(next(own.executor.train({client_id: own.mail[number]}, round, draws)))


def _learn(own: _Owned, client_id: int, inbox: Mapping[int, int], round: int, draws: Draws) -> Any:
    messages = {peer: own.mail[number] for peer, number in inbox.items()}
    return _packed(next(own.executor.learn({client_id: messages}, round, draws)))


def _send(own: _Owned, client_id: int, round: int, draws: Draws) -> Any:
    return _packed(next(own.executor.send([client_id], round, draws)))


def _aggregate(own: _Owned, client_id: int, inbox: Mapping[int, int], round: int, draws: Draws) -> Any:
    messages = {peer: own.mail[number] for peer, number in inbox.items()}
    return [_packed(outcome) for outcome in own.executor.aggregate(client_id, messages, round, draws)]


def _receive(own: _Owned, client_id: int, number: int, round: int) -> None:
    own.executor.receive({client_id: own.mail[number]}, round)


def _snapshots(own: _Owned, ids: Sequence[int], round: int) -> list[Bundle]:
    return list(Bundle.of(own.executor.snapshots(ids, round)))


def _scores(own: _Owned, client_id: int, number: int | None) -> Any:
    view = None if number is None else own.mail[number]
    return own.executor.scores({client_id: view})[client_id]


def _tensors(own: _Owned) -> Packed:
    return Packed.tensors(own.executor.tensors())


def _restore(own: _Owned, packed: Packed) -> None:
    own.executor.restore(packed.to_tensors())


def _finish_round(own: _Owned) -> None:
    own.executor.finish_round()
    own.mail.clear()


QUESTIONS: dict[str, Callable[..., Any]] = {
    "start": _start,
    "mail": _mail,
    "train": _train,
    "learn": _learn,
    "send": _send,
    "aggregate": _aggregate,
    "receive": _receive,
    "snapshots": _snapshots,
    "scores": _scores,
    "tensors": _tensors,
    "restore": _restore,
    "finish round": _finish_round,
}


def _packed(outcome: Any) -> Any:
    message = outcome.message
    return replace(outcome, message=None), None if message is None else Packed.message(message)


def _end_with_parent() -> None:
    """End this process when the run's own one is gone, however that ended; nobody else would (case E4)."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)
