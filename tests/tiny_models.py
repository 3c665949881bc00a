"""Networks that take milliseconds; in a module, so that worker processes find them by name."""

import numpy as np
from torch import nn


def two_widths(client_id: int, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return one of two networks of different widths, the second with batch norm and dropout."""
    return _two_kinds(client_id % 2, 8 if client_id % 2 == 0 else 12, shape, num_classes)


def equal_heads(client_id: int, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return one of the same two networks, with features of one width."""
    return _two_kinds(client_id % 2, 10, shape, num_classes)


def one_architecture(client_id: int, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Return the network with batch norm and dropout, for all clients."""
    return _two_kinds(1, 12, shape, num_classes)


def _two_kinds(kind: int, width: int, shape: tuple[int, ...], num_classes: int) -> nn.Module:
    inputs = int(np.prod(shape))
    if kind == 0:
        return nn.Sequential(nn.Flatten(), nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, num_classes))
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(inputs, width),
        nn.BatchNorm1d(width),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(width, num_classes),
    )
