"""The guidance that relations give to local training, and its loss (FedTopo, Eqs. 9-13)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from motley.errors import InvalidInput
from motley.functional.topology import check_square


def guidance(
    relations: Tensor, reliability: Tensor, held: Tensor, *, q: int | Literal["all"], local_mask: bool = True
) -> Tensor:
    """Return how far each negative class is raised for a sample of class y (the row).

    A = R * S; At(y, c) = A(y, c) where c is held and c != y, else 0; row y of B keeps the q largest entries of At.
    Order: value descending, then class ascending. Zero entries are never selected.

    Args:
        relations: R, shape (C, C), float64.
        reliability: S, shape (C, C), float64; ones for the variant without S.
        held: Shape (C,), bool, classes that the client truly holds.
        q: Number of negatives, >= 1, or "all".
        local_mask: False (ablation) lets classes in that the client does not hold.

    Returns:
        B, shape (C, C), float64, >= 0, diagonal 0, at most q positive entries a row. Rows of absent classes are
        never read.

    Raises:
        InvalidInput: q < 1, or the shapes differ.

    Source: FedTopo, Eqs. 9-11.

    >>> R = torch.tensor([[1.0, 0.5, 0.5], [0.5, 1.0, 0.2], [0.5, 0.2, 1.0]], dtype=torch.float64)
    >>> guidance(R, torch.ones_like(R), torch.tensor([True, True, True]), q=1).tolist()
    [[0.0, 0.5, 0.0], [0.5, 0.0, 0.0], [0.5, 0.0, 0.0]]
    """
    if q != "all" and (not isinstance(q, int) or isinstance(q, bool) or q < 1):
        raise InvalidInput(f"q must be 'all' or a whole number >= 1, not {q!r}; use loss weight 0 for no guidance")
    check_square(relations, "relations")
    if reliability.shape != relations.shape or held.shape != relations.shape[:1]:
        raise InvalidInput(
            f"guidance needs R (C, C), S (C, C) and held (C,), not {tuple(relations.shape)}, "
            f"{tuple(reliability.shape)} and {tuple(held.shape)}"
        )
    allowed = ~torch.eye(len(held), dtype=torch.bool, device=relations.device)
    if local_mask:
        allowed = allowed & held
    masked = torch.where(allowed, relations.double() * reliability.double(), 0.0)
    if q == "all":
        return masked
    best = torch.sort(-masked, dim=1, stable=True).indices[:, :q]  # topk breaks ties as it likes
    selected = torch.zeros_like(allowed).scatter(1, best, True)
    return torch.where(selected & (masked > 0), masked, 0.0)


def modulate(logits: Tensor, labels: Tensor, guidance: Tensor, *, strength: float) -> Tensor:
    """Return the modulated logits o + strength * B[y].

    Args:
        logits: o, shape (B, C), floating; half precision is raised to float32.
        labels: y, shape (B,), integer.
        guidance: Shape (C, C); data, carries no gradient. Cast it to the logits' dtype once per round.
        strength: gamma, >= 0.

    Returns:
        Shape (B, C), float32 or better; gradients flow into `logits`.

    Source: FedTopo, Eq. 12.

    >>> modulate(torch.zeros(1, 2), torch.tensor([1]), torch.tensor([[0.0, 0.5], [0.25, 0.0]]), strength=2.0).tolist()
    [[0.5, 0.0]]
    """
    logits = at_least_float32(logits)
    rows = guidance.detach().to(logits.device, logits.dtype).index_select(0, labels)
    return logits + strength * rows


@dataclass(frozen=True)
class TopologyLoss:
    """The local objective and its parts, scalars."""

    total: Tensor  # carries the gradient
    plain: Tensor  # CE(o, y)
    added: Tensor  # loss weight * CE(o + strength * B[y], y); 0 with loss weight 0


def topology_loss(
    logits: Tensor,
    labels: Tensor,
    guidance: Tensor,
    *,
    strength: float,
    loss_weight: float,
    norm: Literal["sum", "mean"] = "sum",
) -> TopologyLoss:
    """Return L = CE(o, y) + lambda CE(o + gamma B[y], y), both means over the batch.

    Args:
        logits: o, shape (B, C), floating.
        labels: y, shape (B,), int64.
        guidance: B, shape (C, C).
        strength: gamma, >= 0.
        loss_weight: lambda, >= 0; with 0 the total is CE(o, y) itself, bit for bit.
        norm: "mean" divides the total by 1 + lambda.

    Returns:
        Total and parts, float32 or better.

    Source: FedTopo, Eqs. 12-13.

    >>> loss = topology_loss(torch.zeros(1, 2), torch.tensor([0]), torch.zeros(2, 2), strength=1.0, loss_weight=1.0)
    >>> round(float(loss.total), 6), round(float(loss.plain), 6)
    (1.386294, 0.693147)
    """
    plain = cross_entropy(at_least_float32(logits), labels)
    if loss_weight == 0:
        return TopologyLoss(plain, plain, torch.zeros_like(plain))
    added = loss_weight * cross_entropy(modulate(logits, labels, guidance, strength=strength), labels)
    total = plain + added
    return TopologyLoss(total if norm == "sum" else total / (1 + loss_weight), plain, added)


def at_least_float32(values: Tensor) -> Tensor:
    """Return half-precision values as float32, others as they are.

    >>> at_least_float32(torch.zeros(1, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    return values.float() if values.dtype in {torch.float16, torch.bfloat16} else values
