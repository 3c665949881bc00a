"""Clients of one architecture trained as one stack (torch.func) against one after the other: steps of SGD, one thread.

    python benchmarks/stacked.py

Both sides start from the same weights and see the same batches; that they end with the same weights within rounding is
checked before anything is timed. Ratios are those of medians of processor time; above 1 the stack is faster.
"""

import copy

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.nn.functional import cross_entropy

from motley.engine.bench import Work, bench_federation, medians
from motley.engine.threads import threads

LR, STEPS, REPEATS = 0.05, 4, 7
SETTINGS = ((8, 1, 8), (8, 1, 32), (28, 1, 32), (32, 3, 64))  # side, channels, batch
STACKS = (5, 20)  # clients of an architecture: a pool of four and of one among twenty clients


def one_by_one(models: list[nn.Module], x: Tensor, y: Tensor) -> None:
    """Train K models for some steps; x is (K, B, ...)."""
    for model, own_x, own_y in zip(models, x, y, strict=True):
        model.train()
        parameters = list(model.parameters())
        for _ in range(STEPS):
            cross_entropy(model(own_x), own_y).backward()
            with torch.no_grad():
                torch._foreach_add_(parameters, [p.grad for p in parameters], alpha=-LR)
            for parameter in parameters:
                parameter.grad = None


class Stack:
    """K models as one: every parameter has a leading dimension K."""

    def __init__(self, models: list[nn.Module]) -> None:
        self.parameters, self.buffers = stack_module_state(models)
        skeleton = copy.deepcopy(models[0]).to("meta").train()

        def loss(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return cross_entropy(functional_call(skeleton, (parameters, buffers), (x,)), y)

        self._gradients = vmap(grad(loss))

    def train(self, x: Tensor, y: Tensor) -> None:
        for _ in range(STEPS):
            gradients = self._gradients(self.parameters, self.buffers, x, y)
            with torch.no_grad():
                names = list(self.parameters)
                torch._foreach_add_(
                    [self.parameters[name] for name in names], [gradients[name] for name in names], alpha=-LR
                )


def ratio(model: nn.Module, number: int, x: Tensor, y: Tensor) -> float:
    models = [copy.deepcopy(model) for _ in range(number)]
    stack = Stack(models)
    one_by_one(models, x, y)
    stack.train(x, y)
    for name, stacked in stack.parameters.items():
        plain = torch.stack([dict(one.named_parameters())[name] for one in models])
        torch.testing.assert_close(stacked, plain, rtol=1e-3, atol=1e-4)
    plain_s, stacked_s = medians(REPEATS, lambda _: one_by_one(models, x, y), lambda _: stack.train(x, y), warm_up=0)
    return plain_s / stacked_s


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    with threads(1):
        for side, channels, batch in SETTINGS:
            federation = bench_federation(Work(size=side, channels=channels, samples=8))
            for client in federation.clients:
                model = copy.deepcopy(client.model).to(memory_format=torch.contiguous_format)
                found = []
                for number in STACKS:
                    x = torch.randn(number, batch, channels, side, side, generator=generator)
                    y = torch.randint(0, 10, (number, batch), generator=generator)
                    found.append(f"{number} clients {ratio(model, number, x, y):.2f}")
                name = federation.plan.architecture(client.id)
                print(f"{channels} x {side} x {side}, batch {batch:2}, {name:12} {', '.join(found)}", flush=True)


if __name__ == "__main__":
    main()
