"""What the methods share that train an auxiliary model beside each client's own: its start and mutual distillation."""

from collections.abc import Callable
from typing import Annotated

from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from motley.draws import Draws
from motley.federation import Client, Task
from motley.functional.distillation import kl
from motley.methods.averaging import copy_state
from motley.training.auxiliary import Auxiliary, features_and_logits
from motley.training.local import Step, Terms, train_local
from motley.training.memory import recall_module

Architecture = Annotated[str, Field(description="architecture of the auxiliary model; 'motley list models' shows all")]
Alpha = Annotated[float, Field(ge=0, le=1, description="share of the labels in the loss of the client's model")]
Beta = Annotated[float, Field(ge=0, le=1, description="share of the labels in the loss of the auxiliary model")]


def initial_auxiliary(task: Task, name: str, width: int | None = None) -> dict[str, Tensor]:
    """Return the state of the auxiliary model before round 1, equal for all (rule R7)."""
    return copy_state(task.auxiliary(name, width))


def learn_mutually(
    client: Client,
    auxiliary: Auxiliary,
    draws: Draws,
    *,
    round: int,
    alpha: float,
    beta: float,
    temperature: float = 1.0,
    adjust: Callable[[], None] | None = None,
) -> None:
    """Train a client's model and an auxiliary model, each on labels and on what the other says (FML).

    L_loc = alpha CE(o, y) + (1 - alpha) KL(sg(o^a) || o); L_aux = beta CE(o^a, y) + (1 - beta) KL(sg(o) || o^a), both
    from the same forward passes; as teachers carry no gradient, one backward pass of the sum serves both.

    Args:
        client: Who trains.
        auxiliary: The other model, as received.
        draws: The run's generators.
        round: The round, from 1.
        alpha, beta: Shares of the labels, 0..1; at 1 the divergence is left out.
        temperature: T of both divergences, which are then multiplied by T^2.
        adjust: See `train_local`.
    """

    def loss(step: Step) -> Terms:
        _, said = features_and_logits(auxiliary, step.x)
        own, y = step.logits, step.y
        terms = {"cross_entropy": alpha * cross_entropy(own, y), "auxiliary": beta * cross_entropy(said, y)}
        if alpha < 1:
            terms["distillation"] = (1 - alpha) * kl(said, own, temperature)
        if beta < 1:
            terms["auxiliary_distillation"] = (1 - beta) * kl(own, said, temperature)
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
