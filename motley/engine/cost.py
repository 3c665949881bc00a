"""What methods cost beyond Local: rounds are played in this process, and the last one is counted.

Messages are the real ones. Work is split by what it was spent on (`motley.record.cost.Work`): a client's model is asked
by the loop of training, by teachers, or by anything else, which is a pass; what no client does is the server's. Local
plays the same rounds with the same draws, and what it needs is taken off, client by client.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from motley.data.dataset import Dataset
from motley.draws import Draws
from motley.engine.config import RunConfig
from motley.engine.exchange import make_exchange
from motley.engine.executor import LocalExecutor
from motley.engine.flops import FlopMeter, Place
from motley.engine.participation import draw_participants
from motley.engine.played import Played
from motley.engine.setup import Federation, build_federation
from motley.engine.threads import choose_threads, threads
from motley.engine.variants import Row
from motley.errors import RunFailed
from motley.federation import Client
from motley.messages import Message
from motley.methods.contracts import ServerMethod
from motley.methods.registry import Method, find_method
from motley.record.cost import CostStudy, Flops, Footprint, MethodCost, Sent, Work
from motley.training.inputs import Normalizer
from motley.training.modes import evaluation_mode

ASKED = 32  # samples whose inference is counted: the count is proportional to their number
CLIENT_VERBS = ("client_round", "snapshot", "peer_round", "aggregate", "receive")  # of all contracts, on a client

Measure = Callable[[RunConfig, int], Footprint]


@dataclass(frozen=True)
class _Measured:
    """What was counted of one method.

    Attributes:
        federation: In which.
        played: The last round.
        spent: By client and part.
        asked: The inference of each participant, for one sample.
    """

    federation: Federation
    played: Played
    spent: Mapping[Place, Flops]
    asked: Mapping[int, Flops]

    def trained_on(self, client_id: int) -> int:
        """Return how many samples the loop of training used in the round."""
        told = self.played.journals[client_id].get("train")
        return int(told["samples"]) if isinstance(told, Mapping) else 0  # type: ignore[arg-type]


def measure_costs(
    rows: Iterable[Row],
    rounds: int,
    *,
    dataset: Dataset | None = None,
    footprint: Measure | None = None,
    began: Callable[[str], None] = lambda _: None,
) -> CostStudy:
    """Play rounds of every row and of Local, and return what the last of them cost.

    Args:
        rows: Methods and variants; their federation is one, or the rows say what they change in it.
        rounds: How many; methods that start from nothing send all they do from round 2 on.
        dataset: Data in memory instead of those that the configuration names.
        footprint: Measures seconds and memory of the last of so many rounds; None to leave that out.
        began: Called with the name of the row that begins.

    Raises:
        RunFailed: A client had to be left out of the measured round.
        MotleyError: What was asked for cannot be done.
    """
    rows, locals_ = tuple(rows), dict[str, tuple[_Measured, Footprint | None]]()
    costs = []
    for row in rows:
        began(row.name)
        config, key = _warm(row.config, rounds), repr(row.config.settings)
        found = _measure(config, rounds, dataset)
        if key not in locals_:
            began("local")
            alone = _local(config)
            locals_[key] = _measure(alone, rounds, dataset), footprint(alone, rounds) if footprint else None
        base = locals_[key][0]
        costs.append(
            MethodCost(
                row.name,
                row.config.method,
                _sent(found.played),
                _work(found, base) - _work(base, base),
                footprint(config, rounds) if footprint else None,
            )
        )
    base, alone_footprint = next(iter(locals_.values()))
    settings, widths = rows[0].config.settings, {client.model.feature_width for client in base.federation.clients}
    note = "Some rows change the federation: what Local needs is given for the first row, and taken off for each."
    return CostStudy(
        models=settings.models.pool,
        classes=base.federation.task.num_classes,
        feature_width=widths.pop() if len(widths) == 1 else None,
        clients=base.federation.task.num_clients,
        participants=len(base.played.participants),
        batch_size=settings.train.batch_size,
        round=rounds,
        local=_work(base, base),
        local_footprint=alone_footprint,
        methods=tuple(costs),
        notes=(note,) if len(locals_) > 1 else (),
    )


def play_rounds(
    config: RunConfig,
    federation: Federation,
    method: Method,
    rounds: int,
    *,
    last: Callable[[Callable[[], Played]], Played] = lambda play: play(),
) -> tuple[Played, Mapping[int, Message | None]]:
    """Play rounds without evaluation or records; return the last one, and what each client's inference then sees.

    Args:
        config: What is run.
        federation: Its federation.
        method: Its method.
        rounds: How many, at least 1.
        last: Plays the last round.

    Raises:
        RunFailed: A client had to be left out of the last round.
    """
    run, entry = config.settings.run, config.entry
    draws = Draws(run.seed)
    executor = LocalExecutor(federation.clients, method, None)
    exchange = make_exchange(run, entry, method, executor, federation.task, federation.start_draws(config))
    played = Played([])
    for round in range(1, rounds + 1):
        number = federation.participants_per_round
        participants = draw_participants(number, federation.task.num_clients, draws, round)
        play = partial(exchange.play, round, participants, draws)
        played = last(play) if round == rounds else play()
        executor.finish_round()
        exchange.finish_round()
    if played.missing:
        client, reason = next(iter(played.missing.items()))
        hint = "a smaller --lr may help, and changes no count"
        raise RunFailed(f"client {client} was left out of round {rounds} of {config.method}: {reason}; {hint}")
    return played, exchange.views()


def _warm(config: RunConfig, rounds: int) -> RunConfig:
    """Return a configuration whose warm-up, if it has one, ends before the round that is measured."""
    asked = getattr(config.options, "warmup_rounds", 0)
    return replace(config, options=replace(config.options, warmup_rounds=rounds - 1)) if asked >= rounds else config


def _local(config: RunConfig) -> RunConfig:
    """Return Local in the same federation."""
    run = replace(config.settings.run, exchange="auto")
    return RunConfig("local", find_method("local").options(), replace(config.settings, run=run))


def _measure(config: RunConfig, rounds: int, dataset: Dataset | None) -> _Measured:
    federation = build_federation(config, dataset=dataset)
    meter, method = FlopMeter(), config.entry.method(config.options)
    _count_verbs(method, meter)

    def counted(play: Callable[[], Played]) -> Played:
        for client in federation.clients:
            client.part = meter.part
        with meter:
            return play()

    with threads(choose_threads(config.settings.run.threads, federation.clients)):
        played, views = play_rounds(config, federation, method, rounds, last=counted)
        asked = {
            client_id: _inference(method, federation.clients[client_id], views[client_id])
            for client_id in played.participants
        }
    return _Measured(federation, played, meter.spent(), asked)


def _count_verbs(method: Method, meter: FlopMeter) -> None:
    """Have all that a method does on a client counted as that client's; what it is no part of is a pass."""

    def on_client(verb: Callable[..., Any], client: Client, *arguments: Any) -> Any:
        with meter.part("passes", client.id):
            return verb(client, *arguments)

    for name in CLIENT_VERBS:
        if hasattr(method, name):
            setattr(method, name, partial(on_client, getattr(method, name)))


