"""FedMKD: the peers teach, and so does the student's own model of the round before (its memory).

    between peers   theta_j, the weights of a model        inference   unchanged

    target        (1 - mu) mean over peers of q_j + mu q_mem,  q = softmax(z / T)
    CRAD, Eq. 9   L = (1 - lambda) CE(z, y) + lambda T^2 KL(target || softmax(z / T))

Our readings (no implementation is public; adapted as CRAD says): the memory is the snapshot of round - 1 that the
peers receive in this round, so it equals the student at the first step and anchors it from then on; mu = 1/2, and with
M peers mu = 1 / (M + 1) is the plain mean of all; without peers the loss is CE alone, as in the others of this family.
"""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from motley.federation import Client
from motley.functional.reliability import soft_targets, uniform_target
from motley.methods.distillation import Aggregate, DistilOptions, ModelTeaching
from motley.methods.registry import register
from motley.methods.teachers import Weights, copy_weights
from motley.options import STRICT


@dataclass(frozen=True, config=STRICT)
class FedMKDOptions(DistilOptions):
    """Options of fedmkd."""

    memory_weight: Annotated[
        float, Field(ge=0, le=1, description="mu, share of the student's own last model; 0 is uniform-kd")
    ] = 0.5


@register("fedmkd", options=FedMKDOptions)
class FedMKD(ModelTeaching[FedMKDOptions]):
    """The mean of all peers, and the student's memory."""

    def lesson(self, client: Client, peers: Mapping[int, Weights]) -> tuple[Mapping[int, Weights], Aggregate]:
        """All peers with equal weight, and last what this client sent them."""
        share = self.options.memory_weight

        def aggregate(logits: Tensor) -> Tensor:
            q = soft_targets(logits, self.options.temperature)
            taught = uniform_target(q[: len(peers)])
            return (1 - share) * taught + share * q[-1] if share else taught

        return ({**peers, client.id: copy_weights(client)} if share else peers), aggregate
