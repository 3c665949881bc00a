"""FedProto: features are pulled towards global class prototypes, the means of the clients' prototypes.

    upload      p_kc, d numbers for each class a client holds        broadcast   g_c, d for each class known so far
    inference   the class of the nearest g_c; `head`: the client's own head

    prototype   p_kc = mean of f_k(x) over the samples of class c, a pass in evaluation mode after training
    server      g_c = mean over the clients of the round that hold c of p_kc
    step        L_k = CE(o, y) + lambda MSE(z, g_y), MSE over all B d elements

Our readings: a class that no client of a round holds keeps its last g_c, since a forgotten one could not be predicted;
a class that nobody ever held is no candidate; a sample whose class has no g_c adds 0 to the MSE and stays in its mean.
`weighting = samples` weighs by n_kc, for which |C_k| counts travel, without the paper's second division by the number
of holders, a slip.
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
from motley.functional.class_tables import merge_means, pack_rows, rows_fault, unpack_rows
from motley.messages import Message, entry
from motley.methods.contracts import Upload
from motley.methods.prototype_sharing import PrototypeMethod, PrototypeOptions, Prototypes, no_prototypes, train_towards
from motley.methods.registry import register
from motley.options import STRICT
from motley.training.statistics import counts_behind


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class FedProtoOptions(PrototypeOptions):
    """Options of fedproto."""

    weighting: Annotated[
        Literal["uniform", "samples"],
        Field(description="uniform: holders of a class count alike; samples: by their training samples of it"),
    ] = "uniform"


@dataclass(frozen=True)
class CountedPrototypes(Message):
    """What a client sends."""

    rows: Tensor = entry("*", "d", about="p_kc, one prototype a held class, classes ascending")
    present: Tensor = entry("C", dtype=torch.bool, counted=False, about="which classes are held")
    counts: Tensor = entry("*", dtype=torch.int32, low=1, about="n_kc of the held classes with weighting = samples")

    def fault(self) -> str:
        """Return what is wrong between the entries, or nothing."""
        if len(self.counts) not in (0, len(self.rows)):
            return f"there are counts for {len(self.counts)} classes, but rows for {len(self.rows)}"
        return rows_fault(self.rows, self.present)


@register("fedproto", options=FedProtoOptions, needs=("features", "equal-width"))
class FedProto(PrototypeMethod[FedProtoOptions, Prototypes, CountedPrototypes]):
    """Means of prototypes."""

    def start(self, task: Task, draws: Draws) -> Prototypes:
        return no_prototypes(task)

    def broadcast(self, state: Prototypes, client_id: int) -> Prototypes:
        return state

    def client_round(self, client: Client, received: Prototypes, round: int, draws: Draws) -> CountedPrototypes:
        """Train towards the global prototypes, then measure one's own."""
        own = train_towards(client, received, self.options.loss_weight, draws, round=round)
        counts = counts_behind(client).cpu().int()
        sent = counts[own.present] if self.options.weighting == "samples" else counts[:0]
        return CountedPrototypes(own.rows, own.present, sent)

    def server_round(
        self, state: Prototypes, uploads: Iterable[Upload[CountedPrototypes]], round: int, draws: Draws
    ) -> Prototypes:
        """Take the mean of the holders of each class; a class without any keeps what it had."""
        sent = [upload.message for upload in uploads]
        if not sent:
            return state
        tables = [unpack_rows(one.rows, one.present) for one in sent]
        weights = [_per_class(one) for one in sent] if self.options.weighting == "samples" else None
        new, old = merge_means(tables, weights), unpack_rows(state.rows, state.present)
        known = state.present | ~new.isnan().any(dim=1)
        return Prototypes(*pack_rows(torch.where(new.isnan(), old.double(), new), known))


def _per_class(message: CountedPrototypes) -> Tensor:
    """Return the counts (C,) of an upload, 0 where the class is absent."""
    counts = torch.zeros(len(message.present), dtype=torch.int32)
    counts[message.present] = message.counts
    return counts
