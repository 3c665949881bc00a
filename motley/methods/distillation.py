"""What the methods share in which a client learns from its peers' models: snapshots, teachers, the round."""

import warnings
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
from motley.errors import MotleyWarning, NonFiniteLoss, NonFiniteTeacher
from motley.federation import Client
from motley.functional.distillation import distillation_loss
from motley.messages import Message, weights
from motley.methods.contracts import PeerMethod, Sent
from motley.options import STRICT
from motley.training.evaluation import teacher_logits
from motley.training.local import Step, Terms, train_local

Weights = Mapping[str, Tensor]
AGGREGATED_AT_ONCE = 2_000_000  # logits of a chunk: the filters need some ten numbers of 8 bytes for each

Aggregate = Callable[[Tensor], Tensor]
Added = Callable[[Step], Terms] | None  # further terms of a loss


def copy_weights(client: Client) -> dict[str, Tensor]:
    """Return a frozen copy of a client's state dict; it does not change while the client trains (case C8)."""
    return {name: tensor.detach().clone() for name, tensor in client.model.state_dict().items()}


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


def finite_logits(client: Client, peer: int, weights: Weights, x: Tensor) -> Tensor:
    """Return the logits (n, C) that a peer's weights give on a client's inputs.

    Raises:
        NonFiniteTeacher: They are not finite.
    """
    logits = teacher_logits(client.task, peer, weights, x, batch_size=client.evaluation.batch_size)
    if not bool(torch.isfinite(logits).all()):
        raise NonFiniteTeacher(peer)
    return logits


def learn_from_finite(client: Client, inbox: Mapping[int, Sent], learn: Callable[[Mapping[int, Sent]], None]) -> None:
    """Let a client learn from its peers; one that says what is not finite, though its weights are, is left out.

    The round then begins again with the same draws: its bits are those of a round in which that peer sent nothing.

    Args:
        client: The student; `not_finite` in its journal names who was left out.
        inbox: What the peers sent.
        learn: Trains the client with those that it is given.

    Raises:
        NonFiniteLoss: The client's own model says what is not finite.
    """
    before, memory, held = copy_weights(client), dict(client.memory), dict(inbox)
    while True:
        try:
            learn(held)
            break
        except NonFiniteTeacher as error:
            if error.peer not in held:  # the client itself, its own teacher
                raise NonFiniteLoss("distillation") from error
            del held[error.peer]
            client.model.load_state_dict(before)
            client.memory.clear()
            client.memory.update(memory)
            text = f"peer {error.peer} answers with numbers that are not finite; it teaches nobody who gets them"
            warnings.warn(text, MotleyWarning, stacklevel=2)
    if len(held) < len(inbox):
        client.journal["not_finite"] = [peer for peer in inbox if peer not in held]


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class DistilOptions:
    """Options of every method that sends models alone."""

    temperature: Annotated[float, Field(gt=0, description="T, of the soft targets and of the loss")] = 3.0
    loss_weight: Annotated[float, Field(ge=0, le=1, description="lambda, share of the distillation term")] = 0.7
    warmup_rounds: Annotated[int, Field(ge=0, description="rounds at the start without teachers")] = 0


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

    @abstractmethod
    def lesson(self, client: Client, peers: Mapping[int, Weights]) -> tuple[Mapping[int, Weights], Aggregate]:
        """Return the teachers of a client with M >= 1 peers, and what makes targets (B, C) of their logits."""

    def peer_round(self, client: Client, inbox: Mapping[int, Model], round: int, draws: Draws) -> None:
        """Learn from the peers (CRAD, Eq. 9); alone or in the warm-up the loss is the cross-entropy."""
        options = self.options

        def learn(held: Mapping[int, Model]) -> None:
            teachers: Mapping[int, Weights] = {}
            aggregate = None
            if held:
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

        learn_from_finite(client, inbox if round > options.warmup_rounds else {}, learn)