def _inference(method: Method, client: Client, view: Message | None) -> Flops:
    """Return the work of the headline's predictor for one sample; none for a client without samples."""
    samples = client.shard.train
    x = Normalizer.of(client.shard.normalization, samples.x)(samples.x[:ASKED])
    if not len(x):
        return Flops()
    client = replace(client, model=client.for_inference)

    def ask() -> Tensor:
        if isinstance(method, ServerMethod):
            return method.predict(client, view if client.evaluation.state == "server" else None, x)
        return method.predict(client, x)

    meter = FlopMeter()
    with torch.inference_mode(), evaluation_mode(client.model):
        ask()  # copies of received models are loaded now
        with meter:
            ask()
    return sum(meter.spent().values(), Flops()) * (1 / len(x))


def _sent(played: Played) -> Sent:
    traffic = [played.traffic[client] for client in played.participants]
    return Sent(
        up_scalars=tuple(one.up_scalars for one in traffic),
        down_scalars=tuple(one.down_scalars for one in traffic),
        up_bytes=tuple(one.up_bytes for one in traffic),
        down_bytes=tuple(one.down_bytes for one in traffic),
    )


def _work(found: _Measured, base: _Measured) -> Work:
    """Return what was counted for a batch: by the samples that Local trains on, as a mean over those that do."""
    training = found.federation.clients[0].training
    clients = [client for client in found.played.participants if base.trained_on(client)]

    def mean(amounts: Iterable[Flops], scale: float = training.batch_size) -> Flops:
        return sum(amounts, Flops()) * (scale / max(1, len(clients)))

    def of(part: str) -> Flops:
        return mean(found.spent.get((client, part), Flops()) * (1 / base.trained_on(client)) for client in clients)

    return Work(
        forward=of("training"),
        backward=of("backward"),
        teachers=of("teachers"),
        passes=of("passes"),
        inference=mean(found.asked[client] for client in clients),
        server=found.spent.get((None, "server"), Flops()),
    )
