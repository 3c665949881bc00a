"""What the methods share in which a client learns from its peers' models: snapshots, teachers, the round."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from motley.draws import Draws
from motley.federation import Client
from motley.functional.distillation import distillation_loss
from motley.training.evaluation import score_snapshot
from motley.training.local import Step, Terms, train_local

Weights = Mapping[str, Tensor]
Aggregate = Callable[[Tensor], Tensor]


def copy_weights(client: Client) -> dict[str, Tensor]:
    """Return a frozen copy of a client's state dict; it does not change while the client trains (case C8)."""
    return {name: tensor.detach().clone() for name, tensor in client.model.state_dict().items()}


def distil(
    client: Client,
    teachers: Mapping[int, Weights],
    aggregate: Aggregate,
    draws: Draws,
    *,
    round: int,
    temperature: float,
    loss_weight: float,
) -> None:
    """Train a client for a round on its labels and on what its teachers say together (CRAD, Eq. 9).

    L = (1 - lambda) CE(z, y) + lambda T^2 KL(target || softmax(z / T)); without teachers or with lambda = 0 the loss
    is CE alone.

    Args:
        client: The student.
        teachers: The weights of each peer, by peer id.
        aggregate: Teacher logits (M, B, C) to targets (B, C).
        draws: The run's generators.
        round: The round, from 1.
        temperature: T.
        loss_weight: lambda, 0..1.
    """

    def teach(x: Tensor) -> Tensor:
        logits = [score_snapshot(client.task.template(peer), held, x) for peer, held in teachers.items()]
        return aggregate(torch.stack(logits))

    def loss(step: Step) -> Terms:
        plain = cross_entropy(step.logits, step.y)
        if step.targets is None:
            return {"cross_entropy": plain}
        learned = distillation_loss(step.logits, step.targets, temperature)
        return {"cross_entropy": (1 - loss_weight) * plain, "distillation": loss_weight * learned}

    train_local(client, loss, draws, round=round, teach=teach if teachers and loss_weight else None)
