"""Whether models relate the same classes alike: rank correlations and angles between clients, held against chance.

K clients, C classes, P random draws. Relations of two clients are compared over the pairs of the classes that both hold
by Spearman's correlation, and chance is a permutation of the classes inside of each client (Mantel's test). Prototypes
are compared by phi = (1 + cos) / 2 of the same class, and chance is a random rotation of each client's feature space,
which changes no relation inside of it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from motley.errors import InvalidInput
from motley.functional.topology_metrics import similarity

LEAST_CLASSES = 4  # 3 classes have 3 pairs, whose correlation takes one of 4 values
MOST_PAIRS = 300  # pairs of clients; more are drawn from
ENTRIES_AT_ONCE = 2**24  # of rotated prototypes
ROUNDING = 1e-12  # a draw that gives the same order again reaches the value

Pair = tuple[int, int]


def average_ranks(values: Tensor) -> Tensor:
    """Return the ranks over the last axis, from 1; equal values share the mean of their ranks.

    Args:
        values: Shape (..., n), finite.

    Returns:
        Shape (..., n), float64.

    >>> average_ranks(torch.tensor([0.5, 0.1, 0.5, 0.9])).tolist()
    [2.5, 1.0, 2.5, 4.0]
    """
    ordered = values.sort(dim=-1).values.contiguous()
    below = torch.searchsorted(ordered, values.contiguous(), right=False)
    up_to = torch.searchsorted(ordered, values.contiguous(), right=True)
    return (below + up_to + 1).double() / 2


def rank_correlation(first: Tensor, second: Tensor) -> Tensor:
    """Return Spearman's correlation over the last axis: that of the average ranks.

    Args:
        first: Shape (..., n), finite.
        second: Shape (..., n), finite.

    Returns:
        Shape (...), float64, in [-1, 1]; NaN where all values of one side are equal.

    >>> x = torch.tensor([1.0, 2.0, 3.0, 4.0])
    >>> round(rank_correlation(x, torch.tensor([2.0, 1.0, 4.0, 30.0])).item(), 9)
    0.8
    """
    x, y = (ranks - ranks.mean(dim=-1, keepdim=True) for ranks in (average_ranks(first), average_ranks(second)))
    product = torch.linalg.vector_norm(x, dim=-1) * torch.linalg.vector_norm(y, dim=-1)
    return torch.where(product > 0, ((x * y).sum(dim=-1) / product).clamp(-1, 1), torch.nan)


@dataclass(frozen=True)
class Agreement:
    """What a group of client pairs agrees on, and what chance would give.

    Attributes:
        pairs: How many client pairs were compared.
        value: Mean over these pairs; None without any.
        chance: Mean of the same under chance.
        chance_high: 97.5 % of the draws of chance lie below.
        p: (1 + draws that reach the value) / (1 + draws).
    """

    pairs: int
    value: float | None
    chance: float | None
    chance_high: float | None
    p: float | None


@dataclass(frozen=True)
class Consistency:
    """Agreement by group, and the value of every pair of clients that was compared."""

    groups: Mapping[str, Agreement]
    pairs: Mapping[Pair, float]


def client_pairs(held: Tensor, generator: torch.Generator, *, least: int = LEAST_CLASSES) -> list[Pair]:
    """Return the pairs of clients with enough classes in common; of more than 300 so many are drawn.

    Args:
        held: Shape (K, C), bool.
        generator: On the CPU.
        least: How many classes in common are enough.

    >>> client_pairs(torch.ones(3, 4, dtype=torch.bool), torch.Generator())
    [(0, 1), (0, 2), (1, 2)]
    """
    common = held.double() @ held.double().T
    rows, columns = torch.triu_indices(len(held), len(held), offset=1)
    enough = common[rows, columns] >= least
    found = list(zip(rows[enough].tolist(), columns[enough].tolist(), strict=True))
    if len(found) <= MOST_PAIRS:
        return found
    chosen = torch.randperm(len(found), generator=generator)[:MOST_PAIRS]
    return [found[position] for position in chosen.sort().values.tolist()]


def relation_consistency(
    relations: Tensor,
    pairs: Sequence[Pair],
    groups: Mapping[str, Sequence[Pair]],
    *,
    draws: int,
    generator: torch.Generator,
) -> Consistency:
    """Return how alike clients rank the relations of the classes that both hold.

    One permutation of its held classes is drawn for each client and draw, so that pairs which share a client depend on
    each other under chance as they do in the data.

    Args:
        relations: R_k, shape (K, C, C), NaN where masked.
        pairs: Pairs of clients, as from `client_pairs`.
        groups: Pairs by name of the group.
        draws: P, permutations.
        generator: On the CPU.

    Returns:
        Mean Spearman correlation of each group against the permutations, and that of each pair.

    Raises:
        InvalidInput: There are no draws.

    >>> R = torch.rand(4, 4, generator=torch.Generator().manual_seed(0))
    >>> both = ((R + R.T) / 2).expand(2, 4, 4)
    >>> made = relation_consistency(both, [(0, 1)], {"all": [(0, 1)]}, draws=9, generator=torch.Generator())
    >>> made.groups["all"].value
    1.0
    """
    _check_draws(draws)
    held = relations.diagonal(dim1=1, dim2=2).isfinite()
    order = torch.stack([_permutations(own, draws, generator) for own in held])  # (K, 1 + P, C)
    values = {}
    for first, second in pairs:
        common = (held[first] & held[second]).nonzero().flatten()
        rows, columns = common[torch.triu_indices(len(common), len(common), offset=1)]
        own, other = (relations[one][order[one][:, rows], order[one][:, columns]] for one in (first, second))
        values[first, second] = rank_correlation(own, other)
    return _gather(values, groups)


def prototype_consistency(
    prototypes: Tensor,
    pairs: Sequence[Pair],
    groups: Mapping[str, Sequence[Pair]],
    *,
    draws: int,
    generator: torch.Generator,
) -> Consistency:
    """Return how alike the prototypes of the same class point in the feature spaces of two clients.

    Args:
        prototypes: p_kc, shape (K, C, d), NaN rows where absent.
        pairs: Pairs of clients.
        groups: Pairs by name of the group.
        draws: P, random rotations (with reflections) of each client's feature space.
        generator: On the CPU.

    Returns:
        Mean phi of each group against the rotations, and that of each pair.

    Raises:
        InvalidInput: There are no draws.

    >>> P = torch.eye(3).expand(2, 3, 3)
    >>> made = prototype_consistency(P, [(0, 1)], {"all": [(0, 1)]}, draws=9, generator=torch.Generator())
    >>> made.groups["all"].value
    1.0
    """
    _check_draws(draws)
    held, compared = _directed(prototypes), sorted({client for pair in pairs for client in pair})
    at_once = max(1, ENTRIES_AT_ONCE // prototypes.numel())
    sizes = [0, *(min(at_once, draws - done) for done in range(0, draws, at_once))]  # the first without a rotation
    parts: dict[Pair, list[Tensor]] = {pair: [] for pair in pairs}
    for size in sizes:
        turned = {client: _rotated(prototypes[client], held[client], size, generator) for client in compared}
        for (first, second), found in parts.items():
            common = held[first] & held[second]
            found.append(similarity(turned[first][:, common], turned[second][:, common]).mean(dim=1))
    return _gather({pair: torch.cat(found) for pair, found in parts.items()}, groups)


def other_class_similarity(prototypes: Tensor, pairs: Sequence[Pair]) -> float | None:
    """Return the mean phi between prototypes of different classes of two clients, over the classes both hold.

    What the same class has beyond this is what the feature spaces agree on; features that are never negative have
    angles below 90 degrees whatever they mean.

    Args:
        prototypes: Shape (K, C, d), NaN rows where absent.
        pairs: Pairs of clients; the mean is over pairs.

    >>> other_class_similarity(torch.eye(2).expand(2, 2, 2), [(0, 1)])
    0.5
    """
    held, means = _directed(prototypes), []
    for first, second in pairs:
        common = held[first] & held[second]
        table = similarity(prototypes[first][common].unsqueeze(1), prototypes[second][common].unsqueeze(0))
        size = len(table)
        if size > 1:
            means.append((table.sum() - table.trace()).item() / (size * (size - 1)))
    return sum(means) / len(means) if means else None


def _directed(prototypes: Tensor) -> Tensor:
    """Return which prototypes (K, C) have a direction."""
    return similarity(prototypes, prototypes).isfinite()


def _check_draws(draws: int) -> None:
    if draws < 1:
        raise InvalidInput(f"chance needs at least 1 draw, not {draws}")


def _permutations(held: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """Return (1 + P, C) orders of the classes: first their own, then permutations of the held ones."""
    order = torch.arange(len(held)).repeat(1 + draws, 1)
    own = held.nonzero().flatten()
    order[1:, own] = own[torch.rand(draws, len(own), generator=generator).argsort(dim=1)]
    return order


def _rotated(prototypes: Tensor, held: Tensor, draws: int, generator: torch.Generator) -> Tensor:
    """Return (P, C, d) prototypes, each time rotated by a random orthogonal matrix; for P = 0 once, as they are.

    It is enough to draw where their span goes to: an orthonormal frame of Gaussian vectors by QR. The signs of its
    factor are made positive, as without that the frames would not be uniform.
    """
    exact = torch.where(held.unsqueeze(1), prototypes.double(), 0.0)
    if not draws:
        return exact.unsqueeze(0)
    span, coordinates = torch.linalg.qr(exact[held].T)  # (d, r) and (r, m)
    noise = torch.randn(draws, *span.shape, dtype=torch.float64, generator=generator)
    frame, upper = torch.linalg.qr(noise)
    frame = frame * upper.diagonal(dim1=1, dim2=2).sign().unsqueeze(1)
    made = torch.zeros(draws, *exact.shape, dtype=torch.float64)
    made[:, held] = (frame @ coordinates).transpose(1, 2)
    return made


def _gather(values: Mapping[Pair, Tensor], groups: Mapping[str, Sequence[Pair]]) -> Consistency:
    """Return the agreement of all groups, given (1 + P,) values of each pair, the first of them without chance."""
    made = {}
    for name, members in groups.items():
        known = [values[pair] for pair in members if not math.isnan(float(values[pair][0]))]
        if not known:
            made[name] = Agreement(0, None, None, None, None)
            continue
        means = torch.stack(known).nanmean(dim=0)
        value, chance = float(means[0]), means[1:][means[1:].isfinite()]
        reached = int((chance >= value - ROUNDING).sum())
        p = (1 + reached) / (1 + len(chance))
        made[name] = Agreement(len(known), value, float(chance.mean()), float(chance.quantile(0.975)), p)
    return Consistency(made, {pair: float(found[0]) for pair, found in values.items()})
