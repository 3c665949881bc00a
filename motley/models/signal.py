"""Pool signal3: three different networks for series (channels, length), such as sensor windows of 9x128.

Our own designs, with features of width 64. They work at any length from the smallest size on and are quick on a CPU.
"""

from torch import Tensor, nn

from motley.models.spec import InputSpec
from motley.models.split import SplitModel

WIDTH = 64


def signal_cnn(spec: InputSpec) -> SplitModel:
    """Three convolutions of 32, 64 and 64 channels with ReLU, max pooling between, global average."""
    channels, _ = spec.series("signal-cnn")
    backbone = nn.Sequential(
        nn.Conv1d(channels, 32, 7, padding=3),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(32, WIDTH, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool1d(2),
        nn.Conv1d(WIDTH, WIDTH, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
    )
    return spec.join(backbone, WIDTH)


class DilatedBlock(nn.Module):
    """Two dilated 1-D convolutions with batch norm beside an identity."""

    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation, bias=False),
            nn.BatchNorm1d(channels),
            nn.ReLU(),
            nn.Conv1d(channels, channels, 3, padding=dilation, dilation=dilation, bias=False),
            nn.BatchNorm1d(channels),
        )
        self.activation = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, channels, length) of the same shape."""
        out: Tensor = self.activation(x + self.body(x))
        return out


def signal_residual(spec: InputSpec) -> SplitModel:
    """A stem of stride 2 and three residual blocks of dilation 1, 2 and 4 at 48 channels, then 64; global average."""
    channels, _ = spec.series("signal-residual")
    backbone = nn.Sequential(
        nn.Conv1d(channels, 48, 5, stride=2, padding=2, bias=False),
        nn.BatchNorm1d(48),
        nn.ReLU(),
        *(DilatedBlock(48, dilation) for dilation in (1, 2, 4)),
        nn.Conv1d(48, WIDTH, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
    )
    return spec.join(backbone, WIDTH)


class GruFeatures(nn.Module):
    """A strided convolution, which shortens the series by four, and a GRU whose states are averaged over time."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.stem = nn.Conv1d(channels, 32, 8, stride=4, padding=4)
        self.gru = nn.GRU(32, WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, 64) of (B, channels, length)."""
        states, _ = self.gru(self.stem(x).relu().transpose(1, 2))
        mean: Tensor = states.mean(dim=1)
        return mean


def signal_gru(spec: InputSpec) -> SplitModel:
    """GRU of 64 states over a convolution of 32 channels and stride 4, averaged over time."""
    channels, _ = spec.series("signal-gru")
    return spec.join(GruFeatures(channels), WIDTH)
