"""What the methods share whose server fits the common head to what clients send of their features."""

from typing import Annotated, Generic, TypeVar

import pydantic.dataclasses
from pydantic import Field
from torch import Tensor

from motley.draws import Draws
from motley.federation import Client, Task
from motley.functional.head_fitting import Reduction, fit_head
from motley.messages import Message
from motley.methods.averaging import Common, plain_loss
from motley.methods.common_head import apply_head, initial_head
from motley.methods.contracts import ServerMethod
from motley.options import STRICT
from motley.training.local import train_local

ServerBatch = Annotated[int, Field(ge=1, description="rows in a batch of the server")]


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class FitOptions:
    """How the server fits the head."""

    server_lr: Annotated[float, Field(ge=0, description="learning rate of the server; 0 leaves the head")] = 0.01
    server_epochs: Annotated[int, Field(ge=1, description="passes of the server over what it received")] = 1
    server_batch: ServerBatch = 10


Options = TypeVar("Options", bound=FitOptions)
Up = TypeVar("Up", bound=Message)


class FittedHead(ServerMethod[Common, Common, Up], Generic[Options, Up]):
    """A method whose server holds the common head; it says what clients send and how the head is fitted to it."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def start(self, task: Task, draws: Draws) -> Common:
        return Common(initial_head(task, draws))

    def broadcast(self, state: Common, client_id: int) -> Common:
        return state

    def predict(self, client: Client, view: Common | None, x: Tensor) -> Tensor:
        """Classify with the common head as it is now."""
        return apply_head(client, None if view is None else view.weights, client.model.features(x))

    def fitted(
        self, state: Common, features: Tensor, labels: Tensor, *, reduction: Reduction, round: int, draws: Draws
    ) -> Common:
        """Return the head fitted to features (n, d) with classes (n,) or probabilities (n, C)."""
        options = self.options
        head = fit_head(
            state.weights,
            features,
            labels,
            epochs=options.server_epochs,
            batch_size=options.server_batch,
            lr=options.server_lr,
            reduction=reduction,
            generator=draws.generator("server-shuffle", round=round),
        )
        return Common(head)


def train_under_head(client: Client, received: Common, draws: Draws, *, round: int) -> None:
    """Install the common head, then train backbone and head on the cross-entropy."""
    client.model.head.load_state_dict(received.weights)
    train_local(client, plain_loss, draws, round=round)
