"""Uncertainty-KD: peers weigh by the entropy of what they say of a sample, without filters and statistics.

    between peers   theta_j, the weights of a model        inference   unchanged

    CRAD, Eqs. 1-2   q_j = softmax(z_j / T);  H_j = -sum_c q_j^c log q_j^c
    softmax          w_j = exp(-H_j) / sum over peers of exp(-H)
    information      w_j = (log C - H_j) / sum over peers of (log C - H)
    CRAD, Eq. 9      L = (1 - lambda) CE(z, y) + lambda T^2 KL(sum_j w_j q_j || softmax(z / T))

Our readings: the entropy is that of the soft targets at temperature T; where nobody says anything (all H = log C) the
form `information` weighs alike.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from motley.federation import Client
from motley.functional.reliability import soft_targets
from motley.functional.uncertainty import uncertainty_target, uncertainty_weights
from motley.methods.distillation import Aggregate, DistilOptions, ModelTeaching
from motley.methods.registry import register
from motley.methods.teachers import Weights
from motley.options import STRICT


@dataclass(frozen=True, config=STRICT)
class UncertaintyKDOptions(DistilOptions):
    """Options of uncertainty-kd."""

    form: Annotated[
        Literal["softmax", "information"],
        Field(description="weights of the peers: softmax of -H, or log C - H normalised"),
    ] = "softmax"


@register("uncertainty-kd", options=UncertaintyKDOptions)
class UncertaintyKD(ModelTeaching[UncertaintyKDOptions]):
    """The mean of all peers, weighted by how sure each is of a sample."""

    def lesson(self, client: Client, peers: Mapping[int, Weights]) -> tuple[Mapping[int, Weights], Aggregate]:
        """All peers, weighted by their entropies on a sample."""

        def aggregate(logits: Tensor) -> Tensor:
            q = soft_targets(logits, self.options.temperature)
            return uncertainty_target(q, uncertainty_weights(q, self.options.form))

        return peers, aggregate
