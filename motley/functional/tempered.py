"""A tempered agreement filter for CRAD: evidence counts, but no teacher can buy more than a share of it.

Beyond the paper. For each class, over the supported teachers: shares = capped one-sided precision, centre = weighted
median, kept = within the weighted median deviation, raw = mean of the kept with the same shares. Two forged claims
need rho < 1/4: rho = 1 / (2 f + 1) withstands f of them. Put together:

    shares = capped_shares(one_sided_precision(n, a), supported(n), rho)
    target = class_weighted_target(q, tempered_agreement(q, supported(n), shares).kept, shares)
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from motley.errors import InvalidInput
from motley.functional.reliability import (
    Agreement,
    WeightedTarget,
    agreement_tolerance,
    check_soft_targets,
    normalised,
    shrunk_accuracy,
)

TIE = 1e-12  # shares are sums of at most a few hundred roundings; a cumulative share this near to 1/2 is 1/2


def capped_shares(evidence: Tensor, supported: Tensor, rho: float = 0.2) -> Tensor:
    """Return the shares v / sum v with v = min(e, t), t such that the largest share is r = max(rho, 1/m) where capped.

    Args:
        evidence: e, shape (M, C), >= 0, for example the one-sided precision.
        supported: Shape (M, C), bool; the others have share 0. m is their number in a class.
        rho: Largest share, in (0, 1]. With rho <= 1/m all shares are equal.

    Returns:
        Shape (M, C), float64; sums to 1 in each class with a supported teacher of positive evidence.

    Raises:
        InvalidInput: rho is outside of (0, 1] or the shapes differ.

    Source: tempered filter, step 1.

    >>> capped_shares(torch.tensor([[6.0], [1.0], [1.0]]), torch.ones(3, 1, dtype=torch.bool), 0.5).flatten().tolist()
    [0.5, 0.25, 0.25]
    """
    if not 0 < rho <= 1:
        raise InvalidInput(f"the largest share rho must lie in (0, 1], not {rho}")
    if evidence.shape != supported.shape or evidence.ndim != 2:
        raise InvalidInput("evidence and support must have one shape (M, C)")
    claims = torch.where(supported, evidence.double(), 0.0)
    number = supported.sum(dim=0)
    largest = torch.clamp(1 / number.clamp(min=1).double(), min=rho)  # r
    ordered = claims.sort(dim=0, descending=True).values
    others = ordered.flip(0).cumsum(0).flip(0)  # sum without the k largest, k = 0 .. M - 1
    cut = torch.arange(len(claims), dtype=torch.float64, device=claims.device).unsqueeze(1)  # k
    room = 1 - cut * largest
    limits = largest * others / room.clamp(min=TIE)
    fits = (room > TIE) & (ordered <= limits)  # with the k largest cut, the next one is below the cap
    limit = limits.gather(0, fits.int().argmax(dim=0, keepdim=True))
    capped = torch.minimum(claims, limit)
    shares = capped / capped.sum(dim=0).clamp(min=torch.finfo(torch.float64).tiny)
    return torch.where(number * largest <= 1 + TIE, supported.double() / number.clamp(min=1), shares)


def weighted_median(values: Tensor, shares: Tensor) -> Tensor:
    """Return the mean of the lower and the upper weighted median over the teachers.

    Lower: the smallest value up to which the shares sum to 1/2 or more; upper: to more than 1/2.

    Args:
        values: Shape (M, B, C).
        shares: Shape (M, C), >= 0, summing to 1 in each class; values with share 0 are not read.

    Returns:
        Shape (B, C), float64; NaN in a class without shares.

    Source: tempered filter, step 2.

    >>> values = torch.tensor([1.0, 2.0, 4.0]).reshape(3, 1, 1)
    >>> weighted_median(values, torch.tensor([[0.5], [0.25], [0.25]])).item()
    1.5
    """
    weights = shares.unsqueeze(1).expand(values.shape)
    ordered, order = torch.where(weights > 0, values.double(), torch.inf).sort(dim=0)
    reached = weights.double().gather(0, order).cumsum(dim=0)
    last = len(values) - 1
    lower = (reached < 0.5 - TIE).sum(dim=0, keepdim=True).clamp(max=last)
    upper = (reached <= 0.5 + TIE).sum(dim=0, keepdim=True).clamp(max=last)
    median = ((ordered.gather(0, lower) + ordered.gather(0, upper)) / 2).squeeze(0)
    return median.masked_fill(shares.sum(dim=0) == 0, torch.nan)


def tempered_agreement(q: Tensor, supported: Tensor, shares: Tensor) -> Agreement:
    """Keep the supported teachers within the weighted median deviation from the weighted median.

    Args:
        q: Shape (M, B, C), M >= 1, floating.
        supported: Shape (M, C), bool.
        shares: Shape (M, C), from `capped_shares`.

    Returns:
        Kept teachers, centre (as `consensus`) and threshold; the tolerance is that of CRAD's Eq. 5.

    Raises:
        InvalidInput: The shapes do not fit or there is no teacher.

    Source: tempered filter, step 2.

    >>> q = torch.tensor([0.5, 0.5, 0.25]).reshape(3, 1, 1)
    >>> found = tempered_agreement(q, torch.ones(3, 1, dtype=torch.bool), torch.full((3, 1), 1 / 3))
    >>> found.consensus.item(), found.kept.flatten().tolist()
    (0.5, [True, True, False])
    """
    check_soft_targets(q, supported)
    check_soft_targets(q, shares)
    supported, shares = supported.to(q.device), shares.to(q.device)
    centre = weighted_median(q, shares)
    deviation = (q.double() - centre).abs()
    threshold = weighted_median(deviation, shares)
    kept = supported.unsqueeze(1) & (deviation <= threshold + agreement_tolerance(q, supported))
    return Agreement(kept, centre, threshold)


@dataclass(frozen=True)
class Audit:
    """What the student's own validation samples say about claims; neither is true where they are too few."""

    verified: Tensor  # bool
    refuted: Tensor  # bool


