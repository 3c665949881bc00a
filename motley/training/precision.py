"""In which precision and layout a model computes fastest here: a short measurement, on one batch of its own size."""

import copy
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self, TypeVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from motley.errors import InvalidConfig
from motley.models.inference import InferenceCopies
from motley.models.split import SplitModel
from motley.models.trimmed import trim
from motley.training.layout import BY_RULE, Layout, is_picture_model, place

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
Form = TypeVar("Form")
WORTH = 0.9  # another form must need less than this share of the time: it must gain more than a measurement errs
PASSES = 4
ENOUGH_S = 1.0  # of time measured on one form; large models get fewer passes


@dataclass(frozen=True)
class Precision:
    """In which dtype and layout a model's convolutions and products compute; losses, statistics, heads stay float32.

    Attributes:
        train: While training (autocast).
        infer: In inference copies.
        layout: Of its convolutions.
    """

    train: torch.dtype = torch.float32
    infer: torch.dtype = torch.float32
    layout: Layout = BY_RULE

    def __str__(self) -> str:
        return "/".join([NAMES[self.train], NAMES[self.infer], *self.layout.words()])

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `fp32/bf16`: training, inference; or one word for both; words of the layout may follow.

        Raises:
            InvalidConfig: It is nothing of this kind.
        """
        words = text.split("/")
        dtypes = [word for word in words[:2] if word in DTYPES]
        layout = Layout.of_words(words[len(dtypes) :])
        if words[: len(dtypes)] != dtypes or not dtypes or layout is None:
            raise InvalidConfig(
                f"run.precision has '{text}'; it must be fp32, bf16, or training/inference such as fp32/bf16, after "
                "which /channels-last or /contiguous, and /trimmed may follow"
            )
        return cls(DTYPES[dtypes[0]], DTYPES[dtypes[-1]], layout)


def computes_bfloat16(device: torch.device) -> bool:
    """Tell whether a device has instructions for bfloat16, so that it may be faster there."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type == "cpu":
        found: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        return found
    return False


def measure_precision(
    model: SplitModel,
    input_shape: tuple[int, ...],
    *,
    train_batch: int,
    infer_batch: int,
    dtypes: Iterable[torch.dtype] = tuple(NAMES),
) -> Precision:
    """Return the fastest precision and layout of training steps, and the faster precision of inference in this layout.

    float32 and the layout by rule stay if nothing else gains more than a measurement errs.

    Args:
        model: One of the architecture, on the device, in the layout by rule; not changed.
        input_shape: Shape of one input.
        train_batch, infer_batch: Samples in a batch.
        dtypes: That may be chosen.
    """
    device = next(model.parameters()).device
    models = {layout: copied.train() for layout, copied in _layouts(model, input_shape).items()}
    x, y = (
        torch.zeros(train_batch, *input_shape, device=device),
        torch.zeros(train_batch, dtype=torch.int64, device=device),
    )

    def step(form: tuple[Layout, torch.dtype]) -> None:
        trial_step(models[form[0]], x, y, form[1])

    layout, train = _fastest(step, [(layout, dtype) for dtype in dtypes for layout in models], device)
    many = torch.zeros(infer_batch, *input_shape, device=device)
    still = models[layout].eval()
    copies = {dtype: InferenceCopies({"": dtype}).of("", still) for dtype in dtypes}

    def infer(dtype: torch.dtype) -> Tensor:
        with torch.inference_mode():
            scores: Tensor = copies[dtype](many)
        return scores

    return Precision(train, _fastest(infer, list(copies), device), layout)


def trial_step(model: SplitModel, x: Tensor, y: Tensor, dtype: torch.dtype) -> None:
    """Compute what a training step computes but for the optimizer, to see how long it takes; weights do not change."""
    with torch.autocast(x.device.type, dtype, enabled=dtype != torch.float32):
        logits = model(x)
    cross_entropy(logits.float(), y).backward()  # type: ignore[no-untyped-call]
    model.zero_grad(set_to_none=True)


def _layouts(model: SplitModel, input_shape: tuple[int, ...]) -> dict[Layout, SplitModel]:
    """Return copies of a model in all layouts that may gain, the one by rule first.

    Where trimming changes anything, other layouts are tried with it alone: it leaves out work and adds none.
    """
    found = {BY_RULE: copy.deepcopy(model)}
    if not is_picture_model(model, input_shape):
        return found
    device = next(model.parameters()).device
    trimmed = trim(copy.deepcopy(model), input_shape)
    by_rule = input_shape[0] > 1
    others = [*([Layout(None, trimmed)] if trimmed else []), Layout(not by_rule, trimmed)]
    return found | {layout: place(copy.deepcopy(model), input_shape, device, layout) for layout in others}


def _fastest(work: Callable[[Form], object], forms: list[Form], device: torch.device) -> Form:
    """Return the first form that is as fast as the fastest one but for what measurements err."""
    best, spent = dict.fromkeys(forms, float("inf")), dict.fromkeys(forms, 0.0)
    for number in range(PASSES + 1):
        for form in forms:
            if spent[form] > ENOUGH_S:
                continue
            began = time.perf_counter()
            work(form)
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            if number:  # the first pass prepares kernels and memory
                took = time.perf_counter() - began
                best[form], spent[form] = min(best[form], took), spent[form] + took
    limit = min(best.values()) / WORTH
    return next(form for form in forms if best[form] <= limit)
