"""What the methods share in which a client learns from its peers' models: snapshots, teachers, the round."""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Generic, TypeVar

import pydantic.dataclasses
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from motley.draws import Draws
from motley.federation import Client, Task, Value
from motley.functional.distillation import distillation_loss
from motley.messages import Message, weights
from motley.methods.contracts import PeerMethod
from motley.methods.teachers import Weights, copy_weights, finite_logits, learn_from_finite
from motley.options import STRICT
from motley.training.evaluation import check_snapshot
from motley.training.local import Step, Terms, train_local

AGGREGATED_AT_ONCE = 2_000_000  # logits of a chunk: the filters need some ten numbers of 8 bytes for each

Aggregate = Callable[[Tensor], Tensor]
Added = Callable[[Step], Terms] | None  # further terms of a loss


def distil(
    client: Client,
    teachers: Mapping[int, Weights],
    aggregate: Aggregate | None,
    draws: Draws,
    *,
    round: int,
    temperature: float,
    loss_weight: float,
    added: Added = None,
) -> None:
    """Train a client for a round on its labels and on what its teachers say together (CRAD, Eq. 9).

    L = (1 - lambda) CE(z, y) + lambda T^2 KL(target || softmax(z / T)); without teachers or with lambda = 0 the loss
    is CE alone.

    Args:
        client: The student.
        teachers: The weights of each peer, by peer id.
        aggregate: Teacher logits (M, B, C) to targets (B, C); not read without teachers.
        draws: The run's generators.
        round: The round, from 1.
        temperature: T.
        loss_weight: lambda, 0..1.
        added: Further terms of the loss.

    Raises:
        NonFiniteTeacher: What a teacher says is not finite; `learn_from_finite` begins again without it.
        NonFiniteLoss: A term was not finite.
    """

    def teach(x: Tensor) -> Tensor:
        said = [finite_logits(client, peer, held, x) for peer, held in teachers.items()]
        assert aggregate is not None
        logits = torch.stack(said)  # (M, n, C): one number a teacher, sample and class, whatever the models are
        at_once = max(1, AGGREGATED_AT_ONCE // (logits.shape[0] * logits.shape[2]))
        return torch.cat([aggregate(part) for part in torch.split(logits, at_once, dim=1)])

    def loss(step: Step) -> Terms:
        plain = cross_entropy(step.logits, step.y)
        more = added(step) if added else {}
        if step.targets is None:
            return {"cross_entropy": plain, **more}
        learned = distillation_loss(step.logits, step.targets, temperature)
        return {"cross_entropy": (1 - loss_weight) * plain, "distillation": loss_weight * learned, **more}

    train_local(client, loss, draws, round=round, teach=teach if teachers and loss_weight else None)


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class DistilOptions:
    """Options of every method that sends models alone."""

    temperature: Annotated[float, Field(gt=0, description="T, of the soft targets and of the loss")] = 3.0
    loss_weight: Annotated[float, Field(ge=0, le=1, description="lambda, share of the distillation term")] = 0.7
    warmup_rounds: Annotated[int, Field(ge=0, description="rounds at the start without teachers")] = 0


def no_teachers(warm: bool) -> dict[str, Value]:
    """Return what a row says of a student whose loss was the cross-entropy alone."""
    return {"peers": [], "reason": "warm-up" if warm else "no peer sent a model that could be used"}


Options = TypeVar("Options", bound=DistilOptions)


@dataclass(frozen=True)
class Model(Message):
    """A model, frozen before the round."""

    weights: Mapping[str, Tensor] = weights("state dict of the model")


class ModelTeaching(PeerMethod[Model], Generic[Options]):
    """A method in which models alone travel; it says who teaches, and how what they say becomes a target."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def start(self, client: Client, draws: Draws) -> None:
        pass

    def snapshot(self, client: Client, round: int) -> Model:
        return Model(copy_weights(client))

    def check(self, message: Model, peer: int, task: Task) -> None:
        """Refuse weights of another architecture."""
        check_snapshot(task, peer, message.weights)

    @abstractmethod
    def lesson(self, client: Client, peers: Mapping[int, Weights]) -> tuple[Mapping[int, Weights], Aggregate]:
        """Return the teachers of a client with M >= 1 peers, and what makes targets (B, C) of their logits."""

    def peer_round(self, client: Client, inbox: Mapping[int, Model], round: int, draws: Draws) -> None:
        """Learn from the peers (CRAD, Eq. 9); alone or in the warm-up the loss is the cross-entropy."""
        options = self.options
        warm = round <= options.warmup_rounds

        def learn(held: Mapping[int, Model]) -> None:
            teachers: Mapping[int, Weights] = {}
            aggregate = None
            if not held:
                client.journal["teachers"] = no_teachers(warm)
            else:
                teachers, aggregate = self.lesson(client, {peer: message.weights for peer, message in held.items()})
            distil(
                client,
                teachers,
                aggregate,
                draws,
                round=round,
                temperature=options.temperature,
                loss_weight=options.loss_weight,
            )

        learn_from_finite(client, {} if warm else inbox, learn)
