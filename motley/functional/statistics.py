"""Means, deviations and intervals of finished numbers, and how skewed class counts are.

A mean over nothing is None, never NaN or 0.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from motley.errors import InvalidInput


class MeanSd(NamedTuple):
    """A mean and the deviation of a sample."""

    mean: float | None  # None for no value
    sd: float | None  # divisor n - 1 unless asked otherwise; None for fewer than two values


def mean_sd(values: Sequence[float], ddof: Literal[0, 1] = 1) -> MeanSd:
    """Return the mean and the sample deviation, divisor n - 1, as for repeated runs.

    Args:
        values: One a run.
        ddof: The divisor is n - ddof; 0 is what much public code prints.

    Returns:
        (mean, sd).

    >>> mean_sd([1.0, 3.0]), mean_sd([1.0, 3.0], ddof=0)
    (MeanSd(mean=2.0, sd=1.4142135623730951), MeanSd(mean=2.0, sd=1.0))
    >>> mean_sd([0.5])
    MeanSd(mean=0.5, sd=None)
    """
    numbers = np.asarray(values, dtype=np.float64)
    mean = float(numbers.mean()) if numbers.size else None
    return MeanSd(mean, float(numbers.std(ddof=ddof)) if numbers.size > 1 else None)


@dataclass(frozen=True)
class PairedDifference:
    """The mean of paired differences with its confidence interval."""

    mean: float | None
    low: float | None  # interval; None for fewer than two pairs
    high: float | None
    n: int  # pairs
    smallest_visible: float | None  # half of the interval's width: a smaller mean difference would not have been seen
    p: float | None = None  # of the two-sided paired t test: the confidence at which the interval touches 0 is 1 - p


def paired_difference(
    values: Sequence[float], reference: Sequence[float], confidence: float = 0.95
) -> PairedDifference:
    """Return values - reference, pair by pair (equal seeds), with Student's t interval.

    mean -+ h with h = t_{n-1, (1 + confidence) / 2} sd / sqrt(n), sd with divisor n - 1; `smallest_visible` is h.
    p = 2 P(T > |mean| sqrt(n) / sd), T of Student's distribution with n - 1 degrees of freedom; 1 if nothing differs.

    Args:
        values: One a seed.
        reference: The same seeds in the same order.
        confidence: In (0, 1).

    Returns:
        Mean, interval, h and p.

    Raises:
        InvalidInput: The lengths differ or `confidence` is outside of (0, 1).

    >>> found = paired_difference([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    >>> found.mean, round(found.low, 3), round(found.high, 3), round(found.smallest_visible, 3), round(found.p, 4)
    (2.0, -0.484, 4.484, 2.484, 0.0742)
    """
    if len(values) != len(reference):
        raise InvalidInput(f"{len(values)} values cannot be paired with {len(reference)}")
    if not 0 < confidence < 1:
        raise InvalidInput(f"the confidence must lie in (0, 1), not {confidence}")
    n = len(values)
    mean, sd = mean_sd([value - other for value, other in zip(values, reference, strict=True)])
    if mean is None or sd is None:
        return PairedDifference(mean, None, None, n, None)
    half = interval_factor(n, confidence) * sd
    return PairedDifference(mean, mean - half, mean + half, n, half, _two_sided(mean, sd, n))


def _two_sided(mean: float, sd: float, n: int) -> float:
    if not sd:
        return 0.0 if mean else 1.0
    return float(2 * stats.t.sf(abs(mean) * math.sqrt(n) / sd, n - 1))


def interval_factor(n: int, confidence: float = 0.95) -> float:
    """Return how many sd of n values the t interval of their mean reaches to either side.

    t_{n-1, (1 + confidence) / 2} / sqrt(n): what few seeds cost.

    Args:
        n: Values, 2 or more.
        confidence: In (0, 1).

    Raises:
        InvalidInput: Fewer values, which have no interval.

    >>> [round(interval_factor(n), 2) for n in (2, 3, 5, 10)]
    [8.98, 2.48, 1.24, 0.72]
    """
    if n < 2:
        raise InvalidInput(f"{n} values have no interval; 2 are the fewest")
    return float(stats.t.ppf((1 + confidence) / 2, n - 1)) / math.sqrt(n)


@dataclass(frozen=True)
class AccuracySummary:
    """Accuracies of the clients in one place; fractions."""

    mean: float | None  # over clients, each counts the same: the headline
    pooled: float | None  # over samples
    deviation: float | None  # over clients, divisor n
    num_clients: int  # with samples
    num_left_out: int  # without


def accuracy_summary(correct: Sequence[int], count: Sequence[int]) -> AccuracySummary:
    """Return the mean over clients, the accuracy over samples and the deviation over clients (divisor n).

    Args:
        correct: Right answers of each client.
        count: Samples of each client; clients with 0 are left out and counted.

    Returns:
        The summary; None where no client has samples.

    Raises:
        InvalidInput: The lengths differ, or not 0 <= correct <= count.

    >>> accuracy_summary([9, 45, 0], [10, 90, 0])
    AccuracySummary(mean=0.7, pooled=0.54, deviation=0.2, num_clients=2, num_left_out=1)
    """
    if len(correct) != len(count):
        raise InvalidInput(f"{len(correct)} numbers of right answers do not fit {len(count)} numbers of samples")
    for client, (right, samples) in enumerate(zip(correct, count, strict=True)):
        if not 0 <= right <= samples:
            raise InvalidInput(f"client {client} cannot have {right} right answers of {samples}")
    tested = [(right, samples) for right, samples in zip(correct, count, strict=True) if samples]
    if not tested:
        return AccuracySummary(None, None, None, 0, len(count))
    accuracies = np.array([right / samples for right, samples in tested])
    pooled = sum(right for right, _ in tested) / sum(samples for _, samples in tested)
    return AccuracySummary(
        float(accuracies.mean()), pooled, float(accuracies.std()), len(tested), len(count) - len(tested)
    )


def effective_classes(counts: Tensor) -> float | None:
    """Return over how many classes the samples are spread: exp(-sum_c p_c log p_c) with p = counts / sum.

    Args:
        counts: Samples per class, shape (C,), >= 0.

    Returns:
        Between 1 (one class) and C (equal counts); None without samples.

    >>> effective_classes(torch.tensor([5, 5, 0]))
    2.0
    """
    n = counts.double()
    if not float(n.sum()) > 0:
        return None
    p = n / n.sum()
    return math.exp(-float(torch.xlogy(p, p).sum()))


def label_distance(counts: Tensor) -> float | None:
    """Return the mean over clients of the total variation distance to the global labels, sum_c |p_kc - p_c| / 2.

    Args:
        counts: Samples per client and class, shape (K, C), >= 0; p is that of all samples together.

    Returns:
        In [0, 1); 0 where all clients have the same mix. Clients without samples are left out; None without any.

    Raises:
        InvalidInput: `counts` has another shape.

    >>> label_distance(torch.tensor([[5, 0], [0, 5], [0, 0]]))
    0.5
    """
    if counts.ndim != 2:
        raise InvalidInput(f"label distances need counts (K, C), not {tuple(counts.shape)}")
    n = counts.double()
    n = n[n.sum(dim=1) > 0]
    if not len(n):
        return None
    mixes = n / n.sum(dim=1, keepdim=True)
    overall = n.sum(dim=0) / n.sum()
    return float(((mixes - overall).abs().sum(dim=1) / 2).mean())
