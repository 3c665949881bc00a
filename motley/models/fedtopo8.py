"""Pool fedtopo8: the eight networks of FedTopo's experiments, with random weights.

Our reading for inputs that are not 3x32x32: pictures below 32 pixels are repeated and padded to 32 (`AtLeast32`); the
stem takes the channels of the input; the first linear layer of `cnn` follows the size of the picture. The head and the
pooling to a common width are added by `InputSpec.join`.
"""

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn.functional import pad

from motley.models.spec import InputSpec
from motley.models.split import SplitModel

SIDE = 32


class AtLeast32(nn.Module):
    """Shows pictures below 32 pixels at 32: each pixel floor(32 / H) times, then zeros evenly around; W likewise."""

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, channels, max(H, 32), max(W, 32)) of (B, channels, H, W)."""
        for axis in (-2, -1):
            if x.shape[axis] < SIDE:
                x = x.repeat_interleave(SIDE // x.shape[axis], dim=axis)
        down, right = (max(SIDE - x.shape[axis], 0) for axis in (-2, -1))
        if down or right:
            x = pad(x, (right // 2, right - right // 2, down // 2, down - down // 2))
        return x


def cnn(spec: InputSpec) -> SplitModel:
    """Two 5x5 convolutions without padding, each with ReLU and 2x2 max pooling, then Linear and ReLU."""
    channels, height, width = spec.picture("cnn")
    after_height, after_width = (((max(side, SIDE) - 4) // 2 - 4) // 2 for side in (height, width))
    backbone = nn.Sequential(
        AtLeast32(),
        nn.Conv2d(channels, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * after_height * after_width, 512),
        nn.ReLU(),
    )
    return spec.join(backbone, 512)


def googlenet(spec: InputSpec) -> SplitModel:
    """GoogLeNet of width 1024, whose dropout of 0.2 stands before the pooling."""
    from torchvision.models import googlenet as make  # noqa: PLC0415 - loaded where it is needed

    channels, _, _ = spec.picture("googlenet")
    # The size of the old head does not matter: it is replaced.
    net = make(weights=None, num_classes=1, aux_logits=False, init_weights=True, transform_input=False)
    if channels != 3:
        net.conv1.conv = _stem(net.conv1.conv, channels)
        nn.init.trunc_normal_(net.conv1.conv.weight, std=0.01, a=-2, b=2)
    net.fc = nn.Identity()
    return spec.join(nn.Sequential(AtLeast32(), net), 1024)


def mobilenetv2(spec: InputSpec) -> SplitModel:
    """MobileNetV2 of width 1280; its dropout of 0.2 is kept, only its last linear layer is replaced."""
    from torchvision.models import mobilenet_v2 as make  # noqa: PLC0415 - loaded where it is needed

    channels, _, _ = spec.picture("mobilenetv2")
    net = make(weights=None, num_classes=1)
    if channels != 3:
        net.features[0][0] = _stem(net.features[0][0], channels)
        nn.init.kaiming_normal_(net.features[0][0].weight, mode="fan_out")
    net.classifier[1] = nn.Identity()
    return spec.join(nn.Sequential(AtLeast32(), net), 1280)


def resnet(spec: InputSpec, *, depth: int, width: int) -> SplitModel:
    """Return a ResNet with the ImageNet stem (7x7 with stride 2, max pooling)."""
    from torchvision import models  # noqa: PLC0415 - loaded where it is needed

    channels, _, _ = spec.picture(f"resnet{depth}")
    net = models.get_model(f"resnet{depth}", weights=None, num_classes=1)
    if channels != 3:
        net.conv1 = _stem(net.conv1, channels)
        nn.init.kaiming_normal_(net.conv1.weight, mode="fan_out", nonlinearity="relu")
    net.fc = nn.Identity()
    return spec.join(nn.Sequential(AtLeast32(), net), width)


resnet18 = partial(resnet, depth=18, width=512)
resnet34 = partial(resnet, depth=34, width=512)
resnet50 = partial(resnet, depth=50, width=2048)
resnet101 = partial(resnet, depth=101, width=2048)
resnet152 = partial(resnet, depth=152, width=2048)


def _stem(old: Any, channels: int) -> nn.Conv2d:
    return nn.Conv2d(
        channels, old.out_channels, old.kernel_size, stride=old.stride, padding=old.padding, bias=old.bias is not None
    )
