"""How close a round comes to the time that the arithmetic needs: ratios of our loops to bare PyTorch loops.

    python benchmarks/floor.py
    python benchmarks/floor.py --data parquet:DIR --batch-size 64

Both sides of a ratio run alternately in this process, on the same model, batches and tensors; the ratio is that of
the medians of the processor time of this process, so that other work on the machine disturbs it little. `local` is one
epoch of local training against the bare loop; `fedtopo` is that epoch with its loss and the upload, with exact and with
running prototypes, against our `local`; `evaluate` is our evaluation against bare forward passes.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch.nn.functional import cross_entropy

from motley.draws import Draws
from motley.engine.config import ConfigFile, resolve
from motley.engine.setup import build_federation
from motley.federation import Client
from motley.methods.registry import find_method
from motley.training.evaluation import evaluate

DRAWS = Draws(0)


def medians(repeats: int, *sides: Callable[[int], None]) -> list[float]:
    """Return the median processor seconds of each side, run in turn after two warm-up passes."""
    times: list[list[float]] = [[] for _ in sides]
    for repeat in range(repeats + 2):
        for own, side in zip(times, sides, strict=True):
            began = time.process_time()
            side(repeat + 10)
            own.append(time.process_time() - began)
    return [statistics.median(own[2:]) for own in times]


def bare_training(client: Client) -> Callable[[int], None]:
    """Return one epoch as a user of PyTorch would write it."""
    x, y, model, size = client.shard.train.x, client.shard.train.y, client.model, client.training.batch_size

    def run(_: int) -> None:
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=client.training.lr)
        order = torch.randperm(len(y))
        for start in range(0, len(y), size):
            index = order[start : start + size]
            optimizer.zero_grad(set_to_none=True)
            cross_entropy(model((x[index].float() / 255 - 0.5) / 0.5), y[index]).backward()
            optimizer.step()

    return run


def bare_evaluation(client: Client) -> Callable[[int], None]:
    """Return forward passes over the training part, with the number of right answers."""
    x, y, model, size = client.shard.train.x, client.shard.train.y, client.model, client.evaluation.batch_size

    def run(_: int) -> None:
        model.eval()
        right = 0
        with torch.inference_mode():
            for start in range(0, len(y), size):
                scores = model((x[start : start + size].float() / 255 - 0.5) / 0.5)
                right += int((scores.argmax(1) == y[start : start + size]).sum())

    return run


def our_round(client: Client, name: str, **options: object) -> Callable[[int], None]:
    """Return what a client does in a round of a server method."""
    entry = find_method(name)
    method = entry.method(entry.options(**options))
    state = method.start(client.task, DRAWS)

    def run(number: int) -> None:
        method.client_round(client, method.broadcast(state, client.id), number, DRAWS)

    return run


def our_evaluation(client: Client) -> Callable[[int], None]:
    """Return our evaluation of the training part."""

    def run(_: int) -> None:
        evaluate(
            client.model,
            client.model,
            client.shard.train,
            client.shard.normalization,
            num_classes=client.num_classes,
            batch_size=client.evaluation.batch_size,
        )

    return run


def main() -> None:
    """Print one line an architecture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--models", default="small4")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    flags = {
        "data": given.data,
        "models": given.models,
        "batch_size": given.batch_size,
        "clients": 4,
        "partition": "iid",
    }
    federation = build_federation(resolve("local", ConfigFile(), flags, {}))
    print(f"{given.data}, batch {given.batch_size}, {given.threads} thread(s), medians of {given.repeats}")
    print(f"{'architecture':16}{'images/s':>10}{'local':>8}{'fedtopo':>9}{'running':>9}{'evaluate':>10}")
    for client, name in zip(federation.clients, federation.plan.names, strict=True):
        bare, local, exact, running, bare_eval, ours_eval = medians(
            given.repeats,
            bare_training(client),
            our_round(client, "local"),
            our_round(client, "fedtopo"),
            our_round(client, "fedtopo", prototypes="running"),
            bare_evaluation(client),
            our_evaluation(client),
        )
        ratios = f"{local / bare:8.2f}{exact / local:9.2f}{running / local:9.2f}{ours_eval / bare_eval:10.2f}"
        print(f"{name:16}{len(client.shard.train) / bare:10,.0f}{ratios}")


if __name__ == "__main__":
    main()
