"""FD: clients share their mean output per class, and each distils from the mean of the others.

    upload      F_kc, C numbers for each class a client holds        broadcast   t_kc, C for each class with a teacher
    inference   unchanged

    output      F_kc = mean of softmax(o) over the samples of class c, a pass in evaluation mode after training
    teacher     t_kc = mean of F_jc over the clients j != k that sent class c in the last round; none without them
    step        L_k = CE(o, y) + lambda (1/B) sum over i with a teacher of -sum_c t_k,y_i,c log softmax(o_i)_c

HtFLlib calls it FedDistill. Our readings: the paper divides by all devices but one, since there all hold all labels;
here the divisor is the number of other holders. Teachers are those of the last round that was played, whoever took
part. With `space = logit` mean logits travel, and a teacher is the softmax of their mean; with `exclude_self = false`
one's own output counts.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import pydantic.dataclasses
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import cross_entropy, softmax

from motley.draws import Draws
from motley.federation import Client, Task
from motley.functional.class_tables import merge_means, pack_rows, rows_fault, unpack_rows
from motley.messages import Message, entry, weights
from motley.methods.contracts import ServerMethod, Upload
from motley.methods.registry import register
from motley.options import STRICT
from motley.training.local import Step, Terms, train_local
from motley.training.statistics import counts_behind, shared_means


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class FDOptions:
    """Options of fd."""

    loss_weight: Annotated[float, Field(ge=0, description="lambda, strength of the distillation")] = 1.0
    space: Annotated[
        Literal["prob", "logit"],
        Field(description="prob: means of softmax outputs; logit: means of logits, made probabilities by the student"),
    ] = "prob"
    exclude_self: Annotated[bool, Field(description="a client's own output is no part of its teacher")] = True


@dataclass(frozen=True)
class MeanOutputs(Message):
    """A row of C numbers for each class that has one."""

    rows: Tensor = entry("*", "C", about="one mean output a present class, classes ascending")
    present: Tensor = entry("C", dtype=torch.bool, counted=False, about="which classes have a row")

    def fault(self) -> str:
        """Return what is wrong between rows and mask, or nothing."""
        return rows_fault(self.rows, self.present)


@dataclass(frozen=True)
class LastRound(Message):
    """The server's state: what the participants of the last round sent, by client id."""

    rows: Mapping[str, Tensor] = weights("F_kc of the classes a client holds, (m, C)")
    present: Mapping[str, Tensor] = weights("which classes it holds, (C,)")
    num_classes: Tensor = entry(dtype=torch.int64, low=1, about="C")


@register("fd", options=FDOptions)
class FD(ServerMethod[LastRound, MeanOutputs, MeanOutputs]):
    """Federated distillation of mean outputs."""

    def __init__(self, options: FDOptions) -> None:
        self.options = options

    def start(self, task: Task, draws: Draws) -> LastRound:
        return LastRound({}, {}, torch.tensor(task.num_classes))

    def broadcast(self, state: LastRound, client_id: int) -> MeanOutputs:
        """The mean of the others for each class of which there is one."""
        own = str(client_id) if self.options.exclude_self else ""
        ids = sorted(state.rows, key=int)  # a state that was saved may come back in another order
        tables = [unpack_rows(state.rows[key], state.present[key]) for key in ids if key != own]
        if not tables:
            num_classes = int(state.num_classes)
            return MeanOutputs(torch.zeros(0, num_classes), torch.zeros(num_classes, dtype=torch.bool))
        made = merge_means(tables)
        return MeanOutputs(*pack_rows(made, ~made.isnan().any(dim=1)))

    def client_round(self, client: Client, received: MeanOutputs, round: int, draws: Draws) -> MeanOutputs:
        """Learn from the others' mean outputs, then measure one's own."""
        weight, by_class = self.options.loss_weight, self._teachers(received).to(client.shard.counts.device)
        distil = weight > 0 and len(received.rows) > 0

        def loss(step: Step) -> Terms:
            plain = cross_entropy(step.logits, step.y)
            if not distil:
                return {"cross_entropy": plain}
            learned = cross_entropy(step.logits, by_class[step.y])  # 0 for a sample without a teacher
            return {"cross_entropy": plain, "distillation": weight * learned}

        train_local(client, loss, draws, round=round)
        means = shared_means(client, lambda model, x: self._output(model(x)))
        return MeanOutputs(*pack_rows(means, counts_behind(client) > 0))

    def server_round(
        self, state: LastRound, uploads: Iterable[Upload[MeanOutputs]], round: int, draws: Draws
    ) -> LastRound:
        """Keep what this round's clients sent, and nothing older."""
        sent = {str(upload.client_id): upload.message for upload in uploads}
        rows = {key: message.rows for key, message in sent.items()}
        return LastRound(rows, {key: message.present for key, message in sent.items()}, state.num_classes)

    def _output(self, logits: Tensor) -> Tensor:
        return softmax(logits, dim=1) if self.options.space == "prob" else logits

    def _teachers(self, message: MeanOutputs) -> Tensor:
        """Return the soft label (C, C) of each class, 0 where there is no teacher."""
        table = unpack_rows(message.rows, message.present)
        made = table if self.options.space == "prob" else softmax(table, dim=1)
        return made.masked_fill(~message.present[:, None], 0.0)
