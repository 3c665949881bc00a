"""Losses of a generator that learns features on which several heads agree (FedGen)."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from motley.errors import InvalidInput


def holder_shares(counts: Tensor) -> Tensor:
    """Return which share of a class each client holds: alpha_k(c) = n_kc / sum_j n_jc.

    Args:
        counts: Samples of each client and class, shape (K, C), >= 0.

    Returns:
        Shape (K, C), float64, columns sum to 1; 0 for a class that nobody holds.

    Raises:
        InvalidInput: `counts` is not two-dimensional or holds a negative number.

    Source: FedGen (server_methods.md, section 4).

    >>> holder_shares(torch.tensor([[4, 0, 0], [1, 3, 0]])).tolist()
    [[0.8, 0.0, 0.0], [0.2, 1.0, 0.0]]
    """
    if counts.ndim != 2 or bool((counts < 0).any()):
        raise InvalidInput(f"counts must be (K, C) and >= 0, not of shape {tuple(counts.shape)}")
    return counts.double() / counts.double().sum(dim=0).clamp(min=1)


def label_frequencies(counts: Tensor, held: Tensor) -> Tensor:
    """Return how often each label is drawn: in proportion to its samples, and only if somebody holds it now.

    Args:
        counts: Samples per class over all clients that ever reported, shape (C,), >= 0.
        held: Which classes may be drawn, shape (C,), bool.

    Returns:
        Shape (C,), float64, sums to 1; zeros if no class may be drawn.

    Raises:
        InvalidInput: The shapes differ.

    Source: FedGen (server_methods.md, section 4).

    >>> label_frequencies(torch.tensor([3, 4, 1]), torch.tensor([True, False, True])).tolist()
    [0.75, 0.0, 0.25]
    """
    if counts.shape != held.shape or counts.ndim != 1:
        raise InvalidInput(f"counts and held must be (C,), not {tuple(counts.shape)} and {tuple(held.shape)}")
    allowed = counts.double() * held
    return allowed / allowed.sum().clamp(min=1)


def teaching_by_label(logits: Tensor, labels: Tensor, alpha: Tensor) -> Tensor:
    """Return sum_k mean_i alpha_k(y_i) CE_i(h_k(z_i), y_i): a head teaches the classes that its client holds.

    Args:
        logits: Of every head, shape (K, B, C), floating.
        labels: Shape (B,), int64, as they were asked of the generator.
        alpha: Shape (K, C), what `holder_shares` gives.

    Returns:
        A scalar, in nats.

    Raises:
        InvalidInput: The shapes do not fit.

    Source: FedGen (server_methods.md, section 4), T with `teacher = "label"`.

    >>> logits = torch.tensor([[[0.0, 0.0]], [[0.0, 9.0]]])
    >>> round(float(teaching_by_label(logits, torch.tensor([0]), torch.tensor([[1.0, 0.0], [0.0, 1.0]]))), 6)
    0.693147
    """
    if logits.ndim != 3 or labels.shape != logits.shape[1:2] or alpha.shape != (logits.shape[0], logits.shape[2]):
        raise InvalidInput(
            "teaching needs logits (K, B, C), labels (B,) and alpha (K, C), not "
            f"{tuple(logits.shape)}, {tuple(labels.shape)} and {tuple(alpha.shape)}"
        )
    num_heads, size, num_classes = logits.shape
    each = cross_entropy(logits.reshape(-1, num_classes), labels.repeat(num_heads), reduction="none")
    return (alpha.to(logits.dtype)[:, labels] * each.view(num_heads, size)).mean(dim=1).sum()


def teaching_by_logit(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Return CE(sum_k w_k h_k(z), y): the heads teach together.

    Args:
        logits: Of every head, shape (K, B, C), floating.
        labels: Shape (B,), int64.
        weights: Shape (K,), >= 0, sum 1.

    Returns:
        A scalar, in nats.

    Raises:
        InvalidInput: The shapes do not fit.

    Source: FedGen (server_methods.md, section 4), T with `teacher = "logit"`.

    >>> logits = torch.tensor([[[1.0, 0.0]], [[-1.0, 0.0]]])
    >>> round(float(teaching_by_logit(logits, torch.tensor([0]), torch.tensor([0.5, 0.5]))), 6)
    0.693147
    """
    if logits.ndim != 3 or labels.shape != logits.shape[1:2] or weights.shape != logits.shape[:1]:
        raise InvalidInput(
            "teaching needs logits (K, B, C), labels (B,) and weights (K,), not "
            f"{tuple(logits.shape)}, {tuple(labels.shape)} and {tuple(weights.shape)}"
        )
    return cross_entropy(torch.einsum("k,kbc->bc", weights.to(logits.dtype), logits), labels)


def diversity_penalty(features: Tensor, noise: Tensor) -> Tensor:
    """Return exp(-mean_ij e_ij g_ij): it falls as features spread with the noise they are made of.

    e_ij is the mean squared difference of two rows of noise, g_ij the mean absolute difference of their features; the
    mean is over all B x B pairs with the diagonal, whose pairs are 0.

    Args:
        features: Shape (B, d), floating.
        noise: Shape (B, nu), floating.

    Returns:
        A scalar, in (0, 1].

    Raises:
        InvalidInput: The numbers of rows differ.

    Source: FedGen (server_methods.md, section 4), D.

    >>> round(float(diversity_penalty(torch.tensor([[0.0], [2.0]]), torch.tensor([[0.0], [1.0]]))), 6)
    0.367879
    """
    if features.ndim != 2 or noise.ndim != 2 or len(features) != len(noise):
        raise InvalidInput(
            f"features (B, d) and noise (B, nu) must have as many rows, not {tuple(features.shape)} and "
            f"{tuple(noise.shape)}"
        )
    apart = (noise[:, None] - noise[None]).square().mean(dim=2)
    spread = (features[:, None] - features[None]).abs().mean(dim=2)
    return torch.exp(-(apart * spread).mean())
