"""The options of CRAD: its hyperparameters, and its variants as named choices.

variant                        options (the others at their defaults)
support filter only            agreement_filter = none, weighting = equal
stage 1 only                   weighting = equal
stage 2 only                   min_support = 0, agreement_filter = none
agreement only                 min_support = 0, weighting = equal
support filter and precision   agreement_filter = none
uniform                        min_support = 0, agreement_filter = none, weighting = equal
"""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from motley.errors import InvalidConfig
from motley.methods.crad_wire import Wire
from motley.options import STRICT, refuse_unused


@dataclass(frozen=True, config=STRICT)
class CradOptions:
    """Options of CRAD; the defaults are the paper's method."""

    temperature: Annotated[float, Field(gt=0, description="T of Eqs. 1 and 9")] = 3.0
    loss_weight: Annotated[float, Field(ge=0, le=1, description="lambda of Eq. 9, share of the distillation term")] = (
        0.7
    )
    min_support: Annotated[
        int,
        Field(ge=0, description="validation samples of a class that a teacher needs to count for it; 0: no filter"),
    ] = 2
    unsupported: Annotated[
        Literal["uniform", "zero"], Field(description="a class without supported teacher: mean of all teachers, or 0")
    ] = "uniform"
    warmup_rounds: Annotated[int, Field(ge=0, description="rounds at the start without teachers")] = 0
    agreement_filter: Annotated[
        Literal["median", "tempered", "none"],
        Field(description="median: Eqs. 4-5; tempered: around the weighted median, weighted by shares of at most rho"),
    ] = "median"
    rho: Annotated[
        float, Field(gt=0, le=1, description="agreement_filter=tempered: largest share of a teacher; 1/(2f+1) for f")
    ] = 0.2
    audit: Annotated[
        bool, Field(description="a dropped teacher whose claim holds on the student's own validation samples joins")
    ] = False
    weighting: Annotated[
        Literal[
            "precision",
            "equal",
            "one-sided",
            "accuracy",
            "support",
            "softmax-variance",
            "lower-bound",
            "cross-entropy",
            "inverse-deviation",
        ],
        Field(description="weights of the kept teachers; precision: Eqs. 6-7; one-sided: being wrong is no evidence"),
    ] = "precision"
    count_epsilon: Annotated[
        float | None,
        Field(gt=0, description="privacy budget of the counts: Laplace noise, drawn once a client; none: exact"),
    ] = None
    guidance_weight: Annotated[
        float,
        Field(ge=0, description="weight of FedTopo's term, guided by peers' relations; C^2 + C more travel; 0: off"),
    ] = 0.0
    snapshot: Annotated[Wire, Field(description="in which numbers weights travel; int8 with one scale a tensor")] = (
        "float32"
    )

    def __post_init__(self) -> None:
        """Refuse choices that exclude each other.

        Raises:
            InvalidConfig: They do.
        """
        if self.agreement_filter == "tempered" and self.weighting != "precision":
            raise InvalidConfig("crad.agreement_filter = tempered has weights of its own; leave crad.weighting alone")
        if self.agreement_filter == "none" and self.audit:
            raise InvalidConfig(
                "crad.audit lets teachers join that the agreement filter dropped, and crad.agreement_filter = none "
                "drops nobody; leave one of the two out"
            )
        if self.agreement_filter != "tempered":
            refuse_unused("crad", self, ["rho"], f"crad.agreement_filter = {self.agreement_filter}", "tempered")
        if self.count_epsilon and self.weighting == "cross-entropy":
            raise InvalidConfig(
                "crad.weighting = cross-entropy sends what crad.count_epsilon does not cover; set one of the two"
            )
        if self.count_epsilon and self.guidance_weight:
            raise InvalidConfig(
                "crad.guidance_weight sends training counts, which crad.count_epsilon does not cover; set one of the "
                "two"
            )
