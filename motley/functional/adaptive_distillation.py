"""Mutual distillation that counts less the worse both models do (FedKD)."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from motley.functional.distillation import Mean, kl

SMALLEST = 1e-8  # of the denominator, when both models are sure and right


@dataclass(frozen=True)
class AdaptiveLosses:
    """Terms of mentor and mentee; each model is trained by the sum of its two."""

    mentor: Tensor
    mentor_learns: Tensor
    mentee: Tensor
    mentee_learns: Tensor


def adaptive_losses(
    mentor: Tensor,
    mentee: Tensor,
    mentor_features: Tensor,
    mentee_features: Tensor,
    labels: Tensor,
    *,
    mean: Mean = "batchmean",
) -> AdaptiveLosses:
    """Return the losses of a mentor (o, z) and a mentee (o^a, z^a W^T) that teach each other.

    D = max(CE(o, y) + CE(o^a, y), 1e-8), without gradient;
    L_mentor = CE(o, y) + [KL(sg(o^a) || o) + MSE(z, sg(z^a W^T))] / D;
    L_mentee = CE(o^a, y) + [KL(sg(o) || o^a) + MSE(sg(z), z^a W^T)] / D.

    Args:
        mentor, mentee: Logits, (B, C).
        mentor_features: z, (B, d).
        mentee_features: z^a W^T, mapped to the mentor's width, (B, d).
        labels: (B,) int64.
        mean: Of the two KL, over samples or over elements; the MSE is one over elements either way.

    Returns:
        Cross-entropies, and what each learns of the other; the gradient of the latter reaches the learner alone.

    Source: FedKD, adaptive mutual distillation; detached, our reading.

    >>> import torch
    >>> same = torch.zeros(1, 2)
    >>> adaptive_losses(same, same, same, same, torch.tensor([0])).mentor_learns.item()
    0.0
    """
    first, second = cross_entropy(mentor, labels), cross_entropy(mentee, labels)
    denominator = (first + second).detach().clamp(min=SMALLEST)
    mentor_learns = kl(mentee, mentor, mean=mean) + mse_loss(mentor_features, mentee_features.detach())
    mentee_learns = kl(mentor, mentee, mean=mean) + mse_loss(mentee_features, mentor_features.detach())
    return AdaptiveLosses(first, mentor_learns / denominator, second, mentee_learns / denominator)
