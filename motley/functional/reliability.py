"""Class-wise reliability-aware distillation targets from several teachers (CRAD, Eqs. 1-8).

M teachers, B samples, C classes; q (M, B, C) soft targets, n (M, C) validation counts, a (M, C) validation accuracies.
Every step is one function, so that the variants of the paper are compositions: equal weights are `torch.ones`, no
agreement filter is the support mask, no support filter is `min_support` 0.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from motley.errors import InvalidInput

EPSILON = 1e-12  # eps7 and eps8; the smallest variance in practice, n = 1000 and a = 1, is 1.98e-6

Rule = Literal["precision", "one_sided", "accuracy", "support", "softmax_neg_var", "lcb", "cross_entropy", "inv_sigma"]
Unsupported = Literal["uniform", "zero"]


def soft_targets(logits: Tensor, temperature: float) -> Tensor:
    """Return q = softmax(z / T) over the last axis, without gradient.

    Args:
        logits: Shape (..., C), floating; half precision is raised to float32.
        temperature: T, > 0.

    Returns:
        The same shape, float32 or better.

    Raises:
        InvalidInput: T <= 0.

    Source: CRAD, Eqs. 1-2.

    >>> soft_targets(torch.tensor([5.0, 5.0]), 3.0).tolist()
    [0.5, 0.5]
    """
    if temperature <= 0:
        raise InvalidInput(f"the temperature must be > 0, not {temperature}")
    scores = logits.detach()
    if scores.dtype in {torch.float16, torch.bfloat16}:
        scores = scores.float()
    return torch.softmax(scores / temperature, dim=-1)


def uniform_target(q: Tensor) -> Tensor:
    """Return the plain mean over all teachers.

    Args:
        q: Shape (M, B, C), M >= 1.

    Returns:
        Shape (B, C).

    Raises:
        InvalidInput: `q` has another shape or no teacher.

    Source: CRAD, Eq. 3.

    >>> uniform_target(torch.tensor([[[1.0, 0.0]], [[0.5, 0.5]]])).tolist()
    [[0.75, 0.25]]
    """
    check_soft_targets(q)
    return q.mean(dim=0)


def supported(counts: Tensor, min_support: float = 2) -> Tensor:
    """Return which teachers have enough validation samples of which class: n >= min_support.

    Args:
        counts: Shape (M, C), >= 0, integer or (noised) real.
        min_support: In samples, >= 0.

    Returns:
        Shape (M, C), bool.

    Source: CRAD, support filter of Sec. 3.

    >>> supported(torch.tensor([[3, 1]])).tolist()
    [[True, False]]
    """
    return counts >= min_support


@dataclass(frozen=True)
class Agreement:
    """Which teachers agree with the others, per sample and class."""

    kept: Tensor  # (M, B, C) bool
    consensus: Tensor  # (B, C) float64, mean of the supported teachers; NaN without any
    threshold: Tensor  # (B, C) float64, median deviation from it; NaN without any


def agreement(q: Tensor, supported: Tensor) -> Agreement:
    """Keep the supported teachers that deviate no more than the median from their mean.

    Over the m supported teachers of a class: consensus = mean q_j, d_j = |q_j - consensus|, threshold = median d_j
    (mean of the two middle values), kept: d_j <= threshold + tol, tol = (m + 2) eps max_j q_j with eps of the dtype of
    `q`. All of it is evaluated in float64. Ties keep more than half; one or two teachers are always kept.

    Args:
        q: Shape (M, B, C), M >= 1, finite, floating.
        supported: Shape (M, C), bool.

    Returns:
        Kept teachers, consensus and threshold.

    Raises:
        InvalidInput: The shapes do not fit or there is no teacher.

    Source: CRAD, Eqs. 4-5.

    >>> q = torch.tensor([0.2, 0.4, 0.5, 0.9]).reshape(4, 1, 1)
    >>> agreement(q, torch.ones(4, 1, dtype=torch.bool)).kept.flatten().tolist()
    [False, True, True, False]
    """
    check_soft_targets(q, supported)
    supported = supported.to(q.device)
    exact, mask = q.double(), supported.unsqueeze(1)
    number = supported.sum(dim=0)
    consensus = torch.where(mask, exact, 0.0).sum(dim=0) / number  # 0 / 0 = NaN: no supported teacher
    deviation = torch.where(mask, (exact - consensus).abs(), torch.inf)
    ordered = deviation.sort(dim=0).values
    # torch.median takes the lower middle value; the deviations of teachers without support stand last.
    lower, upper = ((number - 1).clamp(min=0) // 2, (number // 2).clamp(max=len(q) - 1))
    threshold = (_pick(ordered, lower) + _pick(ordered, upper)) / 2
    kept = mask & (deviation <= threshold + agreement_tolerance(q, supported))
    return Agreement(kept, consensus, threshold.masked_fill(number == 0, torch.nan))


def agreement_tolerance(q: Tensor, supported: Tensor) -> Tensor:
    """Return (m + 2) eps max_j q_j over the m supported teachers, which covers the rounding of the deviations.

    Two teachers deviate equally from their mean; without it rounding drops one of them in 9-61 % of cases.

    Args:
        q: Shape (M, B, C), floating; eps is that of its dtype.
        supported: Shape (M, C), bool.

    Returns:
        Shape (B, C), float64.

    Source: CRAD, Eq. 5, our reading.

    >>> q = torch.full((2, 1, 1), 0.5, dtype=torch.float64)
    >>> float(agreement_tolerance(q, torch.ones(2, 1, dtype=torch.bool))) == 4 * 2**-52 * 0.5
    True
    """
    largest = torch.where(supported.unsqueeze(1), q, 0).amax(dim=0).double()
    return (supported.sum(dim=0) + 2).double() * torch.finfo(q.dtype).eps * largest


def shrunk_accuracy(counts: Tensor, accuracies: Tensor) -> tuple[Tensor, Tensor]:
    """Return the accuracy shrunk towards 1/2 and its variance: at = (a n + 2) / (n + 4), at (1 - at) / (n + 4).

    Args:
        counts: n, shape (M, C), >= 0; without samples the accuracy is not read.
        accuracies: a, shape (M, C), in [0, 1].

    Returns:
        at in (0, 1) and var in (0, 1/16], both (M, C), float64.

    Raises:
        InvalidInput: The shapes differ, a count is negative or an accuracy is outside of [0, 1].

    Source: CRAD, Eq. 6.

    >>> shrunk, variance = shrunk_accuracy(torch.tensor([[0, 4]]), torch.tensor([[0.0, 1.0]]))
    >>> shrunk.tolist(), variance.tolist()
    ([[0.5, 0.75]], [[0.0625, 0.0234375]])
    """
    if counts.shape != accuracies.shape:
        raise InvalidInput(
            f"counts and accuracies must have one shape, not {tuple(counts.shape)} and {tuple(accuracies.shape)}"
        )
    n = counts.double()
    a = torch.where(n > 0, accuracies.double(), 0.0)
    if not bool(((n >= 0) & n.isfinite() & (a >= 0) & (a <= 1)).all()):
        raise InvalidInput("counts must be finite and >= 0, and accuracies must lie in [0, 1]")
    shrunk = (a * n + 2) / (n + 4)
    return shrunk, shrunk * (1 - shrunk) / (n + 4)


def precision(counts: Tensor, accuracies: Tensor) -> Tensor:
    """Return w = 1 / (var + 1e-12) of the shrunk accuracy. It is symmetric: always wrong weighs as much as right.

    Args:
        counts: Shape (M, C), >= 0.
        accuracies: Shape (M, C), in [0, 1].

    Returns:
        Shape (M, C), float64, >= 16.

    Raises:
        InvalidInput: As in `shrunk_accuracy`.

    Source: CRAD, Eqs. 6-7.

    >>> [round(w, 6) for w in precision(torch.tensor([[0, 100]]), torch.tensor([[0.5, 1.0]])).flatten().tolist()]
    [16.0, 5514.039185]
    """
    _, variance = shrunk_accuracy(counts, accuracies)
    return 1 / (variance + EPSILON)


def one_sided_precision(counts: Tensor, accuracies: Tensor) -> Tensor:
    """Return the precision with var = 0.25 / (n + 4) where at < 1/2, so that being wrong is no evidence.

    Args:
        counts: Shape (M, C), >= 0.
        accuracies: Shape (M, C), in [0, 1].

    Returns:
        Shape (M, C), float64; does not decrease in the accuracy.

    Raises:
        InvalidInput: As in `shrunk_accuracy`.

    Source: beyond the paper.

    >>> [round(w, 3) for w in one_sided_precision(torch.tensor([100, 100]), torch.tensor([0.0, 1.0])).tolist()]
    [416.0, 5514.039]
    """
    shrunk, variance = shrunk_accuracy(counts, accuracies)
    return 1 / (torch.where(shrunk < 0.5, 0.25 / (counts.double() + 4), variance) + EPSILON)


def teacher_weights(counts: Tensor, accuracies: Tensor, *, rule: Rule, cross_entropies: Tensor | None = None) -> Tensor:
    """Return the weights of one of the compared rules, before normalisation over the kept teachers.

    precision and one_sided as above; accuracy at; support n; softmax_neg_var exp(-var); lcb max(0, at - sqrt(var));
    cross_entropy exp(-nll), scaled per class so that the best teacher has 1; inv_sigma 1 / sqrt(var + 1e-12).

    Args:
        counts: Shape (M, C), >= 0.
        accuracies: Shape (M, C), in [0, 1].
        rule: Name of the rule.
        cross_entropies: nll, mean validation cross-entropy per class, shape (M, C), read by its rule alone; a value
            that is not finite weighs 0.

    Returns:
        Shape (M, C), float64, >= 0.

    Raises:
        InvalidInput: As in `shrunk_accuracy`, an unknown rule, or missing cross-entropies.

    Source: CRAD, Table 4.

    >>> teacher_weights(torch.tensor([[0], [4]]), torch.tensor([[0.5], [1.0]]), rule="accuracy").flatten().tolist()
    [0.5, 0.75]
    """
    if rule == "cross_entropy":
        return _likelihoods(counts, cross_entropies)
    shrunk, variance = shrunk_accuracy(counts, accuracies)
    weights: dict[str, Callable[[], Tensor]] = {
        "precision": lambda: precision(counts, accuracies),
        "one_sided": lambda: one_sided_precision(counts, accuracies),
        "accuracy": lambda: shrunk,
        "support": counts.double,
        "softmax_neg_var": lambda: torch.exp(-variance),
        "lcb": lambda: (shrunk - variance.sqrt()).clamp(min=0),
        "inv_sigma": lambda: 1 / (variance + EPSILON).sqrt(),
    }
    if rule not in weights:
        raise InvalidInput(f"{rule!r} is no weighting rule; known: {', '.join([*weights, 'cross_entropy'])}")
    return weights[rule]()


def _likelihoods(counts: Tensor, cross_entropies: Tensor | None) -> Tensor:
    if cross_entropies is None or cross_entropies.shape != counts.shape:
        raise InvalidInput("the rule cross_entropy needs the cross-entropies of all teachers, shape (M, C)")
    nll = torch.where(cross_entropies.isfinite(), cross_entropies.double(), torch.inf)
    return torch.exp(nll.amin(dim=0) - nll).nan_to_num(nan=0.0)  # inf - inf: nobody knows the class


@dataclass(frozen=True)
class WeightedTarget:
    """What the student is to imitate."""

    target: Tensor  # (B, C), rows sum to 1
    raw: Tensor  # (B, C), the class-wise means before they are normalised
    mass: Tensor  # (B,), sum of raw; not 1, as each class draws on other teachers


def class_weighted_target(
    q: Tensor, kept: Tensor, weights: Tensor, *, unsupported: Unsupported = "uniform"
) -> WeightedTarget:
    """Average each class over its own kept teachers and normalise over the classes.

    raw^c = sum_kept w q / (sum_kept w + 1e-12), target = raw / sum_c raw. A class without a kept teacher (that is,
    without a supported one) gets the mean over all teachers, or 0; a sample whose sum is <= 1e-12 gets Eq. 3.

    Args:
        q: Shape (M, B, C), M >= 1, floating.
        kept: Shape (M, B, C) or, without the agreement filter, (M, C); bool.
        weights: Shape (M, C), >= 0.
        unsupported: "uniform" or "zero"; zero pushes down the classes that the student may be alone in holding.

    Returns:
        Target, raw and mass in the dtype of `q`.

    Raises:
        InvalidInput: The shapes do not fit or there is no teacher.

    Source: CRAD, Eq. 8.

    >>> q = torch.tensor([[[0.75, 0.25]], [[0.25, 0.75]]])
    >>> made = class_weighted_target(q, torch.tensor([[True, False], [True, False]]), torch.tensor([[3.0, 1], [1, 1]]))
    >>> [round(p, 6) for p in made.raw.flatten().tolist()]  # class 1 has no teacher left
    [0.625, 0.5]
    """
    check_soft_targets(q, weights)
    mask = (kept.unsqueeze(1) if kept.ndim == 2 else kept).to(q.device)
    if mask.shape not in {q.shape, (q.shape[0], 1, q.shape[2])}:
        raise InvalidInput(f"kept must have the shape of q {tuple(q.shape)} or (M, C), not {tuple(kept.shape)}")
    shares = torch.where(mask, weights.to(q).unsqueeze(1), 0.0)
    raw = (shares * q).sum(dim=0) / (shares.sum(dim=0) + EPSILON)
    uniform = q.mean(dim=0)
    if unsupported == "uniform":
        raw = torch.where(mask.any(dim=0), raw, uniform)
    return normalised(raw, uniform)


def normalised(raw: Tensor, fallback: Tensor) -> WeightedTarget:
    """Return raw / sum_c raw, or the fallback for samples whose sum is <= 1e-12.

    Args:
        raw: Shape (B, C), >= 0.
        fallback: Shape (B, C), rows sum to 1.

    Returns:
        Target, raw and mass.

    Source: CRAD, Eq. 8.

    >>> normalised(torch.tensor([[1.0, 1.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]])).target.tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """
    mass = raw.sum(dim=1)
    column = mass.unsqueeze(1)
    return WeightedTarget(torch.where(column > EPSILON, raw / column, fallback), raw, mass)


def check_soft_targets(q: Tensor, per_class: Tensor | None = None) -> None:
    """Refuse soft targets that are not (M, B, C) with M >= 1, or a companion that is not (M, C).

    Raises:
        InvalidInput: They are.

    >>> check_soft_targets(torch.zeros(2, 5, 3), torch.zeros(2, 3))
    """
    if q.ndim != 3 or q.shape[0] == 0 or not q.is_floating_point():
        raise InvalidInput(f"soft targets must be floating, of shape (M, B, C) with M >= 1, not {tuple(q.shape)}")
    if per_class is not None and per_class.shape != (q.shape[0], q.shape[2]):
        raise InvalidInput(
            f"a value per teacher and class must have shape {(q.shape[0], q.shape[2])}, not {tuple(per_class.shape)}"
        )


def _pick(ordered: Tensor, index: Tensor) -> Tensor:
    """Return ordered (M, B, C) at index (C,) of the first axis, shape (B, C)."""
    return ordered.gather(0, index.expand(1, *ordered.shape[1:])).squeeze(0)
