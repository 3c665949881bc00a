"""CRAD: peers exchange models and 2C statistics; per class, teachers that disagree are dropped and the rest weighted.

    between peers   theta_j, the weights of a model, and n_j, a_j: validation count and accuracy of every class
    inference       unchanged

    Eqs. 1-2   q_j = softmax(z_j / T), teachers in evaluation mode on the student's own inputs
    support    teacher j counts for class c if n_j^c >= min_support
    Eqs. 4-5   kept^c: teachers whose |q_j^c - mean| is at most the median of these deviations
    Eqs. 6-7   w = 1 / (a~ (1 - a~) / (n + 4) + eps), a~ = (a n + 2) / (n + 4)
    Eq. 8      qbar^c = sum over kept of w q / sum of w, then normalised over the classes
    Eq. 9      L = (1 - lambda) CE(z, y) + lambda T^2 KL(qbar || softmax(z / T))

Our readings: T = 3; a class without any supported teacher takes the mean of all teachers (`unsupported`), since 0 would
push down the classes that the student may be alone in holding; without teachers the loss is CE alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import pydantic.dataclasses
import torch
from pydantic import Field
from torch import Tensor

from motley.draws import Draws
from motley.federation import Client
from motley.functional.reliability import agreement, class_weighted_target, precision, soft_targets, supported
from motley.messages import Message, entry, weights
from motley.methods.contracts import PeerMethod
from motley.methods.crad_journal import TeacherJournal
from motley.methods.distillation import copy_weights, distil
from motley.methods.registry import register
from motley.options import STRICT
from motley.training.statistics import validation_score

UNKNOWN_ACCURACY = 0.5  # of a class without validation samples: it cancels in Eq. 6, and says nothing with noisy counts


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class CradOptions:
    """Options of CRAD."""

    temperature: Annotated[float, Field(gt=0, description="T of Eqs. 1 and 9")] = 3.0
    loss_weight: Annotated[float, Field(ge=0, le=1, description="lambda of Eq. 9, share of the distillation term")] = (
        0.7
    )
    min_support: Annotated[
        int, Field(ge=0, description="validation samples of a class that a teacher needs to count for it")
    ] = 2
    unsupported: Annotated[
        Literal["uniform", "zero"], Field(description="a class without supported teacher: mean of all teachers, or 0")
    ] = "uniform"
    warmup_rounds: Annotated[int, Field(ge=0, description="rounds at the start without teachers")] = 0


@dataclass(frozen=True)
class Snapshot(Message):
    """A model and its statistics, frozen before the round."""

    weights: Mapping[str, Tensor] = weights("theta_j, state dict of the model")
    counts: Tensor = entry("C", dtype=torch.int32, low=0, about="n_j, validation samples per class")
    accuracies: Tensor = entry("C", low=0, high=1, about="a_j, validation accuracy per class")


@register("crad", options=CradOptions)
class Crad(PeerMethod[Snapshot]):
    """Class-reliability-aware distillation among peers."""

    def __init__(self, options: CradOptions) -> None:
        self.options = options

    def start(self, client: Client, draws: Draws) -> None:
        pass

    def snapshot(self, client: Client, round: int) -> Snapshot:
        """Copy the model and measure it on the validation part: the state after round - 1 (Algorithm 1)."""
        score = validation_score(client)
        counts, correct = torch.tensor(score.count), torch.tensor(score.correct)
        accuracies = torch.where(counts > 0, correct / counts.clamp(min=1), UNKNOWN_ACCURACY)
        return Snapshot(copy_weights(client), counts.to(torch.int32), accuracies.to(torch.float32))

    def peer_round(self, client: Client, inbox: Mapping[int, Snapshot], round: int, draws: Draws) -> None:
        """Aggregate the teachers class by class and distil (Eqs. 1-9)."""
        options = self.options
        if round <= options.warmup_rounds:
            inbox = {}
        device = client.shard.counts.device
        if inbox:
            counts = torch.stack([message.counts for message in inbox.values()]).to(device)
            accuracies = torch.stack([message.accuracies for message in inbox.values()]).to(device)
            backed = supported(counts, options.min_support)  # (M, C)
            weight = precision(counts, accuracies)  # (M, C), Eqs. 6-7
            journal = TeacherJournal(tuple(inbox), counts, backed)

        def aggregate(logits: Tensor) -> Tensor:
            q = soft_targets(logits, options.temperature)  # (M, B, C), Eqs. 1-2
            filtered = agreement(q, backed)  # Eqs. 4-5
            result = class_weighted_target(q, filtered.kept, weight, unsupported=options.unsupported)  # Eq. 8
            journal.add(filtered.kept, weight, result.mass)
            return result.target

        distil(
            client,
            {peer: message.weights for peer, message in inbox.items()},
            aggregate,
            draws,
            round=round,
            temperature=options.temperature,
            loss_weight=options.loss_weight,
        )
        if inbox:
            client.journal["teachers"] = journal.summary()
