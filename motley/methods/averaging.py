"""What the methods share in which clients train a common part, a model or its head, and the server averages it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import pydantic.dataclasses
import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from motley.draws import Draws
from motley.federation import Client
from motley.functional.averaging import State, average_states, shares
from motley.messages import Message, entry, weights
from motley.methods.contracts import ServerMethod, Upload
from motley.options import STRICT
from motley.training.local import Step, Terms

Weighting = Literal["samples", "uniform"]


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class AveragingOptions:
    """Options of every method that averages a common part."""

    weighting: Annotated[
        Weighting, Field(description="samples: clients count by their training samples; uniform: all alike")
    ] = "samples"


@dataclass(frozen=True)
class Common(Message):
    """What all clients start a round from, and what the server holds."""

    weights: Mapping[str, Tensor] = weights("state dict of the common part, a model or its head")


@dataclass(frozen=True)
class Trained(Message):
    """What a client has made of the common part."""

    weights: Mapping[str, Tensor] = weights("state dict of the common part after local training")
    num_samples: Tensor = entry(dtype=torch.int64, low=0, counted=False, about="training samples n_k, once a run")


class Averaging(ServerMethod[Common, Common, Trained]):
    """A method whose server holds the common part and averages what the clients of a round made of it."""

    def __init__(self, options: AveragingOptions) -> None:
        self.options = options

    def broadcast(self, state: Common, client_id: int) -> Common:
        return state

    def server_round(self, state: Common, uploads: Iterable[Upload[Trained]], round: int, draws: Draws) -> Common:
        """Average with w_k = n_k / sum n or 1 / M (rule R6)."""
        sent = [upload.message for upload in uploads]
        by_samples = self.options.weighting == "samples"
        amounts = [one.num_samples.item() if by_samples else 1.0 for one in sent]
        return Common(mean_state([one.weights for one in sent], amounts, otherwise=state.weights))


def trained(client: Client, part: nn.Module) -> Trained:
    """Return the upload of a client: a frozen copy of a part of its model, and n_k."""
    return Trained(copy_state(part), torch.tensor(len(client.shard.train)))


def copy_state(module: nn.Module) -> dict[str, Tensor]:
    """Return a frozen copy of a module's state dict; it does not change while the module trains."""
    return {name: tensor.detach().clone() for name, tensor in module.state_dict().items()}


def mean_state(states: Sequence[State], amounts: Sequence[float], *, otherwise: State) -> State:
    """Return the weighted mean of states, and what was there before if nobody sent one or all amounts are 0."""
    return average_states(states, shares(amounts)) if sum(amounts) else otherwise


def plain_loss(step: Step) -> Terms:
    """Return the cross-entropy alone."""
    return {"cross_entropy": cross_entropy(step.logits, step.y)}
