"""Noise on class counts before they leave a participant (FedTopo, section 6 of its sheet; CRAD, DP release)."""

import math

import torch
from torch import Tensor

from motley.errors import InvalidInput
from motley.functional.topology import check_counts, pair_mask


def laplace_noise(num_classes: int, scale: float, generator: torch.Generator) -> Tensor:
    """Return one Laplace(0, b) draw per class; draw once per run, since fresh noise would average out.

    Args:
        num_classes: C.
        scale: b, in samples, >= 0.
        generator: On the CPU; only it decides the draws.

    Returns:
        Shape (C,), float64.

    Raises:
        InvalidInput: `scale` is negative or not finite.

    >>> laplace_noise(2, 0.0, torch.Generator()).abs().tolist()
    [0.0, 0.0]
    """
    if not 0 <= scale < math.inf:
        raise InvalidInput(f"the scale of the noise must be finite and >= 0, not {scale}")
    # The difference of two exponential draws is Laplace, without the logarithm of 0 of the inverse distribution.
    first, second = torch.empty(2, num_classes, dtype=torch.float64).exponential_(generator=generator)
    difference: Tensor = first - second
    return scale * difference


def noisy_counts(counts: Tensor, noise: Tensor, *, hide_absent: bool = False) -> Tensor:
    """Return max(0, n + noise), real-valued.

    Args:
        counts: n, shape (C,), >= 0.
        noise: Shape (C,), in samples.
        hide_absent: True adds noise to absent classes too; False leaves them at exactly 0.

    Returns:
        Shape (C,), float64, >= 0. A held class that is cut to 0 is masked for this run. Round to the wire's float32
        before anything is masked by it, so that both ends see the same zeros.

    Raises:
        InvalidInput: The shapes differ, or a count is negative or not finite.

    Source: FedTopo, "noisy counts", our reading.

    >>> noisy_counts(torch.tensor([4, 2, 0]), torch.tensor([-0.5, -3.0, 1.25])).tolist()
    [3.5, 0.0, 0.0]
    >>> noisy_counts(torch.tensor([4, 2, 0]), torch.tensor([-0.5, -3.0, 1.25]), hide_absent=True).tolist()
    [3.5, 0.0, 1.25]
    """
    check_counts(counts)
    if noise.shape != counts.shape:
        raise InvalidInput(f"counts and noise must have one shape (C,), not {(*counts.shape,)} and {(*noise.shape,)}")
    noisy = (counts.double() + noise.double()).clamp(min=0)
    return noisy if hide_absent else torch.where(counts > 0, noisy, 0.0)


def draw_hidden_relations(relations: Tensor, generator: torch.Generator) -> Tensor:
    """Return relations to claim for pairs that a client does not hold: draws from its own valid ones.

    Draw once per run and keep the result; a constant, or a copy of the global relations, would be recognised.

    Args:
        relations: Of the client, shape (C, C), NaN where masked.
        generator: On the CPU.

    Returns:
        Shape (C, C), float64, symmetric, diagonal 1; uniform in [0.5, 1] if the client has no valid pair.

    Source: FedTopo, `hide_absent`, our reading.

    >>> own = torch.tensor([[1.0, 0.75, torch.nan], [0.75, 1.0, torch.nan], [torch.nan] * 3])
    >>> draw_hidden_relations(own, torch.Generator()).tolist()
    [[1.0, 0.75, 0.75], [0.75, 1.0, 0.75], [0.75, 0.75, 1.0]]
    """
    num_classes = len(relations)
    rows, columns = torch.triu_indices(num_classes, num_classes, offset=1)
    own = relations[rows, columns].double()
    valid = own[~own.isnan()]
    if len(valid):
        drawn = valid[torch.randint(len(valid), (len(rows),), generator=generator)]
    else:
        drawn = 0.5 + 0.5 * torch.rand(len(rows), dtype=torch.float64, generator=generator)
    hidden = torch.eye(num_classes, dtype=torch.float64)
    hidden[rows, columns] = hidden[columns, rows] = drawn
    return hidden


