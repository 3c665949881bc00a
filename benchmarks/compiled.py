"""`torch.compile` against eager PyTorch on one thread: training in float32 and inference in bfloat16.

    python benchmarks/compiled.py [POOL] [SAMPLES]

Eager is what motley runs: channels-last, batch norm folded for inference. Speeds are medians of processor time; what
compiling cost stands beside them. Needs a C++ compiler.
"""

import copy
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from motley.engine.bench import Work, bench_federation, medians
from motley.engine.threads import threads

REPEATS = 5


def training(model: nn.Module, x: Tensor, y: Tensor) -> Callable[[], None]:
    def step() -> None:
        cross_entropy(model(x), y).backward()
        for parameter in model.parameters():
            parameter.grad = None

    return step


def inference(model: nn.Module, x: Tensor) -> Callable[[], None]:
    def step() -> None:
        with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
            model(x)

    return step


def compare(name: str, word: str, plain: Callable[[], None], compiled: Callable[[], None], count: int) -> None:
    plain()
    began = time.perf_counter()
    compiled()
    cost = time.perf_counter() - began
    eager, fast = (count / each for each in medians(REPEATS, lambda _: plain(), lambda _: compiled(), warm_up=0))
    print(f"{name:12} {word:9} eager {eager:8,.0f}  compiled {fast:8,.0f} images/s, after {cost:4.0f} s", flush=True)


def main() -> None:
    pool = sys.argv[1] if len(sys.argv) > 1 else "cnn,resnet18,mobilenetv2"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 128
    with threads(1):
        federation = bench_federation(Work(models=pool, samples=count))
        for client in federation.clients:
            x = torch.randn(count, 3, 32, 32, generator=torch.Generator().manual_seed(0))
            x = x.to(memory_format=torch.channels_last)
            y = torch.arange(count) % 10
            name, model = federation.plan.architecture(client.id), client.model.train()
            twin = torch.compile(copy.deepcopy(model))
            compare(name, "training", training(model, x, y), training(twin, x, y), count)
            folded = client.for_inference.eval()
            compare(name, "inference", inference(folded, x), inference(torch.compile(copy.deepcopy(folded)), x), count)


if __name__ == "__main__":
    main()
