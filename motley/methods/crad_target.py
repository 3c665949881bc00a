"""From what teachers say to what the student imitates: CRAD's filters and weights, with the variants of its options."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from motley.errors import InvalidMessage
from motley.functional.reliability import (
    Agreement,
    Rule,
    WeightedTarget,
    agreement,
    class_weighted_target,
    one_sided_precision,
    shrunk_accuracy,
    soft_targets,
    supported,
    teacher_weights,
)
from motley.functional.tempered import Audit, admit_verified, capped_shares, joining_shares, tempered_agreement
from motley.methods.crad_journal import TeacherJournal
from motley.methods.crad_options import CradOptions
from motley.methods.crad_wire import Snapshot, stacked_claims

RULES: Mapping[str, Rule] = {
    "precision": "precision",
    "one-sided": "one_sided",
    "accuracy": "accuracy",
    "support": "support",
    "softmax-variance": "softmax_neg_var",
    "lower-bound": "lcb",
    "cross-entropy": "cross_entropy",
    "inverse-deviation": "inv_sigma",
}


@dataclass(frozen=True)
class Judged:
    """What a batch of teachers' logits became.

    Attributes:
        q: Soft targets, (M, B, C).
        agreed: Who was kept, with centre and threshold; without an agreement filter those are NaN.
        eligible: Outliers that an audit lets join, (M, C); None without one.
        made: The target.
    """

    q: Tensor
    agreed: Agreement
    eligible: Tensor | None
    made: WeightedTarget


class TeacherTargets:
    """The targets of one student's round.

    Its `counts`, `accuracies`, `supported` and `weight` are those of the M teachers, (M, C) each.

    Args:
        inbox: The snapshots of the M >= 1 peers.
        options: CRAD's.
        device: On which the teachers' logits will lie.
        verdict: What the student found out about claims, (M, C) each; None without an audit.

    Raises:
        InvalidMessage: A peer did not send what the weighting needs.
    """

    def __init__(
        self, inbox: Mapping[int, Snapshot], options: CradOptions, device: torch.device, verdict: Audit | None = None
    ) -> None:
        self._options, self._verdict = options, verdict
        self.counts, self.accuracies = stacked_claims(inbox, device)
        self.supported = supported(self.counts, options.min_support)
        self.weight = self._weights(inbox)
        self.journal = TeacherJournal(tuple(inbox), self.counts, self.accuracies, self.supported)

    def __call__(self, logits: Tensor) -> Tensor:
        """Return the target (B, C) of teachers' logits (M, B, C), and note it in the journal."""
        judged = self.judge(logits)
        self.journal.add(judged.agreed.kept, self.weight, judged.made.mass, self.joined(judged))
        return judged.made.target

    def judge(self, logits: Tensor) -> Judged:
        """Return the target of teachers' logits (M, B, C) with all that led to it."""
        options = self._options
        q = soft_targets(logits, options.temperature)  # Eqs. 1-2
        agreed = self._agreed(q)  # Eqs. 4-5
        # Who has weight 0 says nothing: a class of which only such teachers are left is one without teachers.
        made = class_weighted_target(
            q, agreed.kept & (self.weight > 0)[:, None], self.weight, unsupported=options.unsupported
        )
        eligible = None
        if self._verdict is not None:
            trusted = shrunk_accuracy(self.counts, self.accuracies)[0] >= 0.5
            eligible = self._verdict.verified & self.supported & trusted
            made = admit_verified(made, q, agreed.kept, self._evidence(), eligible)
        return Judged(q, agreed, eligible, made)

    def joined(self, judged: Judged) -> Tensor | None:
        """Return the shares (M, B, C) of outliers that an audit let join; None without one."""
        if judged.eligible is None:
            return None
        return joining_shares(judged.agreed.kept, self._evidence(), judged.eligible)

    def _weights(self, inbox: Mapping[int, Snapshot]) -> Tensor:
        """Return the weights (M, C) before they are normalised over the kept teachers."""
        options = self._options
        if options.agreement_filter == "tempered":
            return capped_shares(self._evidence(), self.supported, options.rho)
        if options.weighting == "equal":
            return torch.ones_like(self.accuracies)
        told = _stacked_cross_entropies(inbox, self.counts) if options.weighting == "cross-entropy" else None
        rule = RULES[options.weighting]
        return teacher_weights(self.counts, self.accuracies, rule=rule, cross_entropies=told)  # Eqs. 6-7

    def _agreed(self, q: Tensor) -> Agreement:
        if self._options.agreement_filter == "none":
            unknown = torch.full(q.shape[1:], torch.nan, dtype=torch.float64, device=q.device)
            return Agreement(self.supported.unsqueeze(1).expand(q.shape), unknown, unknown)
        if self._options.agreement_filter == "tempered":
            return tempered_agreement(q, self.supported, self.weight)
        return agreement(q, self.supported)

    def _evidence(self) -> Tensor:
        return one_sided_precision(self.counts, self.accuracies)


def _stacked_cross_entropies(inbox: Mapping[int, Snapshot], counts: Tensor) -> Tensor:
    for peer, message in inbox.items():
        if message.cross_entropies.shape != message.counts.shape:
            raise InvalidMessage(f"peer {peer} sent no cross-entropies, which crad.weighting = cross-entropy needs")
    return torch.stack([message.cross_entropies for message in inbox.values()]).to(counts.device)
