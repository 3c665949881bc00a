"""Ranks of several rows over several settings: do they differ at all, and which of them from a reference.

Higher values are better; rank 1 is the best row of a setting, equal values share the mean of their ranks.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from motley.errors import InvalidInput

Floats = NDArray[np.float64]


def ranks_of(values: Sequence[Sequence[float]]) -> Floats:
    """Return the rank of every row in every setting.

    Args:
        values: N settings by k rows, finite.

    Returns:
        Ranks (N, k), 1..k; each setting's sum is k (k + 1) / 2.

    Raises:
        InvalidInput: Settings have different rows, there is none, or a value is not finite.

    >>> ranks_of([[0.9, 0.5, 0.5], [0.1, 0.2, 0.3]]).tolist()
    [[1.0, 2.5, 2.5], [3.0, 2.0, 1.0]]
    """
    if not values or not len(values[0]) or len({len(own) for own in values}) > 1:
        raise InvalidInput("ranks need the same rows in every setting, and at least one of both")
    table = np.asarray(values, dtype=np.float64)
    if not np.isfinite(table).all():
        raise InvalidInput("ranks need a finite value of every row in every setting")
    return np.asarray(stats.rankdata(-table, axis=1), dtype=np.float64)


@dataclass(frozen=True)
class FriedmanTest:
    """Whether rows differ in their ranks at all."""

    chi_square: float  # corrected for ties
    p: float  # of chi-square, k - 1 degrees of freedom
    f: float  # Iman and Davenport; infinite where all settings agree
    f_p: float
    freedom: tuple[int, int]  # of F: k - 1 and (k - 1) (N - 1)


def friedman(ranks: Floats) -> FriedmanTest:
    """Return Friedman's test in its chi-square form and in that of Iman and Davenport, which is less conservative.

    chi^2 = 12 / (N k (k + 1) c) sum_j R_j^2 - 3 N (k + 1) / c with R_j the sums of ranks and the correction for ties
    c = 1 - sum (t^3 - t) / (N k (k^2 - 1)) over all groups of t equal ranks of a setting;
    F = (N - 1) chi^2 / (N (k - 1) - chi^2). Where all rows are equal in all settings chi^2 = F = 0 and p = 1.

    Args:
        ranks: (N, k), N >= 2 settings and k >= 2 rows, as of `ranks_of`.

    Returns:
        Both forms with their p values, which are approximations for few settings.

    Raises:
        InvalidInput: Fewer settings or rows.

    Source: Demsar, JMLR 7 (2006), Section 3.2.2; correction for ties as in Friedman's test of scipy.

    >>> found = friedman(ranks_of([[3, 2, 1], [3, 2, 1], [3, 1, 2], [2, 3, 1]]))
    >>> round(found.chi_square, 3), round(found.f, 3), found.freedom
    (4.5, 3.857, (2, 6))
    """
    settings, rows = ranks.shape if ranks.ndim == 2 else (0, 0)
    if settings < 2 or rows < 2:
        raise InvalidInput(f"Friedman's test needs at least 2 settings and 2 rows, not {settings} and {rows}")
    tied = sum(float((counts**3 - counts).sum()) for counts in (np.unique(own, return_counts=True)[1] for own in ranks))
    correction = 1 - tied / (settings * rows * (rows**2 - 1))
    freedom = (rows - 1, (rows - 1) * (settings - 1))
    if correction <= 0:
        return FriedmanTest(0.0, 1.0, 0.0, 1.0, freedom)
    sums = ranks.sum(axis=0)
    raw = 12 / (settings * rows * (rows + 1)) * float((sums**2).sum()) - 3 * settings * (rows + 1)
    largest = settings * (rows - 1)
    chi_square = min(max(raw / correction, 0.0), float(largest))
    agreed = chi_square >= largest * (1 - 1e-12)
    f = float("inf") if agreed else (settings - 1) * chi_square / (largest - chi_square)
    return FriedmanTest(
        chi_square, float(stats.chi2.sf(chi_square, freedom[0])), f, float(stats.f.sf(f, *freedom)), freedom
    )


def signed_rank_p(differences: Sequence[float]) -> float:
    """Return the two-sided p value of Wilcoxon's signed-rank test, exact also with equal differences.

    W = the smaller of the sums of ranks of |d| over d > 0 and over d < 0; p = min(1, 2 P(W' <= W)) where every sign is
    + or - alike. Differences of 0 are left out. The smallest p that n differences can give is 2^(1 - n).

    Args:
        differences: One a setting.

    Returns:
        In (0, 1]; 1 without differences.

    Source: Demsar, JMLR 7 (2006), Section 3.1.3.

    >>> signed_rank_p([1, 2, 3, 4, 5]), signed_rank_p([1, -2, 3, 4, 5]), signed_rank_p([0, 0])
    (0.0625, 0.1875, 1.0)
    """
    known = np.asarray([one for one in differences if one], dtype=np.float64)
    doubled = (2 * stats.rankdata(np.abs(known))).astype(int)  # halves of ties become whole numbers
    smaller = min(int(doubled[known > 0].sum()), int(doubled[known < 0].sum()))
    chances = np.zeros(int(doubled.sum()) + 1)
    chances[0] = 1.0
    for rank in doubled:
        moved = np.concatenate([np.zeros(rank), chances[: len(chances) - rank]])
        chances = (chances + moved) / 2
    return min(1.0, 2 * float(chances[: smaller + 1].sum()))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values adjusted so that all tests together err with the chance that one of them is allowed.

    With the m values in ascending order: p'_(i) = max over j <= i of min(1, (m - j + 1) p_(j)).

    Args:
        p_values: In [0, 1], in any order.

    Returns:
        Adjusted ones, in the same order.

    Source: Holm, Scandinavian Journal of Statistics 6 (1979).

    >>> holm([0.03, 0.01, 0.04])
    [0.06, 0.03, 0.06]
    """
    count, largest = len(p_values), 0.0
    adjusted = [0.0] * count
    for position, place in enumerate(sorted(range(count), key=lambda one: p_values[one])):
        largest = max(largest, min(1.0, (count - position) * p_values[place]))
        adjusted[place] = largest
    return adjusted
