"""FedTopo's mechanism study: D^p, D^r and D^rs of a federation with the controls that tell what they show.

K clients, C classes. D^rs <= D^r holds for any reliability up to 1, so the scaled form alone shows nothing; the
normalised form and the controls do (FedTopo sheet, section 7).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from motley.errors import InvalidInput
from motley.functional.topology import aggregate, sum_relations
from motley.functional.topology_controls import constant_relations, pair_order, shuffled_relations
from motley.functional.topology_metrics import (
    PairedMeans,
    PrototypeDiscrepancy,
    RelationDiscrepancy,
    global_prototypes,
    others_prototypes,
    others_relations,
    paired_means,
    prototype_discrepancy,
    relation_discrepancy,
)

Values = tuple[float | None, ...]

NORMALISED, PERMUTED, CONSTANT = "normalised by S", "S permuted", "constant relations"
UNSMOOTHED, OWN_REMOVED = "aggregate of these models, not smoothed", "own part removed"
OTHERS_CONSTANT, ALONE = "constant relations of the others", "D_r_own_removed"


@dataclass(frozen=True)
class Control:
    """A measure beside what it is held against, both over the same clients.

    Attributes:
        name: Which control.
        measure: Which measure it belongs to: D_p, D_r, D_rs_norm or D_r_own_removed.
        value: Mean of the control over these clients.
        own: Mean of the measure over these clients.
        clients: How many they are.
        low, high: 2.5 % and 97.5 % of the draws, of a control that is drawn.
        p: (1 + draws that are as low as the measure or lower) / (1 + draws), of a control that is drawn.
    """

    name: str
    measure: str
    value: float | None
    own: float | None
    clients: int
    low: float | None = None
    high: float | None = None
    p: float | None = None


@dataclass(frozen=True)
class Mechanism:
    """The study of one federation.

    Attributes:
        counts: Effective samples per class, (K, C); 0 also where a prototype has no direction.
        local: R_k, (K, C, C), NaN where masked.
        current: The aggregate of R_k (Eqs. 5-6), not smoothed, (C, C), 0 where unobserved.
        relations: R^g, (C, C), what D^r is held against.
        reliability: S, (C, C).
        prototypes: D^p; None if the clients have no common feature width.
        pairs: D^r, D^rs and the normalised form.
        means: Means of D^p (if there is one), D^r and D^rs over the clients that have all of them.
        left_out: Clients that do not.
        without_self: D^r of each client against the aggregate of the others.
        without_self_prototypes: D^p of each client against the mean of the others.
        controls: As the sheet lists them.
    """

    counts: Tensor
    local: Tensor
    current: Tensor
    relations: Tensor
    reliability: Tensor
    prototypes: PrototypeDiscrepancy | None
    pairs: RelationDiscrepancy
    means: PairedMeans
    left_out: tuple[int, ...]
    without_self: Values
    without_self_prototypes: Values
    controls: tuple[Control, ...]


def study_mechanism(
    prototypes: Tensor | None,
    local: Tensor,
    counts: Tensor,
    *,
    relations: Tensor | None,
    reliability: Tensor,
    draws: int,
    generator: torch.Generator,
) -> Mechanism:
    """Return all measures and controls.

    Args:
        prototypes: p_kc in one common width, (K, C, d), NaN rows where absent; None if there is none.
        local: R_k, (K, C, C), NaN where masked.
        counts: Effective samples per class, (K, C), > 0 exactly where R_k has a diagonal.
        relations: R^g of the server, (C, C); None: the aggregate of R_k.
        reliability: S, (C, C).
        draws: Permutations of S.
        generator: On the CPU, for them.

    Raises:
        InvalidInput: The shapes do not fit, or there are no draws.

    Source: FedTopo, Eqs. 24-26, and section 7 of the sheet.

    >>> R = torch.tensor([[[1.0, 0.5], [0.5, 1.0]], [[1.0, 0.7], [0.7, 1.0]]], dtype=torch.float64)
    >>> S, n, chance = torch.full((2, 2), 0.5), torch.tensor([[3, 3], [3, 3]]), torch.Generator()
    >>> made = study_mechanism(None, R, n, relations=None, reliability=S, draws=1, generator=chance)
    >>> [round(mean, 6) for mean in made.means.means]
    [0.1, 0.05]
    """
    if draws < 1:
        raise InvalidInput(f"permutations of S need at least 1 draw, not {draws}")
    uploads = {client: (local[client], counts[client]) for client in range(len(counts))}
    current = aggregate(sum_relations(uploads, counts.shape[1]))
    reference = current if relations is None else relations.double()
    pairs = relation_discrepancy(local, reference, reliability)
    points = None if prototypes is None else prototype_discrepancy(prototypes, global_prototypes(prototypes, counts))
    every = [pairs.plain, pairs.scaled] if points is None else [points.per_client, pairs.plain, pairs.scaled]
    rest = others_relations(local, counts)
    lonely = relation_discrepancy(local, rest, reliability).plain
    controls = [_against(NORMALISED, "D_r", pairs.normalised, pairs.plain)]
    controls.append(_permuted(local, reference, reliability, pairs.normalised, draws, generator))
    constant = relation_discrepancy(local, constant_relations(reference, observed_pairs(local)), reliability)
    controls.append(_against(CONSTANT, "D_r", constant.plain, pairs.plain))
    if relations is not None:
        unsmoothed = relation_discrepancy(local, current, reliability)
        controls.append(_against(UNSMOOTHED, "D_r", unsmoothed.plain, pairs.plain))
    same_pairs = torch.where(rest.isfinite(), current, torch.nan)
    controls.append(_against(OWN_REMOVED, "D_r", lonely, relation_discrepancy(local, same_pairs, reliability).plain))
    flat = relation_discrepancy(local, _constants(rest), reliability)
    controls.append(_against(OTHERS_CONSTANT, ALONE, flat.plain, lonely))
    alone: Values = (None,) * len(counts)
    if prototypes is not None:
        others = others_prototypes(prototypes, counts)
        alone = prototype_discrepancy(prototypes, others).per_client
        known = others.isfinite().all(dim=2, keepdim=True)
        same = torch.where(known, global_prototypes(prototypes, counts), torch.nan)
        controls.append(_against(OWN_REMOVED, "D_p", alone, prototype_discrepancy(prototypes, same).per_client))
    return Mechanism(
        counts=counts,
        local=local,
        current=current,
        relations=reference,
        reliability=reliability,
        prototypes=points,
        pairs=pairs,
        means=paired_means(*every),
        left_out=tuple(client for client, row in enumerate(zip(*every, strict=True)) if None in row),
        without_self=lonely,
        without_self_prototypes=alone,
        controls=tuple(controls),
    )


def observed_pairs(local: Tensor) -> Tensor:
    """Return which pairs somebody observed, (C, C) bool.

    >>> observed_pairs(torch.tensor([[[1.0, torch.nan], [torch.nan, torch.nan]]])).tolist()
    [[True, False], [False, False]]
    """
    return local.isfinite().any(dim=0)


def _against(name: str, measure: str, value: Sequence[float | None], own: Sequence[float | None]) -> Control:
    found = paired_means(value, own)
    return Control(name, measure, found.means[0], found.means[1], len(value) - found.left_out)


def _permuted(
    local: Tensor, reference: Tensor, reliability: Tensor, own: Values, draws: int, generator: torch.Generator
) -> Control:
    """Return the normalised form with the observed off-diagonal entries of S permuted among each other."""
    seen, size = reliability > 0, len(reliability)
    found = []
    for _ in range(draws):
        other = shuffled_relations(reliability, seen, pair_order(size, generator))
        mean = paired_means(relation_discrepancy(local, reference, other).normalised).means[0]
        if mean is not None:
            found.append(mean)
    whole = paired_means(own)
    measured, clients = whole.means[0], len(own) - whole.left_out
    if not found or measured is None:
        return Control(PERMUTED, "D_rs_norm", None, measured, clients)
    drawn = torch.tensor(found, dtype=torch.float64)
    low, high = drawn.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    p = (1 + int((drawn <= measured).sum())) / (1 + len(found))
    return Control(PERMUTED, "D_rs_norm", float(drawn.mean()), measured, clients, low, high, p)


def _constants(relations: Tensor) -> Tensor:
    """Return each of the matrices (K, C, C) with all pairs that are not NaN at their mean."""
    off = ~torch.eye(relations.shape[1], dtype=torch.bool)
    means = torch.stack([own[off].nanmean() for own in relations])
    return torch.where(relations.isfinite(), means[:, None, None], torch.nan)
