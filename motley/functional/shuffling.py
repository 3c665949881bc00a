"""The order in which a server uses the rows it has received."""

from collections.abc import Iterator

import torch
from torch import Tensor

from motley.errors import InvalidInput


def shuffled_batches(num_rows: int, batch_size: int, epochs: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield the positions of every batch of some epochs, each in an order of its own; a last partial batch is kept.

    Args:
        num_rows: >= 0; nothing is yielded for 0.
        batch_size: >= 1.
        epochs: >= 0.
        generator: Where the orders come from.

    Raises:
        InvalidInput: The batch size is below 1.

    Source: server methods, sections 5, 11 and 12.

    >>> [len(one) for one in shuffled_batches(5, 2, 2, torch.Generator().manual_seed(0))]
    [2, 2, 1, 2, 2, 1]
    """
    if batch_size < 1:
        raise InvalidInput(f"a batch needs at least one row, not {batch_size}")
    for _ in range(epochs if num_rows else 0):
        yield from torch.split(torch.randperm(num_rows, generator=generator), batch_size)
