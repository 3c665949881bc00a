"""From stored samples to what a model sees: normalisation and augmentation, batched, on the device of the data."""

from dataclasses import dataclass

import torch
import torch.nn.functional as nnf
from torch import Tensor

from motley.data.shards import Normalization

PADDING = 8  # a crop moves by at most one PADDING-th of the picture: 4 pixels of 32, as usual for CIFAR


def normalize(x: Tensor, normalization: Normalization) -> Tensor:
    """Return (x * scale - mean) / std per channel, float32; x is (B, channels, ...), uint8 or float32."""
    shape = (1, -1, *[1] * (x.dim() - 2))
    std = torch.tensor(normalization.std, dtype=torch.float32, device=x.device).view(shape)
    mean = torch.tensor(normalization.mean, dtype=torch.float32, device=x.device).view(shape)
    return x.to(torch.float32) * (normalization.scale / std) - mean / std


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
