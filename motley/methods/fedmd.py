"""FedMD: clients align their class scores on a proxy set with the consensus of all, then return to their own data.

    upload      z_k, logits on the proxy, P x C numbers        broadcast   f, their consensus, P x C numbers
    inference   unchanged                                      among peers (replicated) nothing comes down

    consensus   f = mean of z_k over the clients that took part
    digest      mean |h_k(x) - f|, or T^2 KL(softmax(f / T) || softmax(h_k(x) / T)), over the proxy
    revisit     cross-entropy on the client's own samples

Our readings: a round begins with the digest of the consensus that the last one left, goes on with the revisit, and ends
with the prediction of the proxy in evaluation mode. That is the paper's loop, cut between revisit and prediction, so
that one message goes each way; round 1 has no consensus yet. The digest uses a fresh optimizer of the run's kind and
rate. Clients have no labelled public data (`pretrain_epochs = 0`); else the labels of the proxy are used, and said so.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

import pydantic.dataclasses
import torch
from pydantic import Field
from torch import Tensor

from motley.draws import Draws
from motley.federation import Client, Task
from motley.functional.proxy_targets import consensus
from motley.messages import Message, entry
from motley.methods.contracts import ServerMethod, Upload
from motley.methods.proxy import absolute_error, against_labels, divergence, train_on_labels
from motley.methods.registry import register
from motley.options import STRICT, refuse_unused
from motley.training.digest import digest, outputs_of, proxy_of


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class FedMDOptions:
    """Options of fedmd."""

    digest_epochs: Annotated[int, Field(ge=0, description="passes over the proxy in a round; 0: train alone")] = 1
    digest_loss: Annotated[
        Literal["mae", "kl"], Field(description="mae: mean absolute error of logits (public code); kl: of soft targets")
    ] = "mae"
    temperature: Annotated[float, Field(gt=0, description="T of digest_loss = kl")] = 3.0
    pretrain_epochs: Annotated[
        int, Field(ge=0, description="passes over the proxy with its labels before a client's first round (paper)")
    ] = 0

    def __post_init__(self) -> None:
        """Refuse a temperature that nothing would use.

        Raises:
            InvalidConfig: The digest has none.
        """
        if self.digest_loss == "mae":
            refuse_unused("fedmd", self, ["temperature"], "fedmd.digest_loss = mae", "kl")


@dataclass(frozen=True)
class Scores(Message):
    """What one client's model says of the proxy set."""

    logits: Tensor = entry("P", "C", about="logits on the proxy set")


@dataclass(frozen=True)
class Consensus(Message):
    """What all say together; no rows before the first round."""

    logits: Tensor = entry("*", "C", about="mean logits on the proxy set")


@register("fedmd", options=FedMDOptions, needs=("proxy", "proxy-labels"), replicated=True)
class FedMD(ServerMethod[Consensus, Consensus, Scores]):
    """Consensus of logits on common samples."""

    def __init__(self, options: FedMDOptions) -> None:
        self.options = options

    def start(self, task: Task, draws: Draws) -> Consensus:
        return Consensus(torch.zeros(0, task.num_classes))

    def broadcast(self, state: Consensus, client_id: int) -> Consensus:
        return state

    def client_round(self, client: Client, received: Consensus, round: int, draws: Draws) -> Scores:
        """Digest the consensus, revisit the own samples, predict the proxy."""
        options, proxy = self.options, proxy_of(client)
        if options.pretrain_epochs and "pretrained" not in client.memory:
            epochs, labels = options.pretrain_epochs, proxy.y
            assert labels is not None, "the need proxy-labels is registered"
            digest(client, proxy.x, labels, against_labels, draws, round=round, epochs=epochs, purpose="pretrain")
            client.memory["pretrained"] = torch.ones((), dtype=torch.int32)
            client.journal["proxy_labels"] = "used by the pretraining"
        if len(received.logits):
            loss = absolute_error if options.digest_loss == "mae" else divergence(options.temperature)
            digest(client, proxy.x, received.logits, loss, draws, round=round, epochs=options.digest_epochs)
        train_on_labels(client, draws, round=round)
        return Scores(outputs_of(client, proxy.x))

    def server_round(self, state: Consensus, uploads: Iterable[Upload[Scores]], round: int, draws: Draws) -> Consensus:
        """Average the logits of those who took part."""
        said = [upload.message.logits for upload in uploads]
        return Consensus(consensus(torch.stack(said)).float()) if said else state
