"""What `motley analyse` finds in a run, for tables, figures and files."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torch import Tensor

from motley.functional.mechanism import Mechanism
from motley.functional.relation_consistency import Consistency

DIFFERENT, SAME = "different architectures", "the same architecture"
RELATIONS = "relations.csv"


@dataclass(frozen=True)
class Projection:
    """Prototypes of length 1 in the plane in which they vary most."""

    local: Tensor  # (K, C, 2), NaN where absent
    overall: Tensor  # (C, 2), the global prototypes
    explained: tuple[float, float]


@dataclass(frozen=True)
class Analysis:
    """One run after its newest checkpoint.

    Attributes:
        path: The run folder.
        method, seed: Of the run.
        round, rounds: After which round the models were saved, and how many the run has.
        class_names: In label order.
        architectures: Of every client.
        feature: Of which features the relations are.
        from_server: Whether R^g and S are those of the run's server; else they are computed of the final models.
        mechanism: D^p, D^r and D^rs with controls.
        projection: None if the clients have no common feature width.
        consistency: Agreement of relations by kind of features: pooled, and raw if a model pools them.
        alignment: Agreement of prototypes; None without a common feature width.
        other_class: By group, the mean phi of different classes; as `alignment`.
        draws: Permutations and rotations for chance.
    """

    path: Path
    method: str
    seed: int
    round: int
    rounds: int
    class_names: tuple[str, ...]
    architectures: tuple[str, ...]
    feature: Literal["pooled", "raw"]
    from_server: bool
    mechanism: Mechanism
    projection: Projection | None
    consistency: Mapping[str, Consistency]
    alignment: Consistency | None
    other_class: Mapping[str, float | None]
    draws: int
