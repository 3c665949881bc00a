"""What the methods share that learn on a proxy set: the private training of a round, and the terms of a digest."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, softmax

from motley.draws import Draws
from motley.federation import Client
from motley.functional.distillation import distillation_loss
from motley.training.digest import DigestLoss
from motley.training.local import Step, Terms, train_local

ROUNDING = 1e-5  # of float32 logits, relative to 1 + their size


def train_on_labels(client: Client, draws: Draws, *, round: int) -> None:
    """Train a client on its own samples with the cross-entropy alone, as `local` does."""

    def loss(step: Step) -> Terms:
        return {"cross_entropy": cross_entropy(step.logits, step.y)}

    train_local(client, loss, draws, round=round)


def absolute_error(logits: Tensor, targets: Tensor) -> Terms:
    """Return the mean absolute difference to target logits, over samples and classes; one of rounding counts as none.

    The gradient is the sign of the difference. So a rounding, as between batches of another size, would move as much as
    a disagreement, and a client whose consensus is its own prediction would not stay where it is.
    """
    difference = (logits - targets).abs()
    rounding = ROUNDING * (1 + targets.abs())
    return {"absolute_error": torch.where(difference > rounding, difference, 0.0).mean()}


def against_labels(logits: Tensor, labels: Tensor) -> Terms:
    """Return the cross-entropy with labels (B,), or with target probabilities (B, C)."""
    return {"target_cross_entropy": cross_entropy(logits, labels)}


def divergence(temperature: float) -> DigestLoss:
    """Return T^2 KL(softmax(target / T) || softmax(logits / T)) as a loss of target logits."""

    def terms(logits: Tensor, targets: Tensor) -> Terms:
        return {"divergence": distillation_loss(logits, softmax(targets / temperature, dim=1), temperature)}

    return terms
