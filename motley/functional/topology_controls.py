"""Controls that tell what FedTopo's relations contribute beyond counts and scale (section 8 of its sheet)."""

import torch
from torch import Tensor

from motley.errors import InvalidInput


def constant_relations(relations: Tensor, observed: Tensor) -> Tensor:
    """Return the relations with every observed off-diagonal entry replaced by the mean of these.

    Args:
        relations: Shape (C, C), symmetric.
        observed: Shape (C, C), bool, symmetric.

    Returns:
        Shape (C, C); the diagonal and unobserved entries are not changed.

    >>> R = torch.tensor([[1.0, 0.5, 0.75], [0.5, 1.0, 0.0], [0.75, 0.0, 1.0]])
    >>> constant_relations(R, R > 0).tolist()
    [[1.0, 0.625, 0.625], [0.625, 1.0, 0.0], [0.625, 0.0, 1.0]]
    """
    rows, columns = _observed_pairs(observed)
    if not len(rows):
        return relations.clone()
    return _with_pairs(relations, rows, columns, relations[rows, columns].mean().expand(len(rows)))


def pair_order(num_classes: int, generator: torch.Generator) -> Tensor:
    """Return a random order of the C (C - 1) / 2 class pairs; draw it once per run.

    Args:
        num_classes: C.
        generator: On the CPU.

    Returns:
        Shape (C (C - 1) / 2,), int64, a permutation.

    >>> pair_order(2, torch.Generator()).tolist()
    [0]
    """
    return torch.randperm(num_classes * (num_classes - 1) // 2, generator=generator)


def shuffled_relations(relations: Tensor, observed: Tensor, order: Tensor) -> Tensor:
    """Return the relations with the observed off-diagonal values permuted among the observed pairs.

    The observed pairs, in row-major order, receive their own values in the sequence that `order` gives; one order per
    run thus fixes the permutation however many pairs are observed by now.

    Args:
        relations: Shape (C, C), symmetric.
        observed: Shape (C, C), bool, symmetric.
        order: Shape (C (C - 1) / 2,), from `pair_order`.

    Returns:
        Shape (C, C), symmetric; the diagonal and unobserved entries are not changed.

    Raises:
        InvalidInput: `order` has another length.

    >>> R = torch.tensor([[1.0, 0.5, 0.75], [0.5, 1.0, 0.25], [0.75, 0.25, 1.0]])
    >>> shuffled_relations(R, R > 0, torch.tensor([1, 2, 0])).tolist()
    [[1.0, 0.75, 0.25], [0.75, 1.0, 0.5], [0.25, 0.5, 1.0]]
    """
    num_classes = len(relations)
    if order.shape != (num_classes * (num_classes - 1) // 2,):
        raise InvalidInput(f"{num_classes} classes have {num_classes * (num_classes - 1) // 2} pairs, not {len(order)}")
    all_rows, all_columns = torch.triu_indices(num_classes, num_classes, offset=1, device=relations.device)
    order = order.to(relations.device)
    source = order[observed[all_rows[order], all_columns[order]]]
    rows, columns = _observed_pairs(observed)
    return _with_pairs(relations, rows, columns, relations[all_rows[source], all_columns[source]])


def margin_guidance(held: Tensor, margin: float) -> Tensor:
    """Return guidance without topology or counts: B_y(c) = margin for all held negatives.

    Args:
        held: Shape (C,), bool.
        margin: >= 0, for example the mean of `positive_guidance` in the full run.

    Returns:
        Shape (C, C), float64; rows of absent classes are never read.

    >>> margin_guidance(torch.tensor([True, True, False]), 0.25).tolist()
    [[0.0, 0.25, 0.0], [0.25, 0.0, 0.0], [0.25, 0.25, 0.0]]
    """
    off_diagonal = ~torch.eye(len(held), dtype=torch.bool, device=held.device)
    return (off_diagonal & held).double() * margin


def positive_guidance(guidance: Tensor, counts: Tensor) -> tuple[float, float]:
    """Return sum and weight of the positive entries of B, each entry weighing the samples of its row's class.

    Added up over clients and rounds, sum / weight is the margin that matches a full run.

    Args:
        guidance: B, shape (C, C).
        counts: Training samples per class, shape (C,).

    Returns:
        (sum of n_y B_y(c), sum of n_y) over the entries with B_y(c) > 0.

    >>> positive_guidance(torch.tensor([[0.0, 0.5], [0.0, 0.0]]), torch.tensor([3, 5]))
    (1.5, 3.0)
    """
    samples = counts.double().unsqueeze(1)
    return float((guidance * samples).sum()), float(((guidance > 0) * samples).sum())


def match_norm(guidance: Tensor, reference: Tensor) -> Tensor:
    """Return the guidance rescaled per row to the row sum of the reference (the top-q version).

    Args:
        guidance: Shape (C, C), >= 0, usually with q = "all".
        reference: Shape (C, C), >= 0.

    Returns:
        Shape (C, C); rows without a positive entry stay 0.

    Raises:
        InvalidInput: The shapes differ.

    >>> match_norm(torch.tensor([[0.0, 0.5], [0.0, 0.0]]), torch.tensor([[0.0, 0.25], [0.0, 0.0]])).tolist()
    [[0.0, 0.25], [0.0, 0.0]]
    """
    if guidance.shape != reference.shape:
        raise InvalidInput(f"guidance {tuple(guidance.shape)} and reference {tuple(reference.shape)} differ in shape")
    sums = guidance.sum(dim=1, keepdim=True)
    return torch.where(sums > 0, guidance * (reference.sum(dim=1, keepdim=True) / sums), 0.0)


def _observed_pairs(observed: Tensor) -> tuple[Tensor, Tensor]:
    rows, columns = observed.triu(diagonal=1).nonzero(as_tuple=True)
    return rows, columns


def _with_pairs(relations: Tensor, rows: Tensor, columns: Tensor, values: Tensor) -> Tensor:
    changed = relations.clone()
    changed[rows, columns] = changed[columns, rows] = values
    return changed
