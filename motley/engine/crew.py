"""How many processes work on a run, and how many threads each has."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import joblib

from motley.engine.threads import choose_threads, multiply_adds
from motley.errors import InvalidConfig
from motley.federation import Client
from motley.options import RunOptions

# A process needs some five seconds to start and to build the federation; what takes a minute on one core repays that.
WORTH_WORKERS_S = 60.0
MULTIPLY_ADDS_PER_S = 20e9  # of one core in float32, as these models reach it; only its order of magnitude matters
PER_SAMPLE = 100_000  # multiply-adds' worth of dispatch for a sample of the smallest models


@dataclass(frozen=True)
class Crew:
    """Processes and threads of a run; workers x threads is at most the number of cores that it may use (case E3).

    Attributes:
        workers: Processes that own clients; 1: the run's own process.
        threads: Threads of torch in each.
    """

    workers: int
    threads: int


def client_costs(clients: Sequence[Client]) -> dict[int, float]:
    """Return the expected work of a client's round, in multiply-adds, by id: three passes over its training part."""
    known: dict[str, int] = {}
    costs = {}
    for client in clients:
        text = str(client.model)
        if text not in known:
            known[text] = multiply_adds(client.model, client.task.input_shape)
        passes = 3 * client.training.local_epochs
        costs[client.id] = float(passes * len(client.shard.train) * (known[text] + PER_SAMPLE))
    return costs


def choose_crew(options: RunOptions, clients: list[Client], costs: Mapping[int, float], per_round: int) -> Crew:
    """Return what was asked for; `auto` takes a process for every core if that repays their start.

    Two processes of one thread finish more clients than one of two, except where all models are large and alike
    (docs/performance.md).

    Args:
        options: The options of the run.
        clients: All clients.
        costs: Their expected work of a round.
        per_round: How many take part in a round.

    Raises:
        InvalidConfig: More workers x threads were asked for than there are cores.
    """
    cores = usable_cores()
    alone = choose_threads(options.threads, clients)
    if isinstance(options.workers, int):
        workers = options.workers
    else:
        expected_s = sum(costs.values()) / len(clients) * per_round * options.rounds / MULTIPLY_ADDS_PER_S
        on_cpu = next(clients[0].model.parameters()).device.type == "cpu"
        room = cores // options.threads if isinstance(options.threads, int) else cores
        workers = max(1, min(room, per_round)) if on_cpu and expected_s >= WORTH_WORKERS_S else 1
    workers = min(workers, len(clients))
    if workers == 1:
        return Crew(1, alone)
    threads = options.threads if isinstance(options.threads, int) else min(alone, max(1, cores // workers))
    if workers * threads > cores:
        raise InvalidConfig(
            f"run.workers is {workers} with {threads} {'thread' if threads == 1 else 'threads'} each, but this process "
            f"may use {cores} {'core' if cores == 1 else 'cores'}; ask for at most {max(1, cores // threads)} workers"
        )
    return Crew(workers, threads)


def usable_cores() -> int:
    """Return the cores that this process may use: affinity, container limits and OMP_NUM_THREADS are obeyed."""
    cores = int(joblib.cpu_count())
    limit = os.environ.get("OMP_NUM_THREADS", "")
    return min(cores, int(limit)) if limit.isdecimal() and int(limit) else cores
