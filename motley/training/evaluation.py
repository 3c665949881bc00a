"""The one loop of evaluation, and scoring of foreign models; evaluation mode, no gradient, nothing changed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as nnf
from torch import Tensor, nn
from torch.func import functional_call

from motley.data.shards import Normalization, Samples
from motley.federation import Task
from motley.models.inference import check_weights
from motley.training.inputs import Normalizer
from motley.training.modes import evaluation_mode

Predict = Callable[[Tensor], Tensor]
PredictAll = Callable[[Tensor], Mapping[str, Tensor]]


@dataclass(frozen=True)
class Score:
    """How a model did on a set of samples, by class, as plain numbers.

    Attributes:
        correct: Right answers per class.
        count: Samples per class.
        loss: Mean cross-entropy over the samples; None without samples.
    """

    correct: tuple[int, ...]
    count: tuple[int, ...]
    loss: float | None

    @property
    def accuracy(self) -> float | None:
        """Return the share of right answers; None without samples."""
        return sum(self.correct) / sum(self.count) if sum(self.count) else None


def evaluate(
    model: nn.Module,
    predict: Predict,
    samples: Samples,
    normalization: Normalization,
    *,
    num_classes: int,
    batch_size: int,
) -> Score:
    """Score one predictor on samples, of which there may be none; see `evaluate_all`."""
    if not len(samples):
        return Score((0,) * num_classes, (0,) * num_classes, None)
    scores = evaluate_all(
        model, lambda x: {"": predict(x)}, samples, normalization, num_classes=num_classes, batch_size=batch_size
    )
    return scores[""]


def evaluate_all(
    model: nn.Module,
    predict: PredictAll,
    samples: Samples,
    normalization: Normalization,
    *,
    num_classes: int,
    batch_size: int,
) -> dict[str, Score]:
    """Score several predictors of one model on samples, in one pass.

    Args:
        model: Put into evaluation mode for the time of the pass.
        predict: Normalised inputs (B, ...) to scores (B, C) by predictor; the largest wins, the lower class at a tie.
        samples: What to score on; at least one.
        normalization: How stored samples become inputs.
        num_classes: C.
        batch_size: Samples in a batch; the result does not depend on it beyond rounding.
    """
    count = tuple(torch.bincount(samples.y.cpu(), minlength=num_classes).tolist())
    guesses: dict[str, list[Tensor]] = {}
    losses: dict[str, list[Tensor]] = {}
    normalize = Normalizer.of(normalization, samples.x)
    with torch.inference_mode(), evaluation_mode(model):
        for x, y in zip(torch.split(samples.x, batch_size), torch.split(samples.y, batch_size), strict=True):
            for name, raw in predict(normalize(x)).items():
                scores = raw.float()
                guesses.setdefault(name, []).append(scores.argmax(dim=1))
                losses.setdefault(name, []).append(nnf.cross_entropy(scores, y, reduction="sum"))
        found = {}
        for name, guessed in guesses.items():
            right = torch.bincount(samples.y[torch.cat(guessed) == samples.y], minlength=num_classes)
            total = torch.stack(losses[name]).double().cumsum(0)[-1]
            found[name] = Score(tuple(right.tolist()), count, total.item() / len(samples))
    return found


def teacher_logits(task: Task, peer: int, weights: Mapping[str, Tensor], x: Tensor, *, batch_size: int) -> Tensor:
    """Return the logits (n, C) of inputs (n, ...) that a peer's received weights give, in evaluation mode.

    Raises:
        InvalidMessage: The weights are not those of the peer's architecture.
    """
    model = task.inference.of_weights(task.architecture(peer), task.template(peer), weights)
    with torch.inference_mode():
        return torch.cat([model(batch) for batch in torch.split(x, batch_size)])


def check_snapshot(task: Task, peer: int, weights: Mapping[str, Tensor]) -> None:
    """Refuse weights that are not those of the peer's architecture.

    Raises:
        InvalidMessage: They are not; the sentence says what is wrong.
    """
    check_weights(task.architecture(peer), task.template(peer), weights)


def score_snapshot(template: nn.Module, weights: Mapping[str, Tensor], x: Tensor) -> Tensor:
    """Return the logits (B, C) that a received snapshot gives, in evaluation mode; the template is not changed."""
    own = template.state_dict()
    with torch.inference_mode(), evaluation_mode(template):
        held = {name: _laid_out(tensor, own.get(name, tensor)) for name, tensor in weights.items()}
        logits: Tensor = functional_call(template, held, (x,))
    return logits


def _laid_out(tensor: Tensor, like: Tensor) -> Tensor:
    """Return a tensor in the memory layout of another: blobs do not keep it, and convolutions round by it."""
    if tensor.shape != like.shape or tensor.stride() == like.stride():
        return tensor
    return torch.empty_like(like, dtype=tensor.dtype).copy_(tensor)
