"""How many threads torch uses for a run: a rule of the work in a batch, the same for the same configuration."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from motley.federation import Client
from motley.training.modes import evaluation_mode

# Below this many multiply-adds in the forward pass of a batch a second thread costs more than it gives (measured on two
# cores: digits, batch 32, 5 million at most), and on a busy machine it makes every operation wait for a free core.
ONE_THREAD_BELOW = 50_000_000


def choose_threads(asked: int | str, clients: list[Client]) -> int:
    """Return the number of threads: what was asked for, or by rule one for small models and torch's own for others."""
    if isinstance(asked, int):
        return asked
    distinct = {str(client.model): client for client in clients}
    heaviest = max(multiply_adds(client.model, client.task.input_shape) for client in distinct.values())
    batch = clients[0].training.batch_size
    return 1 if heaviest * batch < ONE_THREAD_BELOW else torch.get_num_threads()


def multiply_adds(model: nn.Module, input_shape: tuple[int, ...]) -> int:
    """Return the multiply-adds of one sample's forward pass, as torch counts them."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), evaluation_mode(model), counter:
        model(torch.zeros(1, *input_shape, device=device))
    return counter.get_total_flops() // 2


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Let torch use a number of threads for a block."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
