"""What the methods share in which a client learns from its peers' models: snapshots, teachers, the round."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from motley.draws import Draws
from motley.federation import Client
from motley.functional.distillation import distillation_loss
from motley.training.evaluation import teacher_logits
from motley.training.local import Step, Terms, train_local

Weights = Mapping[str, Tensor]
AGGREGATED_AT_ONCE = 2_000_000  # logits of a chunk: the filters need some ten numbers of 8 bytes for each

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

    size = client.evaluation.batch_size

    def teach(x: Tensor) -> Tensor:
        said = [teacher_logits(client.task, peer, held, x, batch_size=size) for peer, held in teachers.items()]
        logits = torch.stack(said)  # (M, n, C): one number a teacher, sample and class, whatever the models are
        at_once = max(1, AGGREGATED_AT_ONCE // (logits.shape[0] * logits.shape[2]))
        return torch.cat([aggregate(part) for part in torch.split(logits, at_once, dim=1)])

    def loss(step: Step) -> Terms:
        plain = cross_entropy(step.logits, step.y)
        if step.targets is None:
            return {"cross_entropy": plain}
        learned = distillation_loss(step.logits, step.targets, temperature)
        return {"cross_entropy": (1 - loss_weight) * plain, "distillation": loss_weight * learned}

    train_local(client, loss, draws, round=round, teach=teach if teachers and loss_weight else None)