def audit(
    counts: Tensor,
    accuracies: Tensor,
    *,
    own_counts: Tensor,
    own_correct: Tensor,
    negatives: Tensor,
    false_alarms: Tensor,
) -> Audit:
    """Test claimed accuracies on the student's own validation samples.

    plausible: at_claim - at_own <= 2.576 sqrt(var_claim + var_own), both shrunk as in CRAD's Eq. 6. Verified: plausible
    with own_counts >= 5 and (fp + 2) / (neg + 4) <= 0.1. Refuted: not plausible with own_counts >= 5, or fp > 0.1 neg
    with neg >= 20.

    Args:
        counts: Claimed n, any shape, for example (M, C).
        accuracies: Claimed a, the same shape.
        own_counts: The student's samples of the class.
        own_correct: How many of them the teacher answers right.
        negatives: The student's samples of other classes, neg.
        false_alarms: How many of them the teacher calls this class, fp.

    Returns:
        Two masks of the same shape.

    Raises:
        InvalidInput: As in `shrunk_accuracy`.

    Source: tempered filter, option `audit`.

    >>> names = ("own_counts", "own_correct", "negatives", "false_alarms")
    >>> own = {name: torch.tensor(value) for name, value in zip(names, (20, 17, 480, 12))}
    >>> bool(audit(torch.tensor(258), torch.tensor(0.9), **own).verified)
    True
    """
    claimed, claimed_variance = shrunk_accuracy(counts, accuracies)
    found, found_variance = shrunk_accuracy(own_counts, own_correct.double() / own_counts.double().clamp(min=1))
    plausible = claimed - found <= 2.576 * (claimed_variance + found_variance).sqrt()
    enough = own_counts >= 5
    alarms, others = false_alarms.double(), negatives.double()
    verified = plausible & enough & ((alarms + 2) / (others + 4) <= 0.1)
    refuted = (~plausible & enough) | ((alarms > 0.1 * others) & (others >= 20))
    return Audit(verified, refuted)


def joining_shares(kept: Tensor, evidence: Tensor, eligible: Tensor) -> Tensor:
    """Return the shares of the verified outliers that join the kept teachers; see `admit_verified`.

    Args:
        kept: Shape (M, B, C), bool.
        evidence: e, shape (M, C), one-sided precision.
        eligible: Shape (M, C), bool.

    Returns:
        Shape (M, B, C), float64; sums to at most 1/2 in each class.

    Source: tempered filter, option `audit`.

    >>> evidence, eligible = torch.tensor([[16.0], [500.0]]), torch.tensor([[False], [True]])
    >>> joining_shares(torch.tensor([[[True]], [[False]]]), evidence, eligible).flatten().tolist()
    [0.0, 0.5]
    """
    claims, eligible = evidence.to(kept.device).double().unsqueeze(1), eligible.to(kept.device)
    of_kept = torch.where(kept, claims, 0.0)
    joins = eligible.unsqueeze(1) & ~kept & (claims > of_kept.amax(dim=0)) & kept.any(dim=0)
    of_joining = torch.where(joins, claims, 0.0)
    joining = of_joining.sum(dim=0)
    share = torch.where(joining > 0, joining / (joining + of_kept.sum(dim=0)), 0.0).clamp(max=0.5)
    return share * of_joining / joining.clamp(min=torch.finfo(torch.float64).tiny)


def admit_verified(made: WeightedTarget, q: Tensor, kept: Tensor, evidence: Tensor, eligible: Tensor) -> WeightedTarget:
    """Let verified outliers join the target with at most half of the weight.

    An outlier is eligible and not kept, with e above every kept one's. share = min(0.5, e / (e + sum of kept e)), and
    raw becomes (1 - share) raw + share q. Our reading of several at once: they share what one with the sum of their
    evidence would get, in proportion to it, so that the kept ones never fall below half.

    Args:
        made: Target of the kept teachers.
        q: Shape (M, B, C).
        kept: Shape (M, B, C), bool.
        evidence: e, shape (M, C), one-sided precision.
        eligible: Shape (M, C), bool: verified, supported and at >= 0.5.

    Returns:
        The new target, raw and mass.

    Raises:
        InvalidInput: The shapes do not fit.

    Source: tempered filter, option `audit`.

    >>> q = torch.tensor([[[0.25, 0.75]], [[0.75, 0.25]]])
    >>> kept = torch.tensor([[[True, True]], [[False, True]]])
    >>> made = normalised(torch.tensor([[0.25, 0.5]]), q.mean(0))
    >>> evidence, eligible = torch.tensor([[16.0, 16], [500, 500]]), torch.tensor([[False, False], [True, True]])
    >>> admit_verified(made, q, kept, evidence, eligible).raw.tolist()
    [[0.5, 0.5]]
    """
    check_soft_targets(q, evidence)
    check_soft_targets(q, eligible)
    joined = joining_shares(kept, evidence, eligible)
    raw = ((1 - joined.sum(dim=0)) * made.raw + (joined * q).sum(dim=0)).to(made.raw.dtype)
    return normalised(raw, q.mean(dim=0))
