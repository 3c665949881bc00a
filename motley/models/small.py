"""Pool small4: four small networks with features of width 64, for experiments on a CPU.

The sheet states them for inputs 1x8x8; our reading for other sizes and channels: the layers stay, and the first
linear layer follows the flattened input.
"""

from math import prod

from torch import nn

from motley.models.spec import InputSpec
from motley.models.split import SplitModel

WIDTH = 64


def small_linear(spec: InputSpec) -> SplitModel:
    """Linear(inputs, 64), ReLU."""
    return spec.join(nn.Sequential(nn.Flatten(), nn.Linear(prod(spec.shape), WIDTH), nn.ReLU()), WIDTH)


def small_cnn(spec: InputSpec) -> SplitModel:
    """Two 3x3 convolutions, each with ReLU and 2x2 max pooling, then Linear and ReLU."""
    channels, height, width = spec.picture("small-cnn")
    backbone = nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (height // 4) * (width // 4), WIDTH),
        nn.ReLU(),
    )
    return spec.join(backbone, WIDTH)


def small_bn(spec: InputSpec) -> SplitModel:
    """Two 3x3 convolutions, the second with stride 2, each with batch norm and ReLU; global average."""
    channels, _, _ = spec.picture("small-bn")
    backbone = nn.Sequential(
        nn.Conv2d(channels, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, WIDTH, 3, stride=2, padding=1),
        nn.BatchNorm2d(WIDTH),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )
    return spec.join(backbone, WIDTH)


def small_mlp(spec: InputSpec) -> SplitModel:
    """Linear(inputs, 128), ReLU, Linear(128, 64), ReLU."""
    backbone = nn.Sequential(
        nn.Flatten(), nn.Linear(prod(spec.shape), 128), nn.ReLU(), nn.Linear(128, WIDTH), nn.ReLU()
    )
    return spec.join(backbone, WIDTH)
