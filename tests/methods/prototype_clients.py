"""Clients whose features are known, for the methods that share prototypes."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from table_students import Table
from torch import Tensor, nn

from motley.federation import Client
from motley.models.split import SplitModel

C = 3


def fixed_client(tiny, features: Sequence[Sequence[float]], labels: Sequence[int], **more: Any) -> Client:
    """Return a client whose features are its inputs: training moves its head alone."""
    x = torch.tensor(features, dtype=torch.float32)[:, None, :]
    torch.manual_seed(1)
    model = SplitModel(nn.Flatten(), nn.Linear(x.shape[2], C))
    return tiny.client(x, labels, model, **{"num_classes": C, "lr": 0.1} | more)


def pulled_client(tiny, features: Sequence[Sequence[float]], labels: Sequence[int], **more: Any) -> Client:
    """Return a client whose features are weights, and whose head is zero: the cross-entropy does not move them."""
    head = nn.Linear(len(features[0]), C)
    nn.init.zeros_(head.weight)
    model = SplitModel(Table(features), head)
    x = torch.arange(float(len(features))).view(-1, 1, 1)
    return tiny.client(x, labels, model, **{"num_classes": C, "lr": 1.0} | more)


def models_of(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of clients' models in a checkpoint."""
    return {name: tensor for name, tensor in weights.items() if "/model/" in name}


def same_models(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
    """Assert that all clients have the same weights, bit for bit."""
    one, other = models_of(one), models_of(other)
    assert one
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name
