"""Uniform-KD: every peer teaches with equal weight; CRAD without its two stages and without statistics.

between peers   theta_j, the weights of a model        inference   unchanged

CRAD, Eq. 3   qbar = mean over peers of softmax(z_j / T)
CRAD, Eq. 9   L = (1 - lambda) CE(z, y) + lambda T^2 KL(qbar || softmax(z / T))
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import pydantic.dataclasses
from pydantic import Field
from torch import Tensor

from motley.draws import Draws
from motley.federation import Client
from motley.functional.reliability import soft_targets, uniform_target
from motley.messages import Message, weights
from motley.methods.contracts import PeerMethod
from motley.methods.distillation import copy_weights, distil
from motley.methods.registry import register
from motley.options import STRICT


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class UniformKDOptions:
    """Options of uniform-kd."""

    temperature: Annotated[float, Field(gt=0, description="T, of the soft targets and of the loss")] = 3.0
    loss_weight: Annotated[float, Field(ge=0, le=1, description="lambda, share of the distillation term")] = 0.7
    warmup_rounds: Annotated[int, Field(ge=0, description="rounds at the start without teachers")] = 0


@dataclass(frozen=True)
class Model(Message):
    """A model, frozen before the round."""

    weights: Mapping[str, Tensor] = weights("state dict of the model")


@register("uniform-kd", options=UniformKDOptions)
class UniformKD(PeerMethod[Model]):
    """The plain mean of all peers."""

    def __init__(self, options: UniformKDOptions) -> None:
        self.options = options

    def start(self, client: Client, draws: Draws) -> None:
        pass

    def snapshot(self, client: Client, round: int) -> Model:
        return Model(copy_weights(client))

    def peer_round(self, client: Client, inbox: Mapping[int, Model], round: int, draws: Draws) -> None:
        """Learn from the mean of all peers (Eqs. 3, 9)."""
        options = self.options
        taught = round > options.warmup_rounds
        distil(
            client,
            {peer: message.weights for peer, message in inbox.items()} if taught else {},
            lambda logits: uniform_target(soft_targets(logits, options.temperature)),
            draws,
            round=round,
            temperature=options.temperature,
            loss_weight=options.loss_weight,
        )
