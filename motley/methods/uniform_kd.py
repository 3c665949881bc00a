"""Uniform-KD: every peer teaches with equal weight; CRAD without its two stages and without statistics.

between peers   theta_j, the weights of a model        inference   unchanged

CRAD, Eq. 3   qbar = mean over peers of softmax(z_j / T)
CRAD, Eq. 9   L = (1 - lambda) CE(z, y) + lambda T^2 KL(qbar || softmax(z / T))
"""

from collections.abc import Mapping

from pydantic.dataclasses import dataclass

from motley.federation import Client
from motley.functional.reliability import soft_targets, uniform_target
from motley.methods.distillation import Aggregate, DistilOptions, ModelTeaching
from motley.methods.registry import register
from motley.methods.teachers import Weights
from motley.options import STRICT


@dataclass(frozen=True, config=STRICT)
class UniformKDOptions(DistilOptions):
    """Options of uniform-kd."""


@register("uniform-kd", options=UniformKDOptions)
class UniformKD(ModelTeaching[UniformKDOptions]):
    """The plain mean of all peers."""

    def lesson(self, client: Client, peers: Mapping[int, Weights]) -> tuple[Mapping[int, Weights], Aggregate]:
        """All peers, with equal weight (Eq. 3)."""
        return peers, lambda logits: uniform_target(soft_targets(logits, self.options.temperature))
