"""Terms of the loss of a generator whose samples shall teach what an ensemble knows (FedGD, after TARGET)."""

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from motley.errors import InvalidInput


def statistics_distance(x: Tensor, running_mean: Tensor, running_var: Tensor) -> Tensor:
    """Return how far the inputs of a batch norm are from what it saw in training.

    ||mean - running mean||_2 + ||var - running var||_2, mean and population variance of each channel over all else.

    Args:
        x: Inputs of the layer, shape (B, channels, ...).
        running_mean, running_var: Of the layer, shape (channels,).

    Returns:
        Scalar, >= 0; gradients flow into `x`.

    Raises:
        InvalidInput: The numbers of channels differ.

    Source: distillation sheet, section 2 (FedGD).

    >>> round(float(statistics_distance(torch.tensor([[1.0], [3.0]]), torch.zeros(1), torch.ones(1))), 6)
    2.0
    """
    if x.ndim < 2 or x.shape[1:2] != running_mean.shape or running_mean.shape != running_var.shape:
        raise InvalidInput(
            f"inputs of shape {tuple(x.shape)} do not fit running statistics of shape {tuple(running_mean.shape)} and "
            f"{tuple(running_var.shape)}"
        )
    axes = [axis for axis in range(x.ndim) if axis != 1]
    variance, mean = torch.var_mean(x, dim=axes, correction=0)
    distance: Tensor = torch.linalg.vector_norm(mean - running_mean) + torch.linalg.vector_norm(variance - running_var)
    return distance


def disagreement_term(ensemble: Tensor, student: Tensor) -> Tensor:
    """Return minus the mean of KL(softmax(ensemble) || softmax(student)) where both name the same class, else 0.

    Minimised, it leads to samples on which the student is right and still unlike the ensemble. Of equal logits the
    lower class is named; the mean is over all samples.

    Args:
        ensemble: Logits, shape (B, C), B >= 1.
        student: Logits, shape (B, C).

    Returns:
        Scalar, <= 0; gradients flow into both.

    Raises:
        InvalidInput: The shapes differ, or there are no samples.

    Source: distillation sheet, section 2 (FedGD).

    >>> float(disagreement_term(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])))
    -0.0
    """
    if ensemble.shape != student.shape or ensemble.ndim != 2 or not len(ensemble):
        raise InvalidInput(
            f"two sets of logits (B, C), B >= 1, are needed, not {tuple(ensemble.shape)}, {tuple(student.shape)}"
        )
    taught, own = log_softmax(ensemble, dim=1), log_softmax(student, dim=1)
    divergence = (taught.exp() * (taught - own)).sum(dim=1)
    agree = ensemble.argmax(dim=1) == student.argmax(dim=1)
    return -torch.where(agree, divergence, 0.0).mean()


def constant_samples(samples: Tensor, *, smallest: float = 1e-6) -> Tensor:
    """Return which samples have no contrast: the variance of every channel is below `smallest`.

    Args:
        samples: Shape (P, channels, ...), uint8 or float32; the variance is over a channel, that of bytes in 0..1.
        smallest: Below it a channel is constant.

    Returns:
        Shape (P,), bool.

    Source: distillation sheet, section 2 (FedGD), edge.

    >>> constant_samples(torch.full((2, 1, 2, 2), 7, dtype=torch.uint8)).tolist()
    [True, True]
    """
    values = samples.flatten(2).float().div(255 if samples.dtype == torch.uint8 else 1)
    return (values.var(dim=2, correction=0) < smallest).all(dim=1)
