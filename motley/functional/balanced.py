"""Cross-entropy against a prior of classes: balanced softmax (FedRoD)."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from motley.errors import InvalidInput


def balanced_cross_entropy(logits: Tensor, labels: Tensor, counts: Tensor) -> Tensor:
    """Return the cross-entropy of logits + log counts over the classes that are held.

    The mean over the batch of -log(n_y exp(o_y) / sum over c with n_c > 0 of n_c exp(o_c)): logits that are learned
    with it are those of a balanced data set. A class without samples leaves the softmax and is not pushed down.

    Args:
        logits: Shape (B, C), floating.
        labels: Shape (B,), int64, of classes that are held.
        counts: Training samples per class, shape (C,), >= 0.

    Returns:
        A scalar, in nats, >= 0; 0 if a single class is held.

    Raises:
        InvalidInput: The shapes do not fit.

    Source: FedRoD (server_methods.md, section 14).

    >>> loss = balanced_cross_entropy(torch.tensor([[1.0, 2.0, 0.5]]), torch.tensor([0]), torch.tensor([4, 0, 2]))
    >>> round(float(loss), 6)
    0.264873
    """
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or counts.shape != logits.shape[1:]:
        raise InvalidInput(
            "a balanced softmax needs logits (B, C), labels (B,) and counts (C,), not "
            f"{tuple(logits.shape)}, {tuple(labels.shape)} and {tuple(counts.shape)}"
        )
    shifted = logits + counts.clamp(min=1).to(logits.dtype).log()
    return cross_entropy(shifted.masked_fill(counts <= 0, -torch.inf), labels)
