"""In which precision a model trains and infers fastest here: a short measurement, on one batch of its own size."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from motley.errors import InvalidConfig
from motley.models.inference import InferenceCopies
from motley.models.split import SplitModel

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
WORTH = 0.9  # bfloat16 is taken if it needs at most this share of the time: it must gain more than a measurement errs
PASSES = 4


@dataclass(frozen=True)
class Precision:
    """In which dtype the convolutions and products of a model compute; losses, statistics and heads stay float32.

    Attributes:
        train: While training (autocast).
        infer: In inference copies.
    """

    train: torch.dtype = torch.float32
    infer: torch.dtype = torch.float32

    def __str__(self) -> str:
        return f"{NAMES[self.train]}/{NAMES[self.infer]}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `fp32/bf16`: training, inference; or one word for both.

        Raises:
            InvalidConfig: It is nothing of this kind.
        """
        words = text.split("/")
        if len(words) > 2 or not set(words) <= set(DTYPES):
            raise InvalidConfig(
                f"run.precision has '{text}'; it must be fp32, bf16, or training/inference such as fp32/bf16"
            )
        return cls(DTYPES[words[0]], DTYPES[words[-1]])


def computes_bfloat16(device: torch.device) -> bool:
    """Tell whether a device has instructions for bfloat16, so that it may be faster there."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        found: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        return found
    return False


def measure_precision(
    model: SplitModel, input_shape: tuple[int, ...], *, train_batch: int, infer_batch: int
) -> Precision:
    """Return the faster precision of training steps and of inference, each measured for itself.

    Args:
        model: One of the architecture, on the device, in the layout in which it will compute; not changed.
        input_shape: Shape of one input.
        train_batch, infer_batch: Samples in a batch.
    """
    device = next(model.parameters()).device
    trained = copy.deepcopy(model).train()
    x, y = (
        torch.zeros(train_batch, *input_shape, device=device),
        torch.zeros(train_batch, dtype=torch.int64, device=device),
    )

    def step(dtype: torch.dtype) -> None:
        with torch.autocast(device.type, dtype, enabled=dtype != torch.float32):
            logits = trained(x)
        cross_entropy(logits.float(), y).backward()  # type: ignore[no-untyped-call]
        trained.zero_grad(set_to_none=True)

    many = torch.zeros(infer_batch, *input_shape, device=device)
    still = copy.deepcopy(model).eval()
    copies = {dtype: InferenceCopies({"": dtype}).of("", still) for dtype in NAMES}

    def infer(dtype: torch.dtype) -> Tensor:
        with torch.inference_mode():
            scores: Tensor = copies[dtype](many)
        return scores

    return Precision(_faster(step, device), _faster(infer, device))


def _faster(work: Callable[[torch.dtype], object], device: torch.device) -> torch.dtype:
    best = dict.fromkeys(NAMES, float("inf"))
    for number in range(PASSES + 1):
        for dtype in NAMES:
            began = time.perf_counter()
            work(dtype)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if number:  # the first pass prepares kernels and memory
                best[dtype] = min(best[dtype], time.perf_counter() - began)
    return torch.bfloat16 if best[torch.bfloat16] <= WORTH * best[torch.float32] else torch.float32
