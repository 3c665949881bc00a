"""What the methods share that train an auxiliary model beside each client's own: its start and mutual distillation."""

from collections.abc import Callable
from typing import Annotated, Protocol

from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from motley.draws import Draws
from motley.federation import Client, Task
from motley.functional.distillation import Mean, kl
from motley.methods.averaging import copy_state
from motley.training.auxiliary import Auxiliary, features_and_logits
from motley.training.local import Step, Terms, train_local
from motley.training.memory import recall_module

Architecture = Annotated[str, Field(description="architecture of the auxiliary model; 'motley list models' shows all")]
Alpha = Annotated[float, Field(ge=0, le=1, description="share of the labels in the loss of the client's model")]
KL = Annotated[
    Mean, Field(description="mean of a divergence: over samples; element-mean, over all elements, is 1/C of it")
]
Beta = Annotated[float, Field(ge=0, le=1, description="share of the labels in the loss of the auxiliary model")]


class Mutual(Protocol):
    """The options of mutual distillation."""

    @property
    def alpha(self) -> float:
        """Share of the labels in the loss of the client's model."""

    @property
    def beta(self) -> float:
        """Share of the labels in the loss of the auxiliary model."""

    @property
    def kl(self) -> Mean:
        """Mean of both divergences, over samples or over elements."""


def initial_auxiliary(task: Task, name: str, width: int | None = None) -> dict[str, Tensor]:
    """Return the state of the auxiliary model before round 1, equal for all (rule R7)."""
    return copy_state(task.auxiliary(name, width))


def learn_mutually(
    client: Client,
    auxiliary: Auxiliary,
    options: Mutual,
    draws: Draws,
    *,
    round: int,
    temperature: float = 1.0,
    adjust: Callable[[], None] | None = None,
) -> None:
    """Train a client's model and an auxiliary model, each on labels and on what the other says (FML).

    L_loc = alpha CE(o, y) + (1 - alpha) KL(sg(o^a) || o); L_aux = beta CE(o^a, y) + (1 - beta) KL(sg(o) || o^a), both
    from the same forward passes; as teachers carry no gradient, one backward pass of the sum serves both.

    Args:
        client: Who trains.
        auxiliary: The other model, as received.
        options: Shares of the labels, at 1 of which the divergence is left out, and the mean of both divergences.
        draws: The run's generators.
        round: The round, from 1.
        temperature: T of both divergences, which are then multiplied by T^2.
        adjust: See `train_local`.
    """
    alpha, beta = options.alpha, options.beta

    def loss(step: Step) -> Terms:
        _, said = features_and_logits(auxiliary, step.x)
        own, y = step.logits, step.y
        terms = {"cross_entropy": alpha * cross_entropy(own, y), "auxiliary": beta * cross_entropy(said, y)}
        if alpha < 1:
            terms["distillation"] = (1 - alpha) * kl(said, own, temperature, options.kl)
        if beta < 1:
            terms["auxiliary_distillation"] = (1 - beta) * kl(own, said, temperature, options.kl)
        return terms

    train_local(client, loss, draws, round=round, modules=(auxiliary,), adjust=adjust)


def private_layer(client: Client, name: str, inputs: int, outputs: int, draws: Draws, *, bias: bool) -> nn.Linear:
    """Return a linear layer that a client keeps for itself; at first contact with the weights of its address (rule R7).

    Args:
        client: Whose it is; `remember_state` keeps what it becomes.
        name: Under which it is kept, and purpose of its draw.
        inputs, outputs: Widths.
        draws: The run's generators.
        bias: Whether it has one.
    """
    with draws.scope(name, client=client.id):
        layer = nn.Linear(inputs, outputs, bias=bias)
    recall_module(client, name, layer)
    return layer.to(client.shard.counts.device)
