"""FedDF among peers: every client distils from the mean logits of all models on unlabelled proxy samples.

    between peers   theta_j, the weights of a model, and n_j, its training samples        inference   unchanged

    distillation   T^2 KL(softmax(mean_j z_j / T) || softmax(z_k / T)) over the proxy, the own model among the j
    local epoch    cross-entropy on the client's own samples

Our readings: a round begins with the distillation from the snapshots of the last one, then comes the local epoch; that
is the paper's loop cut at another place. Methods are scored after their local epochs; how the model did right after its
last distillation, with which the paper's round ends, stands beside that (`distilled`). Round 1, in which no model is
trained yet, and rounds without peers have no distillation. Every client keeps its own model; with `average_same` the
clients of one architecture first take the average of their models, weighted by training samples (rule R6), as in the
paper.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated

import pydantic.dataclasses
import torch
from pydantic import Field
from torch import Tensor

from motley.draws import Draws
from motley.federation import Client, Task
from motley.functional.averaging import average_states, shares
from motley.functional.proxy_targets import consensus
from motley.messages import Message, entry, weights
from motley.methods.contracts import PeerMethod
from motley.methods.proxy import divergence, train_on_labels
from motley.methods.registry import register
from motley.methods.teachers import copy_weights, finite_logits, learn_from_finite
from motley.options import STRICT
from motley.training.digest import digest, proxy_of
from motley.training.evaluation import check_snapshot, score_snapshot
from motley.training.memory import recall_state, remember_state


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class FedDFOptions:
    """Options of feddf."""

    temperature: Annotated[float, Field(gt=0, description="T, of the ensemble and of the loss")] = 1.0
    distill_steps: Annotated[int, Field(ge=0, description="gradient steps on the proxy in a round; 0: train alone")] = (
        50
    )
    distill_batch: Annotated[int, Field(ge=1, description="proxy samples in such a step")] = 64
    distill_lr: Annotated[float, Field(gt=0, description="rate of Adam in these steps")] = 1e-3
    average_same: Annotated[bool, Field(description="average the models of one architecture before (paper)")] = False


@dataclass(frozen=True)
class Trained(Message):
    """A model, frozen before the round."""

    weights: Mapping[str, Tensor] = weights("state dict of the model")
    num_samples: Tensor = entry(dtype=torch.int32, low=0, counted=False, about="n, its training samples")


@register("feddf", options=FedDFOptions, needs=("proxy",))
class FedDF(PeerMethod[Trained]):
    """Ensemble distillation on common samples."""

    def __init__(self, options: FedDFOptions) -> None:
        self.options = options

    def start(self, client: Client, draws: Draws) -> None:
        pass

    def snapshot(self, client: Client, round: int) -> Trained:
        return Trained(copy_weights(client), torch.tensor(len(client.shard.train), dtype=torch.int32))

    def check(self, message: Trained, peer: int, task: Task) -> None:
        """Refuse weights of another architecture."""
        check_snapshot(task, peer, message.weights)

    def other_predictions(self, client: Client, x: Tensor) -> dict[str, Tensor]:
        """Return what the distilled model says, which until the first distillation is the current one."""
        state = recall_state(client, "distilled")
        return {"distilled": score_snapshot(client.task.template(client.id), state, x) if state else client.model(x)}

    def peer_round(self, client: Client, inbox: Mapping[int, Trained], round: int, draws: Draws) -> None:
        """Distil from all models of the last round, then train on the own samples."""
        if round > 1 and self.options.distill_steps:
            learn_from_finite(client, inbox, lambda held: self._distil(client, held, round, draws))
        train_on_labels(client, draws, round=round)

    def _distil(self, client: Client, inbox: Mapping[int, Trained], round: int, draws: Draws) -> None:
        if not inbox:
            return
        options, task, x = self.options, client.task, proxy_of(client).x
        models = {**inbox, client.id: self.snapshot(client, round)}
        ids = sorted(models)  # the same sum, bit for bit, at every peer
        said = [finite_logits(client, peer, models[peer].weights, x) for peer in ids]
        if options.average_same:
            same = [models[peer] for peer in ids if task.architecture(peer) == task.architecture(client.id)]
            amounts = shares([max(1, int(one.num_samples)) for one in same])
            client.model.load_state_dict(average_states([one.weights for one in same], amounts))
        targets = consensus(torch.stack(said)).float()
        adam = replace(
            client.training,
            optimizer="adam",
            lr=options.distill_lr,
            lr_decay=1.0,
            weight_decay=0.0,
            batch_size=options.distill_batch,
        )
        loss, steps = divergence(options.temperature), options.distill_steps
        digest(client, x, targets, loss, draws, round=round, steps=steps, training=adam)
        remember_state(client, "distilled", client.model.state_dict())
