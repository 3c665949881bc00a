"""What the methods share in which clients send class prototypes and learn from global ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Generic, Literal, TypeVar

import pydantic.dataclasses
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy

from motley.draws import Draws
from motley.federation import Client, Task
from motley.functional.class_tables import pack_rows, rows_fault, unpack_rows
from motley.functional.global_prototypes import nearest, prototype_loss
from motley.messages import Message, entry
from motley.methods.contracts import ServerMethod
from motley.options import STRICT
from motley.training.local import Step, Terms, train_local
from motley.training.memory import recall_state, remember_state
from motley.training.statistics import counts_behind, local_prototypes

Inference = Literal["nearest", "head"]


@dataclass(frozen=True)
class Prototypes(Message):
    """A prototype for each class that has one."""

    rows: Tensor = entry("*", "d", about="one prototype a present class, classes ascending")
    present: Tensor = entry("C", dtype=torch.bool, counted=False, about="which classes have a row")

    def fault(self) -> str:
        """Return what is wrong between rows and mask, or nothing."""
        return rows_fault(self.rows, self.present)


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class PrototypeOptions:
    """Options of every method that pulls features towards global prototypes."""

    loss_weight: Annotated[float, Field(ge=0, description="lambda, strength of the pull towards the prototypes")] = 10.0
    inference: Annotated[
        Inference, Field(description="nearest: the class of the nearest global prototype; head: the client's own head")
    ] = "nearest"


Options = TypeVar("Options", bound=PrototypeOptions)
State = TypeVar("State", bound=Message)
Up = TypeVar("Up", bound=Message)


class PrototypeMethod(ServerMethod[State, Prototypes, Up], Generic[Options, State, Up]):
    """A method whose clients hold global prototypes; it says how the server makes them of what it receives."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def predict(self, client: Client, view: Prototypes | None, x: Tensor) -> Tensor:
        """Classify as `inference` says; before any prototype is known the head classifies."""
        return scores(client, view, x, self.options.inference)

    def other_predictions(self, client: Client, view: Prototypes | None, x: Tensor) -> Mapping[str, Tensor]:
        """The other one of the two inferences."""
        other: Inference = "head" if self.options.inference == "nearest" else "nearest"
        return {other: scores(client, view, x, other)}


def no_prototypes(task: Task) -> Prototypes:
    """Return what is known before round 1."""
    return Prototypes(torch.zeros(0, task.template(0).feature_width), torch.zeros(task.num_classes, dtype=torch.bool))


def own_prototypes(client: Client) -> Prototypes:
    """Return the mean feature of every class that a client holds, by a pass after training (rule R5)."""
    return Prototypes(*pack_rows(local_prototypes(client), counts_behind(client) > 0))


def train_towards(client: Client, received: Prototypes, loss_weight: float, draws: Draws, *, round: int) -> Prototypes:
    """Train on CE(o, y) + lambda MSE(z, g_y) and return the client's prototypes after it.

    What was received is kept, for inference with local state (rule R8).

    Without any prototype, or with lambda = 0, the loss is the cross-entropy alone.
    """
    device = client.shard.counts.device
    table, present = unpack_rows(received.rows, received.present).to(device), received.present.to(device)
    pull = loss_weight > 0 and len(received.rows) > 0

    def loss(step: Step) -> Terms:
        plain = cross_entropy(step.logits, step.y)
        if not pull:
            return {"cross_entropy": plain}
        assert step.features is not None
        return {
            "cross_entropy": plain,
            "prototype": loss_weight * prototype_loss(step.features, step.y, table, present),
        }

    train_local(client, loss, draws, round=round)
    remember_state(client, "prototypes", received.tensors())
    return own_prototypes(client)


def scores(client: Client, view: Prototypes | None, x: Tensor, inference: Inference) -> Tensor:
    """Return the scores (B, C) of one kind of inference; without a view, with the prototypes last received (R8)."""
    if view is None and (held := recall_state(client, "prototypes")):
        view = Prototypes.from_tensors(held)
    if inference == "head" or view is None or not len(view.rows):
        plain: Tensor = client.model(x)
        return plain
    table = unpack_rows(view.rows.to(x.device), view.present)
    return nearest(client.model.features(x), table, view.present.to(x.device))
