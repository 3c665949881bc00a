"""The data of one client on a device, and how they are brought to the range that models expect."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True)
class Normalization:
    """y = (x * scale - mean) / std per channel, applied to each batch on the device."""

    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class Samples:
    """Inputs as they are stored, with their labels; may be empty."""

    x: Tensor  # (n, channels, ...), uint8 or float32
    y: Tensor  # int64 (n,)

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: torch.device | str) -> "Samples":
        """Return the samples on a device."""
        return Samples(self.x.to(device), self.y.to(device))


@dataclass(frozen=True)
class Shard:
    """One client's data."""

    train: Samples
    validation: Samples
    test: Samples
    counts: Tensor  # int64 (C,), of the training part
    validation_counts: Tensor  # int64 (C,)
    normalization: Normalization

    def to(self, device: torch.device | str) -> "Shard":
        """Return the shard on a device."""
        return Shard(
            self.train.to(device),
            self.validation.to(device),
            self.test.to(device),
            self.counts.to(device),
            self.validation_counts.to(device),
            self.normalization,
        )


def normalization_of(x: Tensor, kind: Literal["half", "channel", "none"]) -> Normalization:
    """Return the normalization of a set of samples.

    Pictures are scaled to 0..1 first. Our reading: `half` is made for pictures and leaves signals as they are, since
    these have units and no range; a channel without any variation keeps the deviation 1.

    Args:
        x: Training samples, (n, channels, ...), uint8 pictures or float32 signals.
        kind: `half`, `channel` or `none`, as in the options.
    """
    channels = x.shape[1]
    is_picture = x.dtype == torch.uint8
    scale = 1 / 255 if is_picture else 1.0
    if kind == "channel":
        mean, std = _channel_statistics(x)
        return Normalization(
            scale, tuple(scale * value for value in mean), tuple(scale * value or 1.0 for value in std)
        )
    centre, spread = (0.5, 0.5) if kind == "half" and is_picture else (0.0, 1.0)
    return Normalization(scale, (centre,) * channels, (spread,) * channels)


def _channel_statistics(x: Tensor) -> tuple[list[float], list[float]]:
    """Return mean and deviation of each channel; pictures are counted by value, which is exact and needs no copy."""
    means, deviations = [], []
    for channel in range(x.shape[1]):
        values = x[:, channel].reshape(-1)
        if x.dtype == torch.uint8:
            weights = torch.bincount(values, minlength=256).double()
            values = torch.arange(256, dtype=torch.float64)
        else:
            weights, values = torch.ones(len(values), dtype=torch.float64), values.double()
        total = weights.sum().clamp(min=1)
        mean = (weights * values).sum() / total
        means.append(mean.item())
        deviations.append(((weights * (values - mean) ** 2).sum() / total).sqrt().item())
    return means, deviations
