"""Clients whose logits on two proxy samples are known: rows 0 and 1 of a table; their own sample is row 2."""

from typing import Any

import torch
from table_students import table
from torch import Tensor

from motley.federation import Client, Proxy

OWN = [1.0, 2.0, 3.0]  # logits on the own sample, whose label is 0


def proxy_student(tiny, rows: list[list[float]], **more: Any) -> Client:
    """Return a client that says `rows` of the proxy set and will step at rate 1."""
    proxy = Proxy(torch.arange(2.0).view(2, 1, 1), torch.tensor([1, 2]))
    template = table([[0.0] * 3] * 3)
    settings = {"lr": 1.0, "num_classes": 3, "proxy": proxy, "template": lambda _: template} | more
    return tiny.client(torch.full((1, 1, 1), 2.0), [0], table([*rows, OWN]), **settings)


def rows_of(client: Client) -> Tensor:
    """Return what a client now says of the two proxy samples, (2, 3) float64."""
    return client.model.backbone.module.rows.detach().double()[:2]
