"""Counts floating-point operations of a block, and what they were spent on.

Two counts are kept apart. Products: convolutions and matrix products, forward and backward, 2 for a multiply-add, by
torch's own formulas. Elementwise: the convention that gives the digits of FedTopo's Table III (sheet, section 10), in
which the bias of a convolution is 1 an output, batch norm 2 an element, ReLU 1, pooling 1 an input element, a sum,
product or other function of elements 1, a softmax 3 and a squared distance 3. ReLU6, the bias of a linear layer, sums
in place (residual connections, optimizers) and single numbers are not counted, and of a backward pass nothing is.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from motley.record.cost import Flops

Place = tuple[int | None, str]  # client, or None for the server; and the part of its work
Formula = Callable[..., int]
SERVER: Place = (None, "server")

aten = torch.ops.aten


def _outputs(times: int) -> Formula:
    def count(*_: Any, out_val: Any, **__: Any) -> int:
        out: Tensor = out_val if isinstance(out_val, Tensor) else out_val[0]
        return times * out.numel() if out.dim() else 0

    return count


def _inputs(x: Tensor, *_: Any, **__: Any) -> int:
    return x.numel()


def _distances(x: Tensor, y: Tensor, *_: Any, **__: Any) -> int:
    return 3 * x.numel() * y.shape[-2]


def _conv_bias(*arguments: Any, out_val: Tensor, **_: Any) -> int:
    return 0 if arguments[2] is None else out_val.numel()


NORMS = (aten.native_batch_norm, aten._native_batch_norm_legit, aten._native_batch_norm_legit_no_training)
POOLS = (aten.max_pool2d_with_indices, aten.avg_pool2d, aten._adaptive_avg_pool2d, aten.mean)
SIMPLE = (
    *(aten.relu, aten.relu_, aten.add, aten.sub, aten.rsub, aten.mul, aten.div, aten.neg, aten.abs),
    *(aten.exp, aten.log, aten.sqrt, aten.rsqrt, aten.pow, aten.sigmoid, aten.tanh),
)
ELEMENTWISE: dict[Any, Formula] = {
    aten.convolution: _conv_bias,
    aten._cdist_forward: _distances,
    **dict.fromkeys(NORMS, _outputs(2)),
    **dict.fromkeys(POOLS, _inputs),
    **dict.fromkeys(SIMPLE, _outputs(1)),
    aten._softmax: _outputs(3),
    aten._log_softmax: _outputs(3),
    aten.mse_loss: lambda x, *_, **__: 3 * x.numel(),
}


class FlopMeter:
    """Counts within its block; work belongs to the innermost part that is open, and outside of all to the server."""

    def __init__(self) -> None:
        mapping = {packet: _raw(partial(self._count, packet, formula)) for packet, formula in ELEMENTWISE.items()}
        self._counter = FlopCounterMode(display=False, custom_mapping=mapping)
        self._elementwise = 0
        self._open: list[Place] = [SERVER]
        self._seen = Flops()
        self._spent: dict[Place, Flops] = {}

    def __enter__(self) -> Self:
        self._counter.__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._counter.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]

    @contextmanager
    def part(self, name: str, client: int | None = None) -> Iterator[None]:
        """Count what is done in a block as this part of a client's work, by default of whose work it is already."""
        self._settle()
        self._open.append((self._open[-1][0] if client is None else client, name))
        try:
            yield
        finally:
            self._settle()
            self._open.pop()

    def spent(self) -> dict[Place, Flops]:
        """Return what was counted so far."""
        self._settle()
        return dict(self._spent)

    def _settle(self) -> None:
        now, place = Flops(self._counter.get_total_flops(), self._elementwise), self._open[-1]
        more = now - self._seen
        if place[1] == "backward":
            more = Flops(more.products)
        self._spent[place] = self._spent.get(place, Flops()) + more
        self._seen = now

    def _count(self, packet: Any, formula: Formula, *arguments: Any, out_val: Any, **options: Any) -> int:
        """Count an elementwise operation aside, and return what torch's own counter makes of it."""
        self._elementwise += formula(*arguments, out_val=out_val, **options)
        own = flop_registry.get(packet)
        return int(own(*arguments, out_val=out_val, **options)) if own else 0


def _raw(formula: Any) -> Any:
    """Mark a formula as one that is to be given tensors instead of shapes."""
    formula._get_raw = True
    return formula
