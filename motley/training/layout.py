"""Where a model lives, and in which form its convolutions compute."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import nn

from motley.models.split import SplitModel
from motley.models.trimmed import trim

FORMATS = {"channels-last": True, "contiguous": False}
TRIMMED = "trimmed"


@dataclass(frozen=True)
class Layout:
    """In which form the convolutions of a model compute; results differ by rounding.

    Attributes:
        channels_last: The memory format; None: by rule, channels-last for pictures with several channels.
        trimmed: Without the taps that see padding alone (`motley/models/trimmed.py`).
    """

    channels_last: bool | None = None
    trimmed: bool = False

    def words(self) -> list[str]:
        """Return the layout as the option `run.precision` names it; nothing for the rule."""
        named = [word for word, channels_last in FORMATS.items() if channels_last == self.channels_last]
        return [*named, TRIMMED] if self.trimmed else named

    @classmethod
    def of_words(cls, words: list[str]) -> Self | None:
        """Return what `words` returned; None if they are no layout."""
        formats = [FORMATS[word] for word in words if word in FORMATS]
        if not set(words) <= {*FORMATS, TRIMMED} or len(set(words)) < len(words) or len(formats) > 1:
            return None
        return cls(formats[0] if formats else None, TRIMMED in words)


BY_RULE = Layout()


def is_picture_model(model: SplitModel, input_shape: tuple[int, ...]) -> bool:
    """Tell whether a model has convolutions over pictures, whose memory format can be chosen."""
    return len(input_shape) == 3 and any(isinstance(part, nn.Conv2d) for part in model.modules())


def place(
    model: SplitModel, input_shape: tuple[int, ...], device: torch.device, layout: Layout = BY_RULE
) -> SplitModel:
    """Move a model to its device and bring its convolutions into their form.

    By rule they are channels-last for pictures with several channels: that is faster for them (two cores, fp32,
    3 x 32 x 32: 1.4 to 2 times in inference, 1.1 times in training) and slower for one channel. Inputs need no change,
    since a convolution follows the format of its weights. Results differ between formats by rounding.
    """
    model.to(device)
    if is_picture_model(model, input_shape):
        if layout.channels_last or (layout.channels_last is None and input_shape[0] > 1):
            model.to(memory_format=torch.channels_last)
        elif layout.channels_last is False:
            model.to(memory_format=torch.contiguous_format)
        if layout.trimmed:
            trim(model, input_shape)
    return model
