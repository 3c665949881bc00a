"""Auxiliary models for tests: a small network that is equal for all, and a table of features with a given head."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import torch
from methods.small_federation import C
from methods.table_students import Table
from torch import Tensor, nn

from motley.models.split import SplitModel

OPTIONS = {"auxiliary": "any"}  # the name means nothing to the makers below


def network(*, batch_norm: bool = True, width: int | None = None) -> SplitModel:
    """Return a small network of 1 x 4 x 4 inputs whose own features are 6 wide; no dropout, which would draw numbers."""
    norm = nn.BatchNorm1d(6) if batch_norm else nn.Identity()
    pool = nn.Identity() if width in (None, 6) else nn.AdaptiveAvgPool1d(width)
    return SplitModel(
        nn.Sequential(nn.Flatten(), nn.Linear(16, 6), norm, nn.Tanh()), nn.Linear(width or 6, C), pool=pool
    )


def maker(tiny: SimpleNamespace, *, batch_norm: bool = True) -> Callable[[str, int | None], SplitModel]:
    """Return what makes networks that always start alike, as `Task.auxiliary` does."""

    def make(name: str, width: int | None = None) -> SplitModel:
        with tiny.draws.scope("init"):
            return network(batch_norm=batch_norm, width=width)

    return make


def answers(rows: Sequence[Sequence[float]]) -> SplitModel:
    """Return a model whose features are its logits, given by a table."""
    return SplitModel(Table(rows), nn.Identity(), feature_width=len(rows[0]), num_classes=len(rows[0]))


def featured(rows: Sequence[Sequence[float]], head: Sequence[Sequence[float]]) -> SplitModel:
    """Return a model whose features are given by a table, with this head without bias."""
    layer = nn.Linear(len(rows[0]), len(head), bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(head))
    return SplitModel(Table(rows), layer)


def gradient(before: Tensor | Sequence[Sequence[float]], after: Tensor) -> Tensor:
    """Return what a step at rate 1 took away, float64."""
    return torch.as_tensor(before, dtype=torch.float64) - after.detach().double()
