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
from motley.training.batches import num_used
from motley.training.evaluation import Score, evaluate
from motley.training.inputs import Normalizer
from motley.training.local import Step
from motley.training.modes import evaluation_mode

Measure = Callable[[SplitModel, Tensor], Tensor]


def local_prototypes(client: Client, *, feature: Literal["pooled", "raw"] = "pooled") -> Tensor:
    """Return the mean feature of every class of the training part, (C, d) float64, NaN where the class is absent.

    One pass after training, in evaluation mode, without augmentation, all samples (but see `shared_means`).

    Args:
        client: Whose model and training part are used.
        feature: "raw" takes the output of the backbone before it is pooled to the common width.

    Source: FedTopo, Eq. 2.
    """
    if feature == "raw":
        return shared_means(client, lambda model, x: model.raw_features(x))
    return shared_means(client, lambda model, x: model.features(x))


def shared_means(client: Client, measure: Measure) -> Tensor:
    """Return class means as methods share them: of all training samples, or as the run's `class_means` says.

    Args:
        client: Whose model and training part are used.
        measure: Model and inputs (B, ...) to values (B, k).

    Returns:
        Shape (C, k), float64, NaN for a class without a sample behind it (see `counts_behind`).

    Source: rule R5; FedTopo sheet, section 11 (a pass over the loader that drops the last batch).
    """
    held, number = client.shard.train, _num_behind(client)
    if number == len(held):
        return class_means(client, measure)
    front = Samples(held.x[: max(1, number)], held.y[: max(1, number)])  # one sample tells the width, if none counts
    return _means(client, measure, front, counts_behind(client))


def counts_behind(client: Client) -> Tensor:
    """Return how many samples of each class are behind `shared_means`, (C,) int64."""
    number = _num_behind(client)
    if number == len(client.shard.train):
        return client.shard.counts
    return torch.bincount(client.shard.train.y[:number], minlength=client.num_classes)


def _num_behind(client: Client) -> int:
    number, options = len(client.shard.train), client.training
    return number if options.class_means == "all" else num_used(number, options.batch_size, options.last_batch)


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
    shard = client.shard
    held, counts = (shard.train, shard.counts) if part == "train" else (shard.validation, shard.validation_counts)
    assert len(held), f"a client without {part} samples has no class means"
    return _means(client, measure, held, counts)


def _means(client: Client, measure: Measure, held: Samples, counts: Tensor) -> Tensor:
    """Return sums over samples, of which there must be one, divided by the counts of the classes."""
    size, model = client.evaluation.batch_size, client.for_inference
    sums: Tensor | None = None
    normalize = Normalizer.of(client.shard.normalization, held.x)
    with torch.inference_mode(), evaluation_mode(model):
        for start in range(0, len(held), size):
            values = measure(model, normalize(held.x[start : start + size]))
            more, _ = class_sums(values, held.y[start : start + size], client.num_classes)
            sums = more if sums is None else sums + more
    assert sums is not None, "class means need a sample"
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
        self.counts = torch.zeros_like(client.shard.counts)  # of the samples that passed by in that epoch
        shape = client.num_classes, client.model.feature_width
        self._sums = torch.zeros(shape, dtype=torch.float64, device=self.counts.device)

    def __call__(self, epoch: int, step: Step) -> None:
        """Add the features of a batch."""
        if epoch == self._last and step.features is not None:
            part, counts = class_sums(step.features.detach(), step.y, self._client.num_classes)
            self._sums, self.counts = self._sums + part, self.counts + counts

    def result(self) -> Tensor:
        """Return the prototypes, (C, d) float64, NaN where no sample of the class passed by."""
        return class_prototypes(self._sums, self.counts)
