"""Convolutions without the products that padding makes zero.

The deep layers of a network that was made for large pictures see maps of 2 x 2 and of one pixel. A 3 x 3 kernel with
padding 1 multiplies eight of its nine taps by zeros there, and a layer of 512 channels reads, casts and differentiates
2.4 million weights where 0.3 million meet the picture.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d, linear

from motley.models.split import SplitModel


class TrimmedConv2d(nn.Conv2d):
    """A convolution that, where it gives a single pixel, computes with the taps that meet the picture alone.

    Weights, their names and the function are those of the convolution; results differ by rounding.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Return what the convolution gives for (B, channels, H, W)."""
        if not trims(self, x):
            return super().forward(x)
        (height, width), (down, right) = self.kernel_size, _padding(self)
        seen = x[:, :, : height - down, : width - right]
        taps = self.weight[:, :, down : down + seen.shape[2], right : right + seen.shape[3]]
        if self.groups > 1:
            return conv2d(seen, taps, self.bias, groups=self.groups)
        return linear(seen.flatten(1), taps.flatten(1), self.bias)[:, :, None, None]


def trims(layer: nn.Conv2d, x: Tensor) -> bool:
    """Tell whether a convolution gives a single pixel and has taps that see padding alone."""
    if layer.padding_mode != "zeros" or isinstance(layer.padding, str) or layer.dilation != (1, 1) or x.dim() != 4:
        return False
    sides = list(zip(x.shape[2:], layer.kernel_size, _padding(layer), layer.stride, strict=True))
    single = all(pad < kernel <= side + 2 * pad < kernel + stride for side, kernel, pad, stride in sides)
    return single and any(pad > 0 for _, _, pad, _ in sides)


def trim(model: SplitModel, input_shape: tuple[int, ...]) -> bool:
    """Make trimmed ones of the convolutions that gain by it; False if none does.

    Args:
        model: Changed in place; its weights are not.
        input_shape: Of one sample.
    """
    gaining: list[nn.Conv2d] = []

    def look(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if type(layer) is nn.Conv2d and trims(layer, inputs[0]):
            gaining.append(layer)

    hooks = [part.register_forward_pre_hook(look) for part in model.modules() if isinstance(part, nn.Conv2d)]
    flags = [(part, part.training) for part in model.modules()]
    with torch.no_grad():
        model.eval()(torch.zeros(1, *input_shape, device=next(model.parameters()).device))
    for part, flag in flags:
        part.training = flag
    for hook in hooks:
        hook.remove()
    for layer in gaining:
        layer.__class__ = TrimmedConv2d  # keeps weights and hooks, and draws no initial weights
    return bool(gaining)


def _padding(layer: nn.Conv2d) -> tuple[int, ...]:
    assert not isinstance(layer.padding, str)
    return layer.padding
