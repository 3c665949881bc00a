"""A round of CRAD against plain PyTorch: 10 clients of crad3, precision as a measurement chooses it.

    python benchmarks/crad_round.py

The other side is what an unprepared program computes: for every client one training pass and nine forward passes of its
training part, float32, contiguous, models as they are. Both sides run in turn; the ratio is that of processor times.
"""

import copy
import statistics
import time

import torch
from torch.nn.functional import cross_entropy

from motley.draws import Draws
from motley.engine.bench import DRAWS, Work, pictures
from motley.engine.config import ConfigFile, resolve
from motley.engine.executor import LocalExecutor
from motley.engine.setup import Federation, build_federation

CLIENTS, SAMPLES, REPEATS = 10, 48, 3


def bare(federation: Federation) -> None:
    models = [copy.deepcopy(client.model).to(memory_format=torch.contiguous_format) for client in federation.clients]
    for own, client in zip(models, federation.clients, strict=True):
        x, y = (client.shard.train.x.float() / 255 - 0.5) / 0.5, client.shard.train.y
        with torch.inference_mode():
            for peer in models:
                if peer is not own:
                    peer.eval()(x)
        own.train()
        optimizer = torch.optim.SGD(own.parameters(), lr=0.01)
        cross_entropy(own(x), y).backward()
        optimizer.step()


def crad(federation: Federation, executor: LocalExecutor, round: int) -> None:
    ids = [client.id for client in federation.clients]
    sent = executor.snapshots(ids, round)
    inboxes = {own: {peer: message for peer, message in sent.items() if peer != own} for own in ids}
    assert all(outcome.missing is None for outcome in executor.learn(inboxes, round, Draws(0)))
    executor.finish_round()


def main() -> None:
    torch.set_num_threads(1)
    flags = {
        "models": "crad3",
        "clients": CLIENTS,
        "partition": "iid",
        "batch_size": SAMPLES,
        "lr": 0.001,
        "precision": "auto",
        "threads": 1,
        "validation_fraction": 0.1,
    }
    config = resolve("crad", ConfigFile(), flags, {})
    work = Work(samples=SAMPLES)
    federation = build_federation(config, dataset=pictures(work, CLIENTS))
    executor = LocalExecutor(federation.clients, config.entry.method(config.options), None)
    executor.start(DRAWS)
    times: tuple[list[float], list[float]] = ([], [])
    for repeat in range(REPEATS + 1):
        for own, side in zip(
            times, (lambda: bare(federation), lambda n=repeat: crad(federation, executor, n + 1)), strict=True
        ):
            began = time.process_time()
            side()
            own.append(time.process_time() - began)
    plain, ours = (statistics.median(own[1:]) for own in times)
    print(f"precision {federation.precision}")
    print(f"bare {plain:.1f} s, crad {ours:.1f} s: {ours / plain:.2f}")


if __name__ == "__main__":
    main()
