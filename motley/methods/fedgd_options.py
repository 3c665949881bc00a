"""The options of FedGD; the defaults are those of its sheet, from TARGET's public code for CIFAR-100."""

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from motley.options import STRICT


@dataclass(frozen=True, config=STRICT)
class FedGDOptions:
    """Options of fedgd."""

    synthetic: Annotated[int, Field(ge=2, description="samples in the synthetic set (CRAD)")] = 500
    refresh: Annotated[
        int, Field(ge=3, description="rounds between two synthetic sets; the first is made in round 2")
    ] = 10
    digest_epochs: Annotated[int, Field(ge=0, description="passes over the synthetic set in a round")] = 1
    temperature: Annotated[float, Field(gt=0, description="T of the digest")] = 3.0
    gen_steps: Annotated[int, Field(ge=1, description="steps of the generator for a synthetic set")] = 200
    gen_batch: Annotated[int, Field(ge=2, description="synthetic samples in such a step")] = 128
    gen_lr: Annotated[float, Field(gt=0, description="rate of Adam for the generator")] = 2e-3
    noise_lr: Annotated[float, Field(gt=0, description="rate of Adam for the noise")] = 1e-2
    label_weight: Annotated[
        float, Field(ge=0, description="weight of the ensemble's cross-entropy with drawn labels")
    ] = 0.5
    statistics_weight: Annotated[float, Field(ge=0, description="weight of the distance of batch norm statistics")] = (
        10.0
    )
    disagreement_weight: Annotated[
        float, Field(ge=0, description="weight of the trainer's disagreement with the ensemble")
    ] = 1.0
