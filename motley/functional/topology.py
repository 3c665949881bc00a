"""Relations between classes and their aggregate over clients (FedTopo, Eqs. 3-8)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from motley.errors import InvalidInput

EPSILON = 1e-8  # the paper gives no value; integer weights are 0.5 or more, so any smaller one moves less than 2e-8
MIN_SUPPORT = 1e-6  # noisy counts are real, so a weight can be tiny; at or below this a pair was not observed
MIN_NORM = 1e-12  # a shorter prototype (dead features) has no direction

Weighting = Literal["reliability", "uniform"]
SupportNorm = Literal["all", "offdiag"]
Start = Literal["identity", "first"]


def effective_counts(prototypes: Tensor, counts: Tensor) -> Tensor:
    """Return the counts with 0 for every class whose prototype has no direction.

    Kept: held, prototype finite and longer than 1e-12. cos := 0 for the others would invent a relation.

    Args:
        prototypes: Shape (C, d), floating; NaN rows are allowed.
        counts: Shape (C,), >= 0.

    Returns:
        Shape (C,), dtype of `counts`.

    Raises:
        InvalidInput: The shapes do not fit, or a count is negative or not finite.

    Source: FedTopo, Eq. 3, our reading of a degenerate prototype.

    >>> effective_counts(torch.tensor([[0.0, 0.0], [1.0, 0.0]]), torch.tensor([3, 2])).tolist()
    [0, 2]
    """
    check_counts(counts)
    if prototypes.ndim != 2 or prototypes.shape[0] != counts.shape[0]:
        raise InvalidInput(
            f"relations need prototypes (C, d) with C = {counts.shape[0]} counts, not {tuple(prototypes.shape)}"
        )
    finite = prototypes.isfinite().all(dim=1)
    norms = torch.linalg.vector_norm(prototypes.double(), dim=1)
    return torch.where((counts > 0) & finite & (norms > MIN_NORM), counts, 0)


def relations(prototypes: Tensor, counts: Tensor) -> Tensor:
    """Return how similar the classes of one client are: R(a, b) = (1 + cos(P_a, P_b)) / 2.

    Args:
        prototypes: Shape (C, d), floating; rows of absent classes may be NaN.
        counts: Shape (C,), >= 0; the effective counts decide what is masked.

    Returns:
        Shape (C, C), float64, in [0, 1], symmetric bit for bit, diagonal exactly 1; NaN where a class is masked.

    Raises:
        InvalidInput: The shapes do not fit, or a count is negative or not finite.

    Source: FedTopo, Eq. 3.

    >>> relations(torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]]), torch.tensor([5, 1, 0])).tolist()
    [[1.0, 0.5, nan], [0.5, 1.0, nan], [nan, nan, nan]]
    """
    held = effective_counts(prototypes, counts) > 0
    vectors = torch.where(held.unsqueeze(1), prototypes.double(), 1.0)
    vectors = vectors / vectors.abs().amax(dim=1, keepdim=True)  # squares of huge or tiny entries stay finite
    vectors = vectors / torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
    upper = (((1 + vectors @ vectors.T) / 2).clamp(0, 1)).triu(diagonal=1)
    full: Tensor = upper + upper.T + torch.eye(len(held), dtype=torch.float64, device=upper.device)
    return full.masked_fill(~(held.unsqueeze(1) & held), torch.nan)


def pair_mask(counts: Tensor) -> Tensor:
    """Return which class pairs one client holds: M(a, b) = (n_a > 0) and (n_b > 0), diagonal included.

    Args:
        counts: Shape (C,), >= 0.

    Returns:
        Shape (C, C), bool.

    Raises:
        InvalidInput: `counts` is not one-dimensional, or one is negative or not finite.

    Source: FedTopo, Eq. 4.

    >>> pair_mask(torch.tensor([4, 0])).tolist()
    [[True, False], [False, False]]
    """
    check_counts(counts)
    held = counts > 0
    return held.unsqueeze(1) & held


def pair_weights(counts: Tensor, *, epsilon: float = EPSILON) -> Tensor:
    """Return how much evidence one client has for each class pair: w(a, b) = M(a, b) n_a n_b / (n_a + n_b + epsilon).

    Args:
        counts: Shape (C,), >= 0, integer or (noisy counts) real.
        epsilon: Guard of the denominator, in samples, > 0.

    Returns:
        Shape (C, C), float64, in samples. Symmetric bit for bit; 0 <= w(a, b) <= min(n_a, n_b).

    Raises:
        InvalidInput: `counts` is not one-dimensional, or one is negative or not finite.

    Source: FedTopo, Eq. 5.

    >>> [[round(w, 6) for w in row] for row in pair_weights(torch.tensor([6, 3, 0])).tolist()]
    [[3.0, 2.0, 0.0], [2.0, 1.5, 0.0], [0.0, 0.0, 0.0]]
    """
    mask = pair_mask(counts)
    n = counts.double()
    return n.unsqueeze(1) * n / (n.unsqueeze(1) + n + epsilon) * mask


@dataclass(frozen=True)
class PairSums:
    """Running sums over the clients of a round, from which the server makes R and S."""

    weighted: Tensor  # (C, C) float64, numerator of Eq. 6
    weight: Tensor  # (C, C) float64, what Eq. 6 divides by
    support: Tensor  # (C, C) float64, W: the sum of the weights of Eq. 5

    @staticmethod
    def zeros(num_classes: int) -> "PairSums":
        """Return the sums over nobody.

        >>> PairSums.zeros(2).support.tolist()
        [[0.0, 0.0], [0.0, 0.0]]
        """
        zero = torch.zeros(num_classes, num_classes, dtype=torch.float64)
        return PairSums(zero, zero, zero)


def add_relations(
    sums: PairSums, relations: Tensor, counts: Tensor, *, weighting: Weighting = "reliability"
) -> PairSums:
    """Return the sums with one more client; call it in ascending client id, as floating sums depend on the order.

    Args:
        sums: So far.
        relations: Shape (C, C), NaN where masked.
        counts: Shape (C,), >= 0, those uploaded.
        weighting: "reliability" weighs by Eq. 5, "uniform" by the mask of Eq. 4; `support` is Eq. 5 for both.

    Returns:
        New sums; the ones given are not changed.

    Raises:
        InvalidInput: The shapes do not fit, or a relation is missing where the counts claim one.

    Source: FedTopo, Eqs. 5-7.

    >>> held = torch.tensor([[1.0, 0.8], [0.8, 1.0]], dtype=torch.float64)
    >>> sums = add_relations(PairSums.zeros(2), held, torch.tensor([1, 1]), weighting="uniform")
    >>> sums.weighted.tolist(), sums.weight.tolist()
    ([[1.0, 0.8], [0.8, 1.0]], [[1.0, 1.0], [1.0, 1.0]])
    """
    support = pair_weights(counts)
    if not sums.support.shape == relations.shape == support.shape:
        raise InvalidInput(
            f"sums, relations and counts must agree on the number of classes, not {tuple(sums.support.shape)}, "
            f"{tuple(relations.shape)} and {tuple(counts.shape)}"
        )
    weight = support if weighting == "reliability" else pair_mask(counts).double()
    if bool((relations.isnan() & (weight > 0)).any()):
        raise InvalidInput("a relation is missing (NaN) for a pair of classes that the counts say is held")
    weighted = torch.where(weight > 0, weight * relations.double(), 0.0)
    return PairSums(sums.weighted + weighted, sums.weight + weight, sums.support + support)


def sum_relations(
    uploads: Mapping[int, tuple[Tensor, Tensor]], num_classes: int, *, weighting: Weighting = "reliability"
) -> PairSums:
    """Return the sums over all clients of a round, in ascending id whatever the order of arrival.

    Args:
        uploads: Client id to (relations (C, C), counts (C,)).
        num_classes: C.
        weighting: As in `add_relations`.

    Returns:
        The sums; all zero for no uploads.

    Raises:
        InvalidInput: As in `add_relations`.

    Source: FedTopo, Eqs. 5-7.

    >>> one = (torch.ones(2, 2, dtype=torch.float64), torch.tensor([2, 2]))
    >>> torch.equal(sum_relations({1: one, 0: one}, 2).support, 2 * pair_weights(one[1]))
    True
    """
    sums = PairSums.zeros(num_classes)
    for client in sorted(uploads):
        sums = add_relations(sums, *uploads[client], weighting=weighting)
    return sums


def observed(sums: PairSums) -> Tensor:
    """Return which pairs somebody supported in the round: W > 1e-6.

    Args:
        sums: Over the clients of the round.

    Returns:
        Shape (C, C), bool.

    Source: FedTopo, Eq. 6 with our reading of noisy counts.

    >>> observed(PairSums.zeros(1)).tolist()
    [[False]]
    """
    return sums.support > MIN_SUPPORT


def aggregate(sums: PairSums) -> Tensor:
    """Return the aggregate of the round: Rt = sum_k w_k R_k / (sum_k w_k + 1e-8), 0 where unobserved.

    Args:
        sums: Over the clients of the round.

    Returns:
        Shape (C, C), float64, in [0, 1], symmetric. The diagonal stays a hair under 1; nothing uses it.

    Source: FedTopo, Eq. 6.

    >>> aggregate(PairSums.zeros(1)).tolist()
    [[0.0]]
    """
    return torch.where(observed(sums), sums.weighted / (sums.weight + EPSILON), 0.0)


def reliability(support: Tensor, *, norm: SupportNorm = "all") -> Tensor:
    """Return the support of each pair relative to the best one: S = W / (max W + 1e-8).

    Args:
        support: W, shape (C, C), float64, >= 0: of one round, or smoothed over rounds.
        norm: "all" takes the maximum over all entries; "offdiag" over a != b and clips the diagonal to 1.

    Returns:
        Shape (C, C), float64, in [0, 1]; 0 for unobserved pairs and everywhere if nothing was observed.

    Raises:
        InvalidInput: `support` is not square.

    Source: FedTopo, Eq. 7.

    >>> W = torch.tensor([[4.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    >>> [round(s, 6) for s in reliability(W).flatten().tolist()]
    [1.0, 0.25, 0.25, 0.5]
    >>> [round(s, 6) for s in reliability(W, norm="offdiag").flatten().tolist()]
    [1.0, 1.0, 1.0, 1.0]
    """
    check_square(support, "support")
    compared = support if norm == "all" else support.clone().fill_diagonal_(0)
    relative = (support / (compared.max() + EPSILON)).clamp(max=1)
    return torch.where(support > MIN_SUPPORT, relative, 0.0)


def smooth(
    previous: Tensor,
    current: Tensor,
    observed: Tensor,
    *,
    rho: float,
    retain: bool = True,
    init: Start = "identity",
    times: Tensor | None = None,
) -> Tensor:
    """Return R_t = rho R_{t-1} + (1 - rho) Rt where a pair was observed, else R_{t-1}.

    Args:
        previous: R_{t-1}, shape (C, C), float64; R_0 is the identity.
        current: Rt, shape (C, C), float64; read only where observed, so NaN may stand elsewhere.
        observed: Shape (C, C), bool.
        rho: Memory, in [0, 1].
        retain: False (ablation) puts 0 where a pair was not observed.
        init: "first" takes a pair's first observation as it is.
        times: Shape (C, C), rounds before this one in which the pair was observed; needed for "first".

    Returns:
        Shape (C, C), float64.

    Raises:
        InvalidInput: `rho` is outside of [0, 1], the shapes differ, or `times` is missing.

    Source: FedTopo, Eq. 8.

    >>> eye = torch.eye(2, dtype=torch.float64)
    >>> round(float(smooth(eye, torch.full_like(eye, 0.8), eye < 2, rho=0.7)[0, 1]), 6)
    0.24
    """
    if not 0 <= rho <= 1:
        raise InvalidInput(f"the smoothing rho must lie in [0, 1], not {rho}")
    if not previous.shape == current.shape == observed.shape:
        raise InvalidInput("the previous, the current and the observed matrix must have one shape (C, C)")
    mixed = rho * previous.double() + (1 - rho) * current.double()
    if init == "first":
        if times is None:
            raise InvalidInput("init='first' needs `times`, in how many rounds each pair was observed before")
        mixed = torch.where(times == 0, current.double(), mixed)
    return torch.where(observed, mixed, previous.double() if retain else 0.0)


def debias(relations: Tensor, times: Tensor, rho: float) -> Tensor:
    """Return R with the pull of the start at I removed: off the diagonal R / (1 - rho^m).

    Args:
        relations: R_t of `smooth` with init "identity", shape (C, C), float64.
        times: m, shape (C, C), rounds up to now in which the pair was observed; m = 0 leaves the entry.
        rho: Memory, in [0, 1).

    Returns:
        Shape (C, C), float64, at most 1; the diagonal is not changed.

    Raises:
        InvalidInput: `rho` is outside of [0, 1) or the shapes differ.

    Source: FedTopo, Eq. 8, option ema_init = "debias".

    >>> R = torch.tensor([[1.0, 0.24], [0.24, 1.0]], dtype=torch.float64)
    >>> round(float(debias(R, torch.ones(2, 2), 0.7)[0, 1]), 6)
    0.8
    """
    if not 0 <= rho < 1:
        raise InvalidInput(f"the smoothing rho must lie in [0, 1) to be debiased, not {rho}")
    if relations.shape != times.shape:
        raise InvalidInput("relations and times must have one shape (C, C)")
    off_diagonal = ~torch.eye(len(relations), dtype=torch.bool, device=relations.device)
    corrected = (relations / (1 - rho ** times.double())).clamp(max=1)
    return torch.where(off_diagonal & (times > 0), corrected, relations)


def smooth_support(previous: Tensor, current: Tensor, *, rho: float) -> Tensor:
    """Return W smoothed over rounds, rho W_{t-1} + (1 - rho) W, so that a missed round does not silence a pair.

    Args:
        previous: Shape (C, C), float64; zero before round 1.
        current: W of the round, shape (C, C), float64.
        rho: Memory, in [0, 1].

    Returns:
        Shape (C, C), float64, for `reliability`.

    Raises:
        InvalidInput: `rho` is outside of [0, 1] or the shapes differ.

    Source: FedTopo, Eq. 7, option s_state = "ema".

    >>> round(float(smooth_support(torch.ones(1, 1), torch.zeros(1, 1), rho=0.7)), 6)
    0.7
    """
    everywhere = torch.ones_like(current, dtype=torch.bool)
    return smooth(previous, current, everywhere, rho=rho)


def check_counts(counts: Tensor) -> None:
    """Refuse counts that are not one-dimensional, finite and >= 0.

    Raises:
        InvalidInput: They are not.

    >>> check_counts(torch.tensor([3, 0]))
    """
    if counts.ndim != 1:
        raise InvalidInput(f"counts must have shape (C,), not {tuple(counts.shape)}")
    wrong = ~(counts.isfinite() & (counts >= 0))
    if bool(wrong.any()):
        index = int(wrong.nonzero()[0])
        raise InvalidInput(f"the count of class {index} is {counts[index].item()}; counts must be finite and >= 0")


def check_square(matrix: Tensor, name: str) -> None:
    """Refuse a matrix that is not (C, C).

    Raises:
        InvalidInput: It is not.

    >>> check_square(torch.zeros(2, 2), "support")
    """
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InvalidInput(f"{name} must have shape (C, C), not {tuple(matrix.shape)}")