def fill_hidden_relations(relations: Tensor, counts: Tensor, hidden: Tensor | torch.Generator) -> Tensor:
    """Return the relations with a value for every pair that the (noisy) counts claim, and NaN for all others.

    Args:
        relations: Of the client, shape (C, C), NaN where masked.
        counts: Shape (C,), as uploaded.
        hidden: What `draw_hidden_relations` gave once for this run, or a generator to draw it here.

    Returns:
        Shape (C, C), float64.

    Raises:
        InvalidInput: A count is negative or not finite.

    Source: FedTopo, `hide_absent`.

    >>> own = torch.tensor([[1.0, torch.nan], [torch.nan, torch.nan]])
    >>> fill_hidden_relations(own, torch.tensor([3.5, 0.25]), torch.tensor([[1.0, 0.625], [0.625, 1.0]])).tolist()
    [[1.0, 0.625], [0.625, 1.0]]
    """
    values = draw_hidden_relations(relations, hidden) if isinstance(hidden, torch.Generator) else hidden
    filled = torch.where(relations.isnan(), values.double(), relations.double())
    return filled.masked_fill(~pair_mask(counts), torch.nan)


def laplace_counts(counts: Tensor, privacy: float, generator: torch.Generator) -> Tensor:
    """Return n' = max(0, n + Laplace(1 / privacy)) for every class, absent ones too.

    Args:
        counts: n, shape (C,), >= 0.
        privacy: The privacy budget epsilon, > 0.
        generator: On the CPU.

    Returns:
        Shape (C,), float64, for filter and weight alike.

    Raises:
        InvalidInput: `privacy` <= 0, or a count is negative or not finite.

    Source: CRAD, DP counts. The accuracies are not covered: see `coarse_accuracies`.

    >>> bool((laplace_counts(torch.tensor([0, 9]), 1.0, torch.Generator()) >= 0).all())
    True
    """
    if not privacy > 0:
        raise InvalidInput(f"the privacy budget epsilon must be > 0, not {privacy}")
    return noisy_counts(counts, laplace_noise(len(counts), 1 / privacy, generator), hide_absent=True)


def coarse_accuracies(accuracies: Tensor, steps: int = 32) -> Tensor:
    """Return accuracies rounded to multiples of 1 / steps, as an exact correct / n betrays n. No guarantee.

    Args:
        accuracies: In [0, 1].
        steps: >= 1.

    Returns:
        The same shape, float64.

    Source: CRAD, DP counts, our reading.

    >>> coarse_accuracies(torch.tensor([0.7])).tolist()
    [0.6875]
    """
    return (accuracies.double() * steps).round() / steps


def pass_probability(counts: Tensor, privacy: float, min_support: float = 2) -> Tensor:
    """Return how likely a noised count passes the support filter, P(n' >= min_support).

    With x = min_support - n: exp(-x epsilon) / 2 for x > 0, else 1 - exp(x epsilon) / 2; 1 for min_support <= 0.

    Args:
        counts: n, any shape, >= 0.
        privacy: The privacy budget epsilon, > 0.
        min_support: In samples.

    Returns:
        The shape of `counts`, float64.

    Raises:
        InvalidInput: `privacy` <= 0.

    Source: CRAD, DP counts.

    >>> [round(p, 4) for p in pass_probability(torch.tensor([0, 2]), 1.0).tolist()]
    [0.0677, 0.5]
    """
    if not privacy > 0:
        raise InvalidInput(f"the privacy budget epsilon must be > 0, not {privacy}")
    missing = min_support - counts.double()
    tail = torch.exp(-missing.abs() * privacy) / 2
    if min_support <= 0:
        return torch.ones_like(tail)
    return torch.where(missing > 0, tail, 1 - tail)
