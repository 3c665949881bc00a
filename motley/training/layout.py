"""Where a model lives, and in which memory layout its convolutions compute."""

import torch
from torch import nn

from motley.models.split import SplitModel


def place(model: SplitModel, input_shape: tuple[int, ...], device: torch.device) -> SplitModel:
    """Move a model to its device, convolutions over pictures with several channels in the layout channels-last.

    Channels-last is faster for them (two cores, fp32, 3 x 32 x 32: 1.4 to 2 times in inference, 1.1 times in training)
    and slower for one channel; inputs need no change, since a convolution follows the layout of its weights. Results
    differ from the other layout by rounding.
    """
    convolves = any(isinstance(part, nn.Conv2d) for part in model.modules())
    if convolves and len(input_shape) == 3 and input_shape[0] > 1:
        model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    else:
        model.to(device)
    return model
