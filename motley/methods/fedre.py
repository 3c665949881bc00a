"""FedRE: each client mixes its class prototypes into one vector with a soft label; the server trains the head on these.

    upload      z~_k, d numbers, and y~_k, C numbers        broadcast   h, a head of C d + C numbers
    inference   the client's backbone with the server's head

    step        h_k := h, then L_k = CE(h_k(f_k(x)), y) trains backbone and head together
    mixture     u_c uniform in (0, 1] for the classes held, w_c = u_c / sum u;  z~_k = sum_c w_c p_kc,  y~_k = w
    server      from the current h: SGD on the sum over a batch of -sum_c y~_c log softmax(W z~ + b)_c

Our readings: the head is really sent and used (in the authors' heterogeneous code nothing sends it); u_c is never 0, so
that a client of one class has weight 1. Its mixture is its prototype, unmixed: nothing is hidden then. A round without
any upload leaves the head as it was.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pydantic.dataclasses
import torch
from torch import Tensor

from motley.draws import Draws
from motley.federation import Client
from motley.functional.entanglement import entangle
from motley.messages import Message, entry
from motley.methods.averaging import Common
from motley.methods.contracts import Upload
from motley.methods.fitted_head import FitOptions, FittedHead, ServerBatch, train_under_head
from motley.methods.registry import register
from motley.options import STRICT
from motley.training.statistics import counts_behind, local_prototypes


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class FedREOptions(FitOptions):
    """Options of fedre."""

    server_batch: ServerBatch = 32


@dataclass(frozen=True)
class Mixture(Message):
    """What a client sends."""

    vector: Tensor = entry("d", about="z~_k, its prototypes mixed")
    label: Tensor = entry("C", low=0, high=1, about="y~_k, the weights of the mixture; 0 where not held")


@register("fedre", options=FedREOptions, needs=("features", "equal-head"))
class FedRE(FittedHead[FedREOptions, Mixture]):
    """A head fitted to mixtures."""

    def client_round(self, client: Client, received: Common, round: int, draws: Draws) -> Mixture:
        """Train under the common head, then mix one's own prototypes with weights drawn for this round."""
        train_under_head(client, received, draws, round=round)
        generator = draws.generator("mixture", round=round, client=client.id)
        drawn = 1 - torch.rand(client.num_classes, dtype=torch.float64, generator=generator)
        present = counts_behind(client).cpu() > 0
        if not bool(present.any()):  # nothing to mix; a soft label of zeros adds nothing to the server's loss
            return Mixture(torch.zeros(client.model.feature_width), torch.zeros(client.num_classes))
        vector, label = entangle(local_prototypes(client).cpu(), present, drawn)
        return Mixture(vector.float(), label.float())

    def server_round(self, state: Common, uploads: Iterable[Upload[Mixture]], round: int, draws: Draws) -> Common:
        """Fit the head to the mixtures of this round."""
        sent = [upload.message for upload in uploads]
        if not sent:
            return state
        vectors, labels = torch.stack([one.vector for one in sent]), torch.stack([one.label for one in sent])
        return self.fitted(state, vectors, labels, reduction="sum", round=round, draws=draws)
