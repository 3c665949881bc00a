"""The options of FedGen."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from motley.options import STRICT


@dataclass(frozen=True, config=STRICT)
class FedGenOptions:
    """Options of fedgen."""

    generated_weight: Annotated[
        float, Field(ge=0, description="w_gen, weight of the head's loss on generated features")
    ] = 1.0
    latent_weight: Annotated[
        float, Field(ge=0, description="w_lat, weight of KL(head on generated features of the labels || own logits)")
    ] = 0.0
    teacher: Annotated[
        Literal["label", "logit"],
        Field(
            description="label: a head teaches the classes its client holds, by its share; logit: mean of all logits"
        ),
    ] = "label"
    diversity_weight: Annotated[float, Field(ge=0, description="eta, weight of the generator's diversity term")] = 1.0
    noise_size: Annotated[int, Field(ge=1, description="nu, numbers of noise that the generator reads")] = 32
    hidden_size: Annotated[int, Field(ge=1, description="H, width of the generator's hidden layer")] = 512
    gen_steps: Annotated[int, Field(ge=1, description="steps of the generator in a round")] = 100
    gen_batch: Annotated[int, Field(ge=2, description="features in a step of the generator")] = 32
    gen_lr: Annotated[float, Field(ge=0, description="rate of the generator's Adam")] = 3e-4
    gen_lr_decay: Annotated[float, Field(gt=0, le=1, description="factor of this rate from round to round")] = 1.0
    gen_weight_decay: Annotated[float, Field(ge=0, description="weight decay of the generator's Adam")] = 1e-2
