"""One sample of a CRAD student: what became of every teacher on one class, and what it was to imitate."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from motley.errors import InvalidInput
from motley.functional.reliability import EPSILON, Agreement, WeightedTarget, check_soft_targets

State = Literal["weighted", "no support", "consensus outlier", "no weight", "verified outlier"]


@dataclass(frozen=True)
class TeacherTrace:
    """One teacher on the traced class.

    Attributes:
        teacher: Its id.
        state: `no weight` is of a kept teacher to whom the weighting gives 0; `verified outlier` of an audit.
        count: n, its validation samples of the class; real-valued with noised counts.
        accuracy: a, its validation accuracy of the class.
        weight: w, before normalisation.
        share: W, its share of the class, 0..1; 0 unless weighted or verified.
        probability: q, its probability of the class at the run's temperature.
    """

    teacher: int
    state: State
    count: float
    accuracy: float
    weight: float
    share: float
    probability: float


@dataclass(frozen=True)
class Trace:
    """One sample and class.

    Attributes:
        label: The class.
        teachers: In the order of their ids.
        consensus: Centre of the supported teachers; None without any.
        threshold: tau, half the width of the acceptance band; None without any, or without an agreement filter.
        uniform: Mean of all teachers (Eq. 3).
        raw: The class before normalisation over the classes.
        target: The class after it, what the student imitates.
        mass: Sum of raw over the classes.
    """

    label: int
    teachers: tuple[TeacherTrace, ...]
    consensus: float | None
    threshold: float | None
    uniform: float
    raw: float
    target: float
    mass: float

    @property
    def band(self) -> tuple[float, float] | None:
        """Return the ends of the acceptance band."""
        if self.consensus is None or self.threshold is None:
            return None
        return self.consensus - self.threshold, self.consensus + self.threshold

    @property
    def gain(self) -> float:
        """Return how much more probability the class has than in the mean of all teachers."""
        return self.target - self.uniform


def trace_class(
    q: Tensor,
    agreed: Agreement,
    made: WeightedTarget,
    counts: Tensor,
    accuracies: Tensor,
    supported: Tensor,
    weights: Tensor,
    *,
    teachers: Sequence[int],
    sample: int,
    label: int,
    joined: Tensor | None = None,
) -> Trace:
    """Return what became of every teacher on one class of one sample.

    W_j = w_j / (sum_kept w + 1e-12) over the kept teachers, and (1 - sum of joined) times that beside verified ones.

    Args:
        q: Shape (M, B, C), M >= 1.
        agreed: Who was kept, centre and threshold; where they are NaN although teachers have support, there was no
            agreement filter, and the consensus is the mean of the supported teachers.
        made: Target, raw and mass.
        counts: n, shape (M, C).
        accuracies: a, shape (M, C).
        supported: Shape (M, C), bool.
        weights: w, shape (M, C), before normalisation.
        teachers: M ids.
        sample: 0..B-1.
        label: The class, 0..C-1.
        joined: Shares of verified outliers, shape (M, B, C); None without an audit.

    Returns:
        Plain numbers.

    Raises:
        InvalidInput: The shapes do not fit, or there is no such sample or class.

    Source: CRAD, appendix.

    >>> from motley.functional.reliability import agreement, class_weighted_target
    >>> q = torch.tensor([[[0.25, 0.75]], [[0.75, 0.25]]])
    >>> n, has, w = torch.ones(2, 2), torch.ones(2, 2, dtype=torch.bool), torch.tensor([[3.0, 3.0], [1.0, 1.0]])
    >>> agreed = agreement(q, has)
    >>> made = class_weighted_target(q, agreed.kept, w)
    >>> found = trace_class(q, agreed, made, n, n, has, w, teachers=(4, 7), sample=0, label=1)
    >>> [(one.teacher, one.state, round(one.share, 6)) for one in found.teachers]
    [(4, 'weighted', 0.75), (7, 'weighted', 0.25)]
    >>> found.consensus, round(found.target, 6)
    (0.5, 0.625)
    """
    for per_class in (counts, accuracies, supported, weights):
        check_soft_targets(q, per_class)
    if len(teachers) != len(q) or not 0 <= sample < q.shape[1] or not 0 <= label < q.shape[2]:
        raise InvalidInput(f"{len(teachers)} teachers, sample {sample} and class {label} do not fit q {tuple(q.shape)}")
    said, kept = q[:, sample, label].double(), agreed.kept[:, sample, label]
    backed, weight = supported[:, label], weights[:, label].double()
    used = torch.where(kept, weight, 0.0)
    guests = torch.zeros_like(used) if joined is None else joined[:, sample, label].double()
    share = (1 - guests.sum()) * used / (used.sum() + EPSILON) + guests
    consensus = _known(agreed.consensus[sample, label])
    if consensus is None and bool(backed.any()):
        consensus = float(said[backed].mean())
    rows = [
        TeacherTrace(
            teacher,
            _state(bool(backed[j]), bool(kept[j]), float(weight[j]), float(guests[j])),
            float(counts[j, label]),
            float(accuracies[j, label]),
            float(weight[j]),
            float(share[j]),
            float(said[j]),
        )
        for j, teacher in enumerate(teachers)
    ]
    return Trace(
        label,
        tuple(sorted(rows, key=lambda row: row.teacher)),
        consensus,
        _known(agreed.threshold[sample, label]),
        float(said.mean()),
        float(made.raw[sample, label]),
        float(made.target[sample, label]),
        float(made.mass[sample]),
    )


def target_gains(q: Tensor, target: Tensor, labels: Tensor) -> Tensor:
    """Return how much more probability the target gives the true class than the mean of all teachers does.

    Args:
        q: Shape (M, B, C), M >= 1.
        target: Shape (B, C).
        labels: Shape (B,), int64.

    Returns:
        Shape (B,), -1..1.

    Raises:
        InvalidInput: The shapes do not fit.

    Source: CRAD, appendix (success and failure cases).

    >>> q = torch.tensor([[[0.25, 0.75]], [[0.75, 0.25]]])
    >>> target_gains(q, torch.tensor([[0.25, 0.75]]), torch.tensor([1])).tolist()
    [0.25]
    """
    check_soft_targets(q)
    if target.shape != q.shape[1:] or labels.shape != q.shape[1:2]:
        raise InvalidInput(f"target {tuple(target.shape)} and labels {tuple(labels.shape)} do not fit {tuple(q.shape)}")
    return (target - q.mean(dim=0)).gather(1, labels.unsqueeze(1)).squeeze(1)


def _state(supported: bool, kept: bool, weight: float, joined: float) -> State:
    if not supported:
        return "no support"
    if joined > 0:
        return "verified outlier"
    if not kept:
        return "consensus outlier"
    return "weighted" if weight > 0 else "no weight"


def _known(value: Tensor) -> float | None:
    return None if bool(value.isnan()) else float(value)
