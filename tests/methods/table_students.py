"""Networks whose logits are known: a table of them. What a student was told then follows from how its table moved."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import softmax

from motley.federation import Client
from motley.models.split import SplitModel

FLOAT32 = 2e-6  # logits of order 10, a step at rate 1


class Table(nn.Module):
    """Answers sample i with row i."""

    def __init__(self, rows: object) -> None:
        super().__init__()
        self.rows = nn.Parameter(torch.tensor(rows, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        return self.rows[x.flatten().long()]


def table(rows: Sequence[Sequence[float]]) -> SplitModel:
    return SplitModel.from_module(Table(rows), num_classes=len(rows[0]), scores_only=True)


def state(rows: Sequence[Sequence[float]]) -> dict[str, Tensor]:
    """Return the weights of a peer with these logits."""
    return dict(table(rows).state_dict())


def float64(rows: Any) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def student(tiny, rows: Sequence[Sequence[float]], labels: Sequence[int], **more: Any) -> Client:
    """Return a client of B samples with these logits (B or more rows), which will step once at rate 1."""
    template = table(torch.zeros(len(rows), len(rows[0])).tolist())
    x = torch.arange(float(len(labels))).view(-1, 1, 1)
    settings = {"template": lambda _: template, "lr": 1.0, "num_classes": len(rows[0])} | more
    return tiny.client(x, labels, table(rows), **settings)


def moved(client: Client, rows: Sequence[Sequence[float]]) -> Tensor:
    """Return the gradient (B, C) of the one step."""
    return (float64(rows) - client.model.backbone.module.rows.detach().double())[: len(client.shard.train)]


def told_target(client: Client, rows: Sequence[Sequence[float]], *, temperature: float, loss_weight: float) -> Tensor:
    """Return the target that explains the step: dL/dz = ((1 - l) (p - y) + l T (softmax(z / T) - q)) / B."""
    y = client.shard.train.y
    z = float64(rows)[: len(y)]
    labels = torch.eye(z.shape[1], dtype=torch.float64)[y]
    plain = (1 - loss_weight) * (softmax(z, dim=1) - labels)
    told = (len(y) * moved(client, rows) - plain) / (loss_weight * temperature)
    return softmax(z / temperature, dim=1) - told
