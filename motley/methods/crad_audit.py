"""CRAD's audit: a student tests what its teachers claim on its own validation samples; it needs no message."""

from collections.abc import Mapping

import torch
from torch import Tensor

from motley.federation import Client
from motley.functional.tempered import Audit, audit
from motley.methods.crad_wire import Snapshot, stacked_claims
from motley.training.evaluation import teacher_logits
from motley.training.inputs import Normalizer


def audit_claims(client: Client, inbox: Mapping[int, Snapshot], teachers: Mapping[int, Mapping[str, Tensor]]) -> Audit:
    """Run every teacher on the student's own validation part and judge its claims, (M, C) each.

    Args:
        client: The student.
        inbox: What the peers claim.
        teachers: Their weights, by the same ids.
    """
    held, size = client.shard.validation, client.evaluation.batch_size
    counts, accuracies = stacked_claims(inbox, held.x.device)
    own = client.shard.validation_counts.to(held.x.device)
    alarms, right = torch.zeros_like(accuracies), torch.zeros_like(accuracies)
    if len(held):
        x = Normalizer.of(client.shard.normalization, held.x)(held.x)
        for position, (peer, weights) in enumerate(teachers.items()):
            guess = teacher_logits(client.task, peer, weights, x, batch_size=size).argmax(dim=1)
            right[position] = torch.bincount(guess[guess == held.y], minlength=client.num_classes)
            alarms[position] = torch.bincount(guess[guess != held.y], minlength=client.num_classes)
    return audit(
        counts,
        accuracies,
        own_counts=own.expand(counts.shape),
        own_correct=right,
        negatives=(len(held) - own).expand(counts.shape),
        false_alarms=alarms,
    )
