"""How far the clients' prototypes and relations lie from the global ones (FedTopo, Eqs. 24-26), with controls.

K clients, C classes. What a client does not hold is NaN in the input and left out of every mean; a mean over nothing
is None (per client) or NaN (in a tensor per class or pair). The controls are the same functions on other inputs:
permuted reliability and constant relations come from `topology_controls`, references without a client's own part from
the two `others_...` functions here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from motley.errors import InvalidInput
from motley.functional.topology import EPSILON, MIN_NORM, pair_mask, pair_weights

PrototypeWeighting = Literal["counts", "uniform"]


def similarity(first: Tensor, second: Tensor) -> Tensor:
    """Return phi(a, b) = (1 + cos(a, b)) / 2 over the last axis.

    Args:
        first: Shape (..., d).
        second: Shape (..., d), broadcast against `first`.

    Returns:
        Shape (...), float64, in [0, 1]; NaN where a vector is not finite or not longer than 1e-12.

    Source: FedTopo, Eqs. 3 and 24.

    >>> similarity(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 3.0])).item()
    0.5
    """
    return ((1 + (_unit(first) * _unit(second)).sum(dim=-1)) / 2).clamp(0, 1)


def _unit(vectors: Tensor) -> Tensor:
    exact = vectors.double()
    norms = torch.linalg.vector_norm(exact, dim=-1, keepdim=True)
    return torch.where((norms > MIN_NORM) & norms.isfinite(), exact / norms, torch.nan)


def global_prototypes(prototypes: Tensor, counts: Tensor, *, weighting: PrototypeWeighting = "counts") -> Tensor:
    """Return p^g_c = sum_k beta_kc p_kc over the holders; computed in simulation only, never sent.

    Args:
        prototypes: Shape (K, C, d), NaN rows where absent.
        counts: Shape (K, C), >= 0.
        weighting: "counts": beta_kc = n_kc / sum_j n_jc; "uniform": one over the number of holders.

    Returns:
        Shape (C, d), float64; NaN where nobody holds the class.

    Raises:
        InvalidInput: The shapes do not fit.

    Source: FedTopo, Eq. 14 with our reading of beta.

    >>> global_prototypes(torch.tensor([[[4.0]], [[1.0]]]), torch.tensor([[2], [1]])).tolist()
    [[3.0]]
    """
    beta, exact = _holder_weights(prototypes, counts, weighting)
    return (beta * exact).sum(dim=0) / beta.sum(dim=0)


def others_prototypes(prototypes: Tensor, counts: Tensor, *, weighting: PrototypeWeighting = "counts") -> Tensor:
    """Return for each client the global prototypes without its own contribution.

    Args:
        prototypes: Shape (K, C, d), NaN rows where absent.
        counts: Shape (K, C), >= 0.
        weighting: As in `global_prototypes`.

    Returns:
        Shape (K, C, d), float64; NaN where no other client holds the class.

    Raises:
        InvalidInput: The shapes do not fit.

    >>> others_prototypes(torch.tensor([[[4.0]], [[1.0]]]), torch.tensor([[2], [1]])).flatten().tolist()
    [1.0, 4.0]
    """
    beta, exact = _holder_weights(prototypes, counts, weighting)
    weighted = beta * exact
    rest = (beta.sum(dim=0) - beta).masked_fill(_others(beta > 0) == 0, 0.0)
    return torch.where(rest > 0, (weighted.sum(dim=0) - weighted) / rest, torch.nan)


def _holder_weights(prototypes: Tensor, counts: Tensor, weighting: PrototypeWeighting) -> tuple[Tensor, Tensor]:
    if prototypes.ndim != 3 or counts.shape != prototypes.shape[:2]:
        raise InvalidInput(
            f"global prototypes need prototypes (K, C, d) of one d and counts (K, C), not {tuple(prototypes.shape)} "
            f"and {tuple(counts.shape)}"
        )
    held = ((counts > 0) & prototypes.isfinite().all(dim=2)).unsqueeze(2)
    weights = counts.double() if weighting == "counts" else torch.ones_like(counts, dtype=torch.float64)
    return torch.where(held, weights.unsqueeze(2), 0.0), torch.where(held, prototypes.double(), 0.0)


def others_relations(relations: Tensor, counts: Tensor) -> Tensor:
    """Return for each client the aggregate of the round (Eqs. 5-6) over the other clients.

    The smoothing over rounds is left out: a client's own part in R_t cannot be taken back from R_t alone.

    Args:
        relations: Shape (K, C, C), NaN where masked.
        counts: Shape (K, C), >= 0.

    Returns:
        Shape (K, C, C), float64; NaN where no other client holds the pair.

    Raises:
        InvalidInput: The shapes do not fit, or a count is negative or not finite.

    >>> R = torch.tensor([[[1.0, 0.5], [0.5, 1.0]], [[1.0, 0.75], [0.75, 1.0]]])
    >>> [round(float(r), 6) for r in others_relations(R, torch.tensor([[1, 1], [3, 3]]))[:, 0, 1]]
    [0.75, 0.5]
    """
    if relations.ndim != 3 or counts.shape != relations.shape[:2]:
        raise InvalidInput(
            f"the relations of others need relations (K, C, C) and counts (K, C), not {tuple(relations.shape)} "
            f"and {tuple(counts.shape)}"
        )
    weights = torch.stack([pair_weights(n) for n in counts])
    masks = torch.stack([pair_mask(n) for n in counts])
    weighted = torch.where(masks, weights * relations.double(), 0.0)
    rest = (weighted.sum(dim=0) - weighted) / (weights.sum(dim=0) - weights + EPSILON)
    return torch.where(_others(masks) > 0, rest, torch.nan)


def _others(held: Tensor) -> Tensor:
    """Return how many other clients (first axis) hold the same; counted, as a difference of sums is never exactly 0."""
    return held.sum(dim=0) - held.int()


@dataclass(frozen=True)
class PrototypeDiscrepancy:
    """D^p of a federation."""

    per_client: tuple[float | None, ...]  # K; None for a client without a class
    per_class: Tensor  # (C,) float64, mean over holders; NaN without one


def prototype_discrepancy(prototypes: Tensor, reference: Tensor) -> PrototypeDiscrepancy:
    """Return D^p_k = mean over held classes of |phi(p_kc, p_c^g) - 1|, and the mean over holders per class.

    Args:
        prototypes: Shape (K, C, d), NaN rows where absent.
        reference: p^g, shape (C, d), or one for each client (K, C, d); NaN entries are left out.

    Returns:
        Per client and per class.

    Source: FedTopo, Eq. 24.

    >>> prototype_discrepancy(torch.tensor([[[1.0, 0.0]], [[0.0, 1.0]]]), torch.tensor([[2.0, 0.0]])).per_client
    (0.0, 0.5)
    """
    terms = (similarity(prototypes, reference) - 1).abs()
    return PrototypeDiscrepancy(_means(terms), terms.nanmean(dim=0))


@dataclass(frozen=True)
class RelationDiscrepancy:
    """D^r and D^rs of a federation."""

    plain: tuple[float | None, ...]  # D^r, K; None for a client without a pair
    scaled: tuple[float | None, ...]  # D^rs: each term times S, still divided by the number of pairs; <= D^r always
    normalised: tuple[float | None, ...]  # sum S |.| / sum S, the fair form; None also where S is 0
    per_pair: Tensor  # (C, C) float64, mean over holders of the terms of D^r; NaN without one and on the diagonal


def relation_discrepancy(relations: Tensor, reference: Tensor, reliability: Tensor) -> RelationDiscrepancy:
    """Return D^r_k = mean over held pairs c < c' of |R_k - R^g|, and the forms that weigh the terms by S.

    Args:
        relations: R_k, shape (K, C, C), NaN where masked.
        reference: R^g, shape (C, C), or one for each client (K, C, C); NaN entries are left out.
        reliability: S, shape (C, C).

    Returns:
        Per client and per pair.

    Raises:
        InvalidInput: The shapes do not fit.

    Source: FedTopo, Eqs. 25-26.

    >>> R = torch.tensor([[[1.0, 0.5], [0.5, 1.0]]])
    >>> found = relation_discrepancy(R, torch.ones(2, 2), torch.full((2, 2), 0.25))
    >>> found.plain, found.scaled, found.normalised
    ((0.5,), (0.125,), (0.5,))
    """
    num_classes = relations.shape[-1]
    if relations.ndim != 3 or not relations.shape[1:] == reference.shape[-2:] == reliability.shape:
        raise InvalidInput(
            f"discrepancies need R_k (K, C, C), R^g (C, C) and S (C, C), not {tuple(relations.shape)}, "
            f"{tuple(reference.shape)} and {tuple(reliability.shape)}"
        )
    difference = (relations.double() - reference.double()).abs()
    rows, columns = torch.triu_indices(num_classes, num_classes, offset=1)
    terms, weights = difference[:, rows, columns], reliability[rows, columns].double()
    total = torch.where(terms.isnan(), 0.0, weights).sum(dim=1)
    ratio = (terms * weights).nansum(dim=1) / total  # 0 / 0 = NaN: no weight
    per_pair = difference.nanmean(dim=0).fill_diagonal_(torch.nan)
    return RelationDiscrepancy(_means(terms), _means(terms * weights), _means(ratio.unsqueeze(1)), per_pair)


def _means(terms: Tensor) -> tuple[float | None, ...]:
    return tuple(None if math.isnan(mean) else mean for mean in terms.nanmean(dim=1).tolist())


@dataclass(frozen=True)
class PairedMeans:
    """Means of several metrics over the same clients."""

    means: tuple[float | None, ...]  # one a metric; None if no client has all of them
    left_out: int  # clients without all of them


def paired_means(*metrics: Sequence[float | None]) -> PairedMeans:
    """Return the mean of each metric over the clients for which none of the metrics is None.

    Args:
        metrics: Each with one value per client.

    Returns:
        Means and how many clients were left out; print the number beside the means.

    Raises:
        InvalidInput: The metrics differ in length.

    Source: FedTopo, section 7 of the sheet.

    >>> paired_means([0.5, 0.25, 9.0], [1.0, 3.0, None])
    PairedMeans(means=(0.375, 2.0), left_out=1)
    """
    if len({len(values) for values in metrics}) > 1:
        raise InvalidInput(f"paired metrics must have one length, not {[len(values) for values in metrics]}")
    every = list(zip(*metrics, strict=True))
    complete = [[value for value in row if value is not None] for row in every if None not in row]
    if not complete:
        return PairedMeans((None,) * len(metrics), len(every))
    means = tuple(sum(column) / len(complete) for column in zip(*complete, strict=True))
    return PairedMeans(means, len(every) - len(complete))
