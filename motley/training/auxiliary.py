"""Auxiliary models: networks of one architecture that all clients train beside their own, and that travel instead."""

import copy
from collections.abc import Callable, Mapping
from functools import lru_cache

import torch
from torch import Tensor

from motley.federation import Client, Task
from motley.models.split import SplitModel
from motley.training.modes import evaluation_mode, freeze_batch_norm
from motley.training.statistics import class_means

Auxiliary = SplitModel  # the name by which methods, who do not know models, speak of it


def received_auxiliary(client: Client, name: str, state: Mapping[str, Tensor], width: int | None = None) -> Auxiliary:
    """Return a new auxiliary model with received weights, on the client's device.

    Args:
        client: Who will train it.
        name: Its architecture.
        state: Its whole state dict; it is copied.
        width: Its feature width; None: its own.
    """
    model = client.task.auxiliary(name, width)
    model.load_state_dict(state)
    return model


def received_model(task: Task, peer: int, weights: Mapping[str, Tensor]) -> SplitModel:
    """Return a new model of a peer's architecture with received weights, to be trained by whom received them.

    Args:
        task: What everybody knows.
        peer: Whose model it is.
        weights: Its whole state dict; it is copied.
    """
    model = copy.deepcopy(task.template(peer))
    model.load_state_dict(weights)
    return model


def features_and_logits(auxiliary: Auxiliary, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return z^a (B, d_a) and o^a (B, C) of a training step; one sample leaves batch norm in evaluation mode (R4)."""
    with freeze_batch_norm(auxiliary, when=len(x) == 1):
        features = auxiliary.features(x)
        return features, auxiliary.classify(features)


def auxiliary_for_inference(task: Task, name: str, state: Mapping[str, Tensor], width: int | None = None) -> Auxiliary:
    """Return a model with these weights for evaluation; it is good until the next call, and must not be changed."""
    return task.inference.of_weights(f"auxiliary {name} {width}", _template(task.auxiliary, name, width), state)


@lru_cache(maxsize=8)  # evaluation asks batch by batch, and drawing initial weights costs more than a small batch
def _template(make: Callable[[str, int | None], Auxiliary], name: str, width: int | None) -> Auxiliary:
    with torch.inference_mode(False):
        return make(name, width).eval()


def feature_movement(client: Client, trained: Auxiliary, received: Auxiliary) -> float:
    """Return the mean over a client's training samples of how far training moved the auxiliary model's features.

    mean of ||f_trained(x) - f_received(x)||_2, in evaluation mode, without augmentation; 0 without samples (rule R5).

    Args:
        client: Whose training part is used.
        trained: The auxiliary model after local training.
        received: The same before.
    """
    counts = client.shard.counts.double()
    if not len(client.shard.train):
        return 0.0
    with evaluation_mode(trained, received):
        moved = class_means(
            client, lambda _, x: (trained.features(x) - received.features(x)).norm(dim=1, keepdim=True)
        )[:, 0]
    return float((counts * torch.where(counts > 0, moved, 0.0)).sum() / counts.sum())
