"""Pool crad3: CRAD's ResNet-18 with a 3x3 stem, the same at half width, and a small CNN of six convolutions.

The features have the widths 512, 256 and 192; CRAD needs no common one. The CNN is our design, since the paper gives
its size only (about 0.8 M parameters).
"""

from functools import partial
from itertools import pairwise

from torch import Tensor, nn

from motley.models.spec import InputSpec
from motley.models.split import SplitModel


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with batch norm beside a shortcut, which is a 1x1 projection where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )
        self.activation = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, outputs, H / stride, W / stride) of (B, inputs, H, W)."""
        out: Tensor = self.activation(self.body(x) + self.shortcut(x))
        return out


def resnet18(spec: InputSpec, *, name: str, base: int) -> SplitModel:
    """Return a ResNet-18 with a 3x3 stem of stride 1, no max pooling, and stages of base, 2, 4 and 8 base channels."""
    channels, _, _ = spec.picture(name)
    layers: list[nn.Module] = [nn.Conv2d(channels, base, 3, padding=1, bias=False), nn.BatchNorm2d(base), nn.ReLU()]
    for stage, (inputs, outputs) in enumerate(pairwise((base, base, 2 * base, 4 * base, 8 * base))):
        layers += [BasicBlock(inputs, outputs, 1 if stage == 0 else 2), BasicBlock(outputs, outputs, 1)]
    backbone = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    for module in backbone.modules():
        if isinstance(module, nn.Conv2d):  # as torchvision initialises its ResNets
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return spec.join(backbone, 8 * base)


resnet18_3x3 = partial(resnet18, name="resnet18-3x3", base=64)
resnet18_3x3_half = partial(resnet18, name="resnet18-3x3-half", base=32)


def cnn6(spec: InputSpec) -> SplitModel:
    """Three pairs of 3x3 convolutions of 64, 128 and 192 channels, max pooling between, global average."""
    channels, _, _ = spec.picture("cnn6")
    layers: list[nn.Module] = []
    for position, (inputs, outputs) in enumerate(pairwise((channels, 64, 64, 128, 128, 192, 192))):
        if position in {2, 4}:
            layers.append(nn.MaxPool2d(2))
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return spec.join(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten()), 192)
