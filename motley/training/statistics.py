"""Passes over a client's own data that methods share: prototypes, and accuracy by class (rule R5)."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from motley.data.shards import Samples
from motley.federation import Client
from motley.functional.prototypes import class_prototypes, class_sums
from motley.models.split import SplitModel
from motley.training.evaluation import Score, evaluate
from motley.training.inputs import Normalizer
from motley.training.local import Step
from motley.training.modes import evaluation_mode

Measure = Callable[[SplitModel, Tensor], Tensor]


def local_prototypes(client: Client, *, feature: Literal["pooled", "raw"] = "pooled") -> Tensor:
    """Return the mean feature of every class of the training part, (C, d) float64, NaN where the class is absent.

    One pass after training, in evaluation mode, without augmentation, all samples.

    Args:
        client: Whose model and training part are used.
        feature: "raw" takes the output of the backbone before it is pooled to the common width.

    Source: FedTopo, Eq. 2.
    """
    if feature == "raw":
        return class_means(client, lambda model, x: model.raw_features(x))
    return class_means(client, lambda model, x: model.features(x))


def class_means(client: Client, measure: Measure, *, part: Literal["train", "validation"] = "train") -> Tensor:
    """Return the mean over every class of the training part of what is measured on its samples.

    One pass after training, in evaluation mode, without gradient and augmentation, all samples.

    Args:
        client: Whose model and data are used.
        measure: Model and inputs (B, ...) to values (B, k), for example features or softmax outputs.
        part: Of its data; it must have samples.

    Returns:
        Shape (C, k), float64, NaN where the class is absent.

    Source: rule R5.
    """
    shard, size = client.shard, client.evaluation.batch_size
    held, counts = (shard.train, shard.counts) if part == "train" else (shard.validation, shard.validation_counts)
    sums: Tensor | None = None
    normalize = Normalizer.of(shard.normalization, held.x)
    model = client.for_inference
    with torch.inference_mode(), evaluation_mode(model):
        for start in range(0, len(held), size):
            values = measure(model, normalize(held.x[start : start + size]))
            more, _ = class_sums(values, held.y[start : start + size], client.num_classes)
            sums = more if sums is None else sums + more
    assert sums is not None, f"a client without {part} samples has no class means"
    return class_prototypes(sums, counts)


def validation_score(client: Client) -> Score:
    """Return how the client's model does on its own validation part."""
    return own_score(client, client.shard.validation)


def own_score(client: Client, samples: Samples) -> Score:
    """Return how the client's model does on some of its own samples."""
    model = client.for_inference
    return evaluate(
        model,
        model,
        samples,
        client.shard.normalization,
        num_classes=client.num_classes,
        batch_size=client.evaluation.batch_size,
    )


def validation_cross_entropies(client: Client) -> Tensor:
    """Return the mean cross-entropy of each class of the client's validation part, (C,) float64, NaN without samples.

    Source: CRAD sheet, rule `cross-entropy` of Table 4.
    """
    if not len(client.shard.validation):
        return torch.full((client.num_classes,), torch.nan, dtype=torch.float64)
    surprise = class_means(client, lambda model, x: -log_softmax(model(x), dim=1), part="validation")
    return surprise.diagonal().clamp(min=0)  # of class c, how surprised the model is at c


class RunningPrototypes:
    """Prototypes accumulated while training: the features of the last local epoch, of weights that still move.

    It saves the extra pass, as public code of FedProto does; hand it to `train_local` as `observe`.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._last = client.training.local_epochs - 1
        self._sums: Tensor | None = None

    def __call__(self, epoch: int, step: Step) -> None:
        """Add the features of a batch."""
        if epoch == self._last and step.features is not None:
            part, _ = class_sums(step.features.detach(), step.y, self._client.num_classes)
            self._sums = part if self._sums is None else self._sums + part

    def result(self) -> Tensor:
        """Return the prototypes, (C, d) float64, NaN where the class is absent."""
        assert self._sums is not None, "a client without training samples has no prototypes"
        return class_prototypes(self._sums, self._client.shard.counts)
