"""FedMRL: a shared auxiliary model gives features that a private projector fuses with those of each client's own model.

    upload      theta_a,k, the state of the auxiliary model; once: n_k        broadcast   theta_a, as much
    inference   o = h_k(P_k [f_a(x) ; f_k(x)] + c_k) with the server's auxiliary model

    step        theta_a,k := theta_a; u = P_k [z^a ; z] + c_k; o^a = h_a(first d1 numbers of u), o = h_k(u)
                L = m_loc CE(o, y) + m_aux CE(o^a, y), nothing detached
    average     theta_a = sum_k w_k theta_a,k, w_k = n_k / sum of n over the clients of the round

Our readings: d1 is the smallest feature width of the clients unless given, which at FedTopo's common width is its 512;
the auxiliary model's own features are pooled to it. The projector stays with its client between rounds; before a
client's first round there is none, and its own model answers alone.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from motley.draws import Draws
from motley.errors import InvalidConfig
from motley.federation import Client, Task
from motley.methods.auxiliary import Architecture, initial_auxiliary, private_layer
from motley.methods.averaging import Averaging, AveragingOptions, Common, Trained, copy_state, trained
from motley.methods.registry import register
from motley.options import STRICT
from motley.training.auxiliary import auxiliary_for_inference, features_and_logits, received_auxiliary
from motley.training.local import Step, Terms, train_local
from motley.training.memory import recall_state, remember_state

MOST_NAMED = 10  # clients in an error


@dataclass(frozen=True, config=STRICT)
class FedMRLOptions(AveragingOptions):
    """Options of fedmrl."""

    auxiliary: Architecture = "cnn"
    auxiliary_width: Annotated[
        Annotated[int, Field(ge=1)] | Literal["smallest"],
        Field(description="d1, features of the auxiliary model; smallest: the smallest width of the clients' features"),
    ] = "smallest"
    local_weight: Annotated[float, Field(ge=0, description="m_loc, weight of the loss of the whole representation")] = (
        1.0
    )
    auxiliary_weight: Annotated[float, Field(ge=0, description="m_aux, weight of the loss of its first d1 numbers")] = (
        1.0
    )


@register("fedmrl", options=FedMRLOptions, needs=("features",))
class FedMRL(Averaging):
    """Nested representations over a shared auxiliary model."""

    options: FedMRLOptions

    def start(self, task: Task, draws: Draws) -> Common:
        """Build the auxiliary model.

        Raises:
            InvalidConfig: d1 is larger than the feature width of a client.
        """
        widths = [task.template(client).feature_width for client in range(task.num_clients)]
        chosen = self.options.auxiliary_width
        width = min(widths) if chosen == "smallest" else chosen
        if narrow := [client for client, own in enumerate(widths) if own < width]:
            raise InvalidConfig(
                f"auxiliary_width is {width}, more than the features of clients {narrow[:MOST_NAMED]}; give "
                f"{min(widths)} or less, or wider models"
            )
        return Common(initial_auxiliary(task, self.options.auxiliary, width))

    def client_round(self, client: Client, received: Common, round: int, draws: Draws) -> Trained:
        """Train both models and the projector on both readings of the fused features."""
        options, width = self.options, _width(received.weights)
        auxiliary = received_auxiliary(client, options.auxiliary, received.weights, width)
        own = client.model.feature_width
        projector = private_layer(client, "projector", width + own, own, draws, bias=True)

        def loss(step: Step) -> Terms:
            assert step.features is not None
            features, _ = features_and_logits(auxiliary, step.x)
            fused = projector(torch.cat([features, step.features], dim=1))
            whole = cross_entropy(client.model.classify(fused), step.y)
            first = cross_entropy(auxiliary.classify(fused[:, :width]), step.y)
            return {"cross_entropy": options.local_weight * whole, "auxiliary": options.auxiliary_weight * first}

        train_local(client, loss, draws, round=round, modules=(auxiliary, projector))
        remember_state(client, "projector", projector.state_dict())
        if client.evaluation.state == "local":
            remember_state(client, "auxiliary", copy_state(auxiliary))
        return trained(client, auxiliary)

    def predict(self, client: Client, view: Common | None, x: Tensor) -> Tensor:
        """Score the fused features; before its first round a client has no projector and answers by its own model."""
        projector = recall_state(client, "projector")
        if not projector:
            return super().predict(client, view, x)
        state: Mapping[str, Tensor] = recall_state(client, "auxiliary") if view is None else view.weights
        auxiliary = auxiliary_for_inference(client.task, self.options.auxiliary, state, _width(state))
        fused = torch.cat([auxiliary.features(x), client.model.features(x)], dim=1)
        held = {name: tensor.to(x.device) for name, tensor in projector.items()}
        return client.model.classify(linear(fused, held["weight"], held["bias"]))


def _width(state: Mapping[str, Tensor]) -> int:
    """Return d1, the width of the auxiliary model's features, which its linear head has."""
    return state["head.weight"].shape[1]
