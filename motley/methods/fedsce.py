"""FedSCE (our reading): FML whose heads learn within the trajectory of their updates, averaged by how far each moved.

    upload      theta_a,k, the state of the auxiliary model, and delta_f,k        broadcast   theta_a
    inference   the client's own model, alone

    step        the losses of FML; the gradient g of the client's head becomes V V^T g before the step
    V           singular vectors of the r largest singular values of the client's latest `window` raw updates
                u = -lr sum over the steps of a round of g before its projection; from `warmup` updates on
    delta_f,k   mean over the training samples of ||f_a,k(x) - f_a(x)||_2, trained against received
    delta_p,k   ||theta_a,k - theta_a||_2 over parameters
    average     theta_a = sum_k w_k theta_a,k, w_k = phi delta_f,k / sum delta_f + (1 - phi) delta_p,k / sum delta_p

No code is public and of the paper only the abstract is known: auxiliary models carry the knowledge, updates of a
specific layer are confined to a subspace that follows the latest trajectory, and contributions are judged by distances
in feature and parameter space. All else is our reading: the layer is the head, which every architecture has and which
overfits label skew first; raw updates span the subspace, since projected ones could only shrink it; the larger distance
counts more, since the opposite would reward clients that did not train.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import pydantic.dataclasses
import torch
from pydantic import Field
from torch import Tensor

from motley.draws import Draws
from motley.federation import Client, Task
from motley.functional.averaging import average_states, shares
from motley.functional.subspace import contributions
from motley.messages import Message, entry, weights
from motley.methods.auxiliary import KL, Alpha, Architecture, Beta, learn_mutually
from motley.methods.contracts import ServerMethod, Upload
from motley.methods.fedsce_subspace import ConfinedHead
from motley.methods.registry import register
from motley.options import STRICT
from motley.training.auxiliary import Auxiliary, feature_movement, received_auxiliary


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class FedSCEOptions:
    """Options of fedsce."""

    auxiliary: Architecture = "cnn"
    alpha: Alpha = 0.5
    beta: Beta = 0.5
    kl: KL = "batchmean"
    window: Annotated[int, Field(ge=1, description="updates of its head that a client remembers")] = 20
    directions: Annotated[int, Field(ge=1, description="r, dimensions of the subspace, at most")] = 10
    warmup: Annotated[int, Field(ge=1, description="updates that a client remembers before its head is confined")] = 10
    weighting: Annotated[
        Literal["distance", "uniform"], Field(description="distance: clients count by how far they moved; uniform")
    ] = "distance"
    feature_share: Annotated[float, Field(ge=0, le=1, description="phi, share of the distance in features")] = 0.5


@dataclass(frozen=True)
class Shared(Message):
    """The auxiliary model; parameters apart, since the distance is theirs."""

    parameters: Mapping[str, Tensor] = weights("parameters of the auxiliary model")
    buffers: Mapping[str, Tensor] = weights("its buffers")


@dataclass(frozen=True)
class Moved(Message):
    """The auxiliary model after local training, and how far its features moved."""

    parameters: Mapping[str, Tensor] = weights("parameters of the auxiliary model")
    buffers: Mapping[str, Tensor] = weights("its buffers")
    feature_distance: Tensor = entry(low=0, about="mean distance of its features from those of the received model")


@register(
    "fedsce",
    options=FedSCEOptions,
    needs=("features",),
    about="FedSCE (our reading): FML with heads confined to their update trajectory, averaged by distances moved.",
)
class FedSCE(ServerMethod[Shared, Shared, Moved]):
    """Mutual learning with a subspace constraint and adaptive weights."""

    def __init__(self, options: FedSCEOptions) -> None:
        self.options = options

    def start(self, task: Task, draws: Draws) -> Shared:
        return Shared(*_parts(task.auxiliary(self.options.auxiliary, None)))

    def broadcast(self, state: Shared, client_id: int) -> Shared:
        return state

    def client_round(self, client: Client, received: Shared, round: int, draws: Draws) -> Moved:
        """Train both models on each other, the head within its subspace, and measure how far the auxiliary moved."""
        options = self.options
        state = {**received.parameters, **received.buffers}
        before = received_auxiliary(client, options.auxiliary, state)
        auxiliary = received_auxiliary(client, options.auxiliary, state)
        head = ConfinedHead(client, round, window=options.window, directions=options.directions, warmup=options.warmup)
        learn_mutually(client, auxiliary, options, draws, round=round, adjust=head.adjust)
        head.remember()
        return Moved(*_parts(auxiliary), torch.tensor(feature_movement(client, auxiliary, before)))

    def server_round(self, state: Shared, uploads: Iterable[Upload[Moved]], round: int, draws: Draws) -> Shared:
        """Average by the distances that the clients' auxiliary models moved (rule R6)."""
        sent = [upload.message for upload in uploads]
        if not sent:
            return state
        if self.options.weighting == "uniform":
            share = shares([1.0] * len(sent))
        else:
            distances = [_distance(one.parameters, state.parameters) for one in sent]
            share = contributions([one.feature_distance.item() for one in sent], distances, self.options.feature_share)
        return Shared(
            average_states([one.parameters for one in sent], share),
            average_states([one.buffers for one in sent], share),
        )


def _parts(auxiliary: Auxiliary) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return frozen copies of a model's parameters and of its buffers."""
    names = dict(auxiliary.named_parameters()).keys()
    state = {name: tensor.detach().clone() for name, tensor in auxiliary.state_dict().items()}
    return (
        {name: tensor for name, tensor in state.items() if name in names},
        {name: tensor for name, tensor in state.items() if name not in names},
    )


def _distance(new: Mapping[str, Tensor], old: Mapping[str, Tensor]) -> float:
    """Return ||new - old||_2 over all entries, in float64."""
    squares = [(tensor.double() - old[name].to(tensor.device).double()).square().sum() for name, tensor in new.items()]
    return float(torch.stack(squares).sum().sqrt())
