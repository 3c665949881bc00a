"""FedGH: the server trains the common head on the clients' class prototypes and hands it back.

    upload      p_kc, d numbers for each class a client holds        broadcast   h, a head of C d + C numbers
    inference   the client's backbone with the server's head

    step        h_k := h, then L_k = CE(h_k(f_k(x)), y) trains backbone and head together
    prototype   p_kc = mean of f_k(x) over the samples of class c, a pass in evaluation mode after training
    server      from the current h: SGD on the mean of CE(W p_kc + b, c) over shuffled batches of this round's p_kc

Our readings: a round without any upload leaves the head as it was; a class that no client of a round holds only
receives negative pushes in it. The head starts from the server's own draw, equal for all.
"""

from collections.abc import Iterable

import torch
from pydantic.dataclasses import dataclass

from motley.draws import Draws
from motley.federation import Client
from motley.methods.averaging import Common
from motley.methods.contracts import Upload
from motley.methods.fitted_head import FitOptions, FittedHead, train_under_head
from motley.methods.prototype_sharing import Prototypes, own_prototypes
from motley.methods.registry import register
from motley.options import STRICT


@dataclass(frozen=True, config=STRICT)
class FedGHOptions(FitOptions):
    """Options of fedgh."""


@register("fedgh", options=FedGHOptions, needs=("features", "equal-head"))
class FedGH(FittedHead[FedGHOptions, Prototypes]):
    """A head fitted to prototypes."""

    def client_round(self, client: Client, received: Common, round: int, draws: Draws) -> Prototypes:
        """Train under the common head, then measure one's own prototypes."""
        train_under_head(client, received, draws, round=round)
        return own_prototypes(client)

    def server_round(self, state: Common, uploads: Iterable[Upload[Prototypes]], round: int, draws: Draws) -> Common:
        """Fit the head to the prototypes of this round, by client and then by class before they are shuffled."""
        sent = [upload.message for upload in uploads]
        if not any(len(one.rows) for one in sent):
            return state
        classes = torch.cat([torch.nonzero(one.present).flatten() for one in sent])
        rows = torch.cat([one.rows for one in sent])
        return self.fitted(state, rows, classes, reduction="mean", round=round, draws=draws)
