"""Distillation from soft targets (CRAD, Eq. 9, second term), and from the logits of another model."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import log_softmax, softmax

from motley.errors import InvalidInput

Mean = Literal["batchmean", "element-mean"]


def distillation_loss(logits: Tensor, target: Tensor, temperature: float) -> Tensor:
    """Return T^2 KL(target || softmax(logits / T)): summed over classes, mean over samples.

    0 log 0 = 0, and the entropy of the target is included, so that the value is the true divergence. Loss and
    gradient stay finite for logits of +-10000.

    Args:
        logits: The student's, shape (B, C), floating, B >= 1; half precision is raised to float32.
        target: Shape (B, C), >= 0, rows sum to 1; carries no gradient.
        temperature: T, > 0.

    Returns:
        A scalar, float32 or better, with gradient (softmax(logits / T) - target) T / B.

    Raises:
        InvalidInput: The shapes differ or T <= 0.

    Source: CRAD, Eq. 9.

    >>> loss = distillation_loss(torch.zeros(1, 3), torch.tensor([[0.0, 0.25, 0.75]]), temperature=2.0)
    >>> round(float(loss), 5)
    2.14511
    """
    if temperature <= 0:
        raise InvalidInput(f"the temperature must be > 0, not {temperature}")
    if logits.ndim != 2 or logits.shape != target.shape:
        raise InvalidInput(
            f"logits and target must have one shape (B, C), not {tuple(logits.shape)} and {tuple(target.shape)}"
        )
    if logits.dtype in {torch.float16, torch.bfloat16}:
        logits = logits.float()
    target = target.detach().to(logits.dtype)
    log_student = log_softmax(logits / temperature, dim=1)
    divergence = (torch.xlogy(target, target) - target * log_student).sum(dim=1).mean()
    return temperature**2 * divergence


def kl(teacher: Tensor, student: Tensor, temperature: float = 1.0, mean: Mean = "batchmean") -> Tensor:
    """Return T^2 KL(softmax(t / T) || softmax(s / T)): summed over classes, mean over samples.

    The mean over samples alone is what the methods mean. With `mean = element-mean` it is one over all B C elements, as
    in much public code, and smaller by the factor C.

    Args:
        teacher: Logits t, (B, C); they carry no gradient.
        student: Logits s, (B, C), B >= 1.
        temperature: T, > 0.
        mean: Over samples, or over elements.

    Returns:
        A scalar, float32 or better.

    Raises:
        InvalidInput: The shapes differ or T <= 0.

    Source: server methods, sections 0, 7 and 17.

    >>> t, s = torch.tensor([[1.0, 0.0]]), torch.zeros(1, 2)
    >>> round(float(kl(t, s)), 6), round(float(kl(t, s, mean="element-mean")), 6)
    (0.110944, 0.055472)
    """
    if temperature <= 0:
        raise InvalidInput(f"the temperature must be > 0, not {temperature}")
    divergence = distillation_loss(student, softmax(teacher.detach() / temperature, dim=1), temperature)
    return divergence if mean == "batchmean" else divergence / student.shape[1]
