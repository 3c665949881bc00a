"""The order in which a client's samples are used, and how it is cut into batches."""

import hashlib
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

LastBatch = Literal["keep", "drop"]


def epoch_order(num_samples: int, generator: torch.Generator, *, shuffle: bool = True) -> Tensor:
    """Return positions 0..n-1 in a drawn order, or without `shuffle` in ascending order, shape (n,), int64."""
    return torch.randperm(num_samples, generator=generator) if shuffle else torch.arange(num_samples)


def num_used(num_samples: int, batch_size: int, last: LastBatch) -> int:
    """Return how many samples the batches of an epoch hold: all, or with "drop" as many as fill whole batches."""
    return num_samples if last == "keep" else num_samples - num_samples % batch_size


def batch_bounds(num_samples: int, batch_size: int, last: LastBatch = "keep") -> list[tuple[int, int]]:
    """Return (start, stop) of every batch; all samples are used once, with "drop" those of full batches alone.

    The last partial batch is kept, except that a remainder of exactly one sample joins the batch before it, because
    BatchNorm cannot be trained on one sample (design, section 6).
    """
    num_samples = num_used(num_samples, batch_size, last)
    if not num_samples:
        return []
    starts = list(range(0, num_samples, batch_size))
    if len(starts) > 1 and num_samples - starts[-1] == 1:
        starts.pop()
    return list(zip(starts, [*starts[1:], num_samples], strict=True))


def batches(order: Tensor, batch_size: int, last: LastBatch = "keep") -> Iterator[Tensor]:
    """Yield the positions of every batch of an epoch."""
    for start, stop in batch_bounds(order.numel(), batch_size, last):
        yield order[start:stop]


def order_digest(orders: list[Tensor]) -> str:
    """Return 16 hexadecimal digits that two runs share exactly if they used the same samples in the same order."""
    digest = hashlib.sha256()
    for order in orders:
        digest.update(order.numpy().tobytes())
    return digest.hexdigest()[:16]
