"""From stored samples to what a model sees: normalisation and augmentation, batched, on the device of the data."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import torch
import torch.nn.functional as nnf
from torch import Tensor

from motley.data.shards import Normalization

PADDING = 8  # a crop moves by at most one PADDING-th of the picture: 4 pixels of 32, as usual for CIFAR


@dataclass(frozen=True)
class Normalizer:
    """Makes inputs of stored samples: (x * scale - mean) / std per channel, as one product and one sum.

    Attributes:
        factor, shift: Shape (1, channels, 1, ...), float32, on the device of the samples.
    """

    factor: Tensor
    shift: Tensor

    @classmethod
    def of(cls, normalization: Normalization, samples: Tensor) -> Self:
        """Return the normalizer for samples (n, channels, ...); make it once a pass."""
        return cls(*_factor_and_shift(normalization, samples.dim(), samples.device))

    def __call__(self, x: Tensor) -> Tensor:
        """Return inputs (B, channels, ...), float32, of samples that are uint8 or float32."""
        numbers = x.to(torch.float32)
        scaled = numbers * self.factor if numbers is x else numbers.mul_(self.factor)  # stored samples stay as they are
        return scaled.add_(self.shift)


@lru_cache
def _factor_and_shift(normalization: Normalization, dim: int, device: torch.device) -> tuple[Tensor, Tensor]:
    shape = (1, -1, *[1] * (dim - 2))
    with torch.inference_mode(False):  # training uses them, too, whoever asks first
        std = torch.tensor(normalization.std, dtype=torch.float32, device=device).view(shape)
        mean = torch.tensor(normalization.mean, dtype=torch.float32, device=device).view(shape)
        return normalization.scale / std, -mean / std


@dataclass(frozen=True)
class Augmentation:
    """One drawn change of every sample of an epoch; the same sample always gets the same change.

    Attributes:
        flip: Mirror left and right, (n,) bool.
        shift: Rows and columns by which the padded picture is moved, (n, 2) int64, or None for no crops.
    """

    flip: Tensor
    shift: Tensor | None

    @classmethod
    def draw(cls, kind: str, num_samples: int, height: int, generator: torch.Generator) -> "Augmentation | None":
        """Draw the changes of an epoch; None for kind "none"."""
        if kind == "none":
            return None
        flip = torch.rand(num_samples, generator=generator) < 0.5
        if kind == "flip":
            return cls(flip, None)
        reach = max(1, height // PADDING)
        return cls(flip, torch.randint(0, 2 * reach + 1, (num_samples, 2), generator=generator))

    def apply(self, x: Tensor, index: Tensor) -> Tensor:
        """Change normalised pictures x (B, channels, H, W) that stand at positions `index` (B,) of the shard."""
        flip = self.flip[index].to(x.device)
        x = torch.where(flip.view(-1, 1, 1, 1), x.flip(3), x)
        if self.shift is None:
            return x
        height, width = x.shape[2:]
        reach = max(1, height // PADDING)
        padded = nnf.pad(x, (reach, reach, reach, reach))
        shift = self.shift[index].to(x.device)
        rows = (shift[:, :1] + torch.arange(height, device=x.device)).view(-1, 1, height, 1)
        columns = (shift[:, 1:] + torch.arange(width, device=x.device)).view(-1, 1, 1, width)
        sample = torch.arange(x.shape[0], device=x.device).view(-1, 1, 1, 1)
        channel = torch.arange(x.shape[1], device=x.device).view(1, -1, 1, 1)
        return padded[sample, channel, rows, columns]
