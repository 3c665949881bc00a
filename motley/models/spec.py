"""What an architecture is built for, and the end that all of them have in common."""

from dataclasses import dataclass

from torch import nn

from motley.errors import InvalidModel
from motley.models.split import SplitModel


@dataclass(frozen=True)
class InputSpec:
    """What an architecture is built for.

    Args:
        shape: Shape of one input, (channels, height, width) or (channels, length).
        num_classes: C.
        width: Feature width d, reached by adaptive average pooling; None for the architecture's own.
    """

    shape: tuple[int, ...]
    num_classes: int
    width: int | None = None

    def picture(self, name: str) -> tuple[int, int, int]:
        """Return (channels, height, width), or refuse inputs of another kind for the architecture of this name."""
        if len(self.shape) != 3:
            raise InvalidModel(
                f"{name} expects pictures (channels, height, width), but the inputs have the shape {self.shape}; "
                "for series (channels, length) take the pool signal3"
            )
        channels, height, width = self.shape
        return channels, height, width

    def series(self, name: str) -> tuple[int, int]:
        """Return (channels, length), or refuse inputs of another kind for the architecture of this name."""
        if len(self.shape) != 2:
            raise InvalidModel(
                f"{name} expects series (channels, length), but the inputs have the shape {self.shape}; for pictures "
                "take the pool small4"
            )
        channels, length = self.shape
        return channels, length

    def join(self, backbone: nn.Module, own_width: int) -> SplitModel:
        """Return backbone, pooling to the common width if it differs, and a new linear head."""
        width = own_width if self.width is None else self.width
        pool = nn.Identity() if width == own_width else nn.AdaptiveAvgPool1d(width)
        return SplitModel(backbone, nn.Linear(width, self.num_classes), pool=pool)
