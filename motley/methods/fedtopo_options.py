"""The options of FedTopo: its hyperparameters, and its ablations and controls as named choices."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from motley.errors import InvalidConfig
from motley.options import STRICT


@dataclass(frozen=True, config=STRICT)
class FedTopoOptions:
    """Options of FedTopo; the defaults are the paper's method."""

    loss_weight: Annotated[float, Field(ge=0, description="lambda of Eq. 13; 0 is Local")] = 1.0
    strength: Annotated[float, Field(ge=0, description="gamma of Eq. 12: how far similar negatives are raised")] = 1.0
    negatives: Annotated[
        Annotated[int, Field(ge=1)] | Literal["all"],
        Field(description="q of Eq. 11: how many similar classes are raised, 1 or more, or all"),
    ] = 3
    smoothing: Annotated[float, Field(ge=0, lt=1, description="rho of Eq. 8: memory of the relations")] = 0.7
    warmup_rounds: Annotated[int, Field(ge=0, description="rounds at the start with the plain loss")] = 3
    loss_norm: Annotated[Literal["sum", "mean"], Field(description="mean: the loss is divided by 1 + lambda")] = "sum"
    s_norm: Annotated[
        Literal["all", "offdiag"], Field(description="the maximum of Eq. 7: over all pairs, or pairs of two classes")
    ] = "all"
    s_state: Annotated[
        Literal["round", "ema"], Field(description="reliability of the round alone, or smoothed with rho")
    ] = "round"
    use_s: Annotated[bool, Field(description="no: the guidance of Eq. 9 is R^g alone")] = True
    weighting: Annotated[
        Literal["reliability", "uniform"], Field(description="uniform: Eq. 6 is a plain mean over holders")
    ] = "reliability"
    local_mask: Annotated[bool, Field(description="no: classes that a client lacks may be raised (Eq. 10)")] = True
    retain: Annotated[bool, Field(description="no: a pair nobody observed in a round becomes 0 (Eq. 8)")] = True
    ema_init: Annotated[
        Literal["identity", "first", "debias"],
        Field(description="start of Eq. 8: from the identity, from a pair's first observation, or freed of the start"),
    ] = "identity"
    topology: Annotated[
        Literal["global", "local"], Field(description="local: each client uses its own smoothed relations")
    ] = "global"
    local_s: Annotated[
        Literal["ones", "self", "global"],
        Field(description="topology=local: S is 1, from the client's own counts, or the server's"),
    ] = "ones"
    relation_control: Annotated[
        Literal["none", "constant", "shuffled", "margin", "match-norm", "given"],
        Field(
            description="constant: all observed relations become their mean; shuffled: permuted among pairs; margin: "
            "all held negatives are raised by `margin`; match-norm: all negatives, with the row sums of the q largest; "
            "given: those of the file `relations`"
        ),
    ] = "none"
    margin: Annotated[
        float, Field(ge=0, description="relation_control=margin: by how much; see guidance_mean in a full run's rows")
    ] = 0.0
    relations: Annotated[
        str | None,
        Field(description="relation_control=given: CSV file of C x C relations, such as 'motley analyse' writes"),
    ] = None
    prototypes: Annotated[
        Literal["exact", "running"],
        Field(description="exact: an extra pass after training; running: features of the last epoch while training"),
    ] = "exact"
    relation_feature: Annotated[
        Literal["pooled", "raw"],
        Field(description="raw: relations of the backbone's output before it is pooled to the common width"),
    ] = "pooled"
    wire: Annotated[
        Literal["dense", "sparse"],
        Field(description="dense: whole matrices, as the paper counts; sparse: the same without what nobody reads"),
    ] = "dense"
    count_noise: Annotated[
        float, Field(ge=0, description="scale b of Laplace noise on the counts, drawn once a client; no privacy proof")
    ] = 0.0
    hide_absent: Annotated[bool, Field(description="count_noise: absent classes get noise, too")] = False

    def __post_init__(self) -> None:
        """Refuse choices that exclude each other.

        Raises:
            InvalidConfig: Raw features are asked for while training, where only pooled ones pass by; or relations are
                given and not used, or used and not given.
        """
        if self.relation_feature == "raw" and self.prototypes == "running":
            raise InvalidConfig("fedtopo.relation_feature = raw needs fedtopo.prototypes = exact")
        if self.relation_control == "given" and self.relations is None:
            raise InvalidConfig("fedtopo.relation_control = given needs fedtopo.relations, the file that holds them")
        if self.relation_control != "given" and self.relations is not None:
            raise InvalidConfig(
                f"fedtopo.relations means nothing for fedtopo.relation_control = {self.relation_control}; set that to "
                "given"
            )
        if self.relation_control == "given" and self.topology == "local":
            raise InvalidConfig(
                "fedtopo.topology = local uses each client's own relations; fedtopo.relations needs fedtopo.topology = "
                "global"
            )
