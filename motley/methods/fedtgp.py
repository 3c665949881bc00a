"""FedTGP: FedProto whose server trains the global prototypes, with a contrastive loss and an adaptive margin.

    upload      p_kc, d numbers for each class a client holds        broadcast   g_c, d for each class seen so far
    inference   the class of the nearest g_c; `head`: the client's own head

    network     g_c = F(e_c): an embedding, then linear, ReLU, linear, all of width d; it stays on the server
    margin      Q_c = mean over the round of p_kc, delta = min(max_c min_c' ||Q_c - Q_c'||, tau)
    server      CE over seen classes of s_ic = -(||p_i - g_c|| + delta [c = y_i]), SGD on F and e
    step        L_k = CE(o, y) + lambda MSE(z, g_y), as FedProto

Our readings: a class is seen once the network was trained on a prototype of it; with fewer than two classes in a round
nothing is trained and nothing is seen. The server's rate is a number of its own: `server_lr` is to be set to the
clients' rate, which the server cannot know.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

import pydantic.dataclasses
import torch
from pydantic import Field
from torch import Tensor

from motley.draws import Draws
from motley.federation import Client, Task
from motley.functional.class_tables import merge_means, rows_fault, unpack_rows
from motley.functional.contrastive import Margin, adaptive_margin
from motley.functional.prototype_network import network_prototypes, new_network, train_network
from motley.functional.shuffling import shuffled_batches
from motley.messages import Message, entry, weights
from motley.methods.contracts import Upload
from motley.methods.prototype_sharing import PrototypeMethod, PrototypeOptions, Prototypes, no_prototypes, train_towards
from motley.methods.registry import register
from motley.options import STRICT


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class FedTGPOptions(PrototypeOptions):
    """Options of fedtgp."""

    tau: Annotated[float, Field(ge=0, description="largest margin, in units of the features")] = 100.0
    margin: Annotated[
        Margin, Field(description="nearest: largest distance to a nearest class; pair: largest of any two classes")
    ] = "nearest"
    server_epochs: Annotated[int, Field(ge=1, description="S, passes over the prototypes of a round")] = 100
    server_batch: Annotated[int, Field(ge=1, description="prototypes in a batch of the server")] = 10
    server_lr: Annotated[
        float, Field(ge=0, description="learning rate of the server; the sheet's is that of the clients (train.lr)")
    ] = 0.05


@dataclass(frozen=True)
class Trainable(Message):
    """The server's state: the network, and the prototypes it makes."""

    network: Mapping[str, Tensor] = weights("state dict of embedding and layers; it never leaves the server")
    rows: Tensor = entry("*", "d", about="g_c of the classes seen so far, ascending")
    present: Tensor = entry("C", dtype=torch.bool, counted=False, about="which classes were seen")

    def fault(self) -> str:
        """Return what is wrong between rows and mask, or nothing."""
        return rows_fault(self.rows, self.present)


@register("fedtgp", options=FedTGPOptions, needs=("features", "equal-width"))
class FedTGP(PrototypeMethod[FedTGPOptions, Trainable, Prototypes]):
    """Trainable global prototypes."""

    def start(self, task: Task, draws: Draws) -> Trainable:
        nothing = no_prototypes(task)
        with draws.scope("trainable-prototypes"):  # the server's own draw (rule R7)
            network = new_network(task.num_classes, nothing.rows.shape[1])
        return Trainable(network, nothing.rows, nothing.present)

    def broadcast(self, state: Trainable, client_id: int) -> Prototypes:
        return Prototypes(state.rows, state.present)

    def client_round(self, client: Client, received: Prototypes, round: int, draws: Draws) -> Prototypes:
        """Train towards the global prototypes, then measure one's own."""
        return train_towards(client, received, self.options.loss_weight, draws, round=round)

    def server_round(
        self, state: Trainable, uploads: Iterable[Upload[Prototypes]], round: int, draws: Draws
    ) -> Trainable:
        """Train the network on the prototypes of this round."""
        options, sent = self.options, [upload.message for upload in uploads]
        held = [torch.nonzero(one.present).flatten() for one in sent]
        if len({label for one in held for label in one.tolist()}) < 2:
            return state
        labels = torch.cat(held)
        prototypes = torch.cat([one.rows for one in sent])  # by client, then by class
        centres = merge_means(unpack_rows(one.rows, one.present) for one in sent)
        delta = adaptive_margin(centres, options.tau, options.margin)
        seen = state.present.clone()
        seen[labels] = True
        classes, position = torch.nonzero(seen).flatten(), seen.cumsum(0) - 1  # of a class among those seen
        shuffle = draws.generator("server-shuffle", round=round)
        network = train_network(
            state.network,
            prototypes,
            position[labels],
            classes,
            margin=delta,
            lr=options.server_lr,
            batches=shuffled_batches(len(labels), options.server_batch, options.server_epochs, shuffle),
        )
        return Trainable(network, network_prototypes(network, classes), seen)
