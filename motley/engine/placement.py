"""Which worker owns which clients: what a round of each costs on this machine is measured, and shared out evenly.

Multiply-adds say little here: a depthwise convolution takes ten times as long for one as a product of large matrices.
Numbers do not depend on the placement, so that a measurement may decide it.
"""

import copy
import time
from collections.abc import Mapping, Sequence

import torch

from motley.engine.threads import threads
from motley.federation import Client
from motley.training.precision import trial_step

TIMED_STEPS = 2  # of which the faster one counts, after one that prepares kernels and memory


def measured_costs(clients: Sequence[Client], num_threads: int) -> dict[int, float]:
    """Return the seconds of training in a round of each client, by id, from timed steps of every architecture.

    Args:
        clients: All clients; their models are not changed.
        num_threads: Of torch, as the workers have.
    """
    known: dict[str, float] = {}
    costs = {}
    with threads(num_threads):
        for client in clients:
            text = str(client.model)
            if text not in known:
                known[text] = _step_seconds(client)
            passes = client.training.local_epochs * len(client.shard.train) / client.training.batch_size
            costs[client.id] = passes * known[text]
    return costs


def _step_seconds(client: Client) -> float:
    """Return the seconds of a training step on one full batch."""
    model = copy.deepcopy(client.model).train()
    device = next(model.parameters()).device
    x = torch.zeros(client.training.batch_size, *client.task.input_shape, device=device)
    y = torch.zeros(len(x), dtype=torch.int64, device=device)
    taken = []
    for _ in range(TIMED_STEPS + 1):
        began = time.perf_counter()
        trial_step(model, x, y, client.train_dtype)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        taken.append(time.perf_counter() - began)
    return min(taken[1:])


def share_clients(costs: Mapping[int, float], workers: int) -> list[tuple[int, ...]]:
    """Give every worker clients of about the same total cost: the costliest first, each to who has least so far."""
    own: list[list[int]] = [[] for _ in range(workers)]
    load = [0.0] * workers
    for client in sorted(costs, key=lambda one: (-costs[one], one)):
        least = load.index(min(load))
        own[least].append(client)
        load[least] += costs[client]
    return [tuple(sorted(clients)) for clients in own]
