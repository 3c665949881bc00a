"""Targets on a common proxy set: consensus of logits (FedMD), ensembles (FedDF), selected answers (MSFKD)."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import softmax

from motley.errors import InvalidInput

ROUNDING = 1e-9  # what lies on a threshold counts, whatever the rounding of the sums


def consensus(logits: Tensor, weights: Sequence[float] | None = None) -> Tensor:
    """Return the weighted mean of the clients' logits, f = sum_k c_k z_k / sum_k c_k.

    Args:
        logits: Shape (N, P, C), floating, N >= 1, in ascending client id.
        weights: c_k, one a client, >= 0; None: all 1.

    Returns:
        Shape (P, C), float64.

    Raises:
        InvalidInput: `logits` has another number of axes or no client, or the weights do not fit.

    Source: FedMD, Algorithm 1 (aggregate); FedDF, Eq. 3 (the mean inside of the softmax).

    >>> consensus(torch.tensor([[[1.0, 0.0]], [[3.0, 2.0]]])).tolist()
    [[2.0, 1.0]]
    """
    _check_stack(logits)
    amounts = [1.0] * len(logits) if weights is None else list(weights)
    if len(amounts) != len(logits) or min(amounts) < 0 or sum(amounts) <= 0:
        raise InvalidInput(f"{len(logits)} clients need as many weights, >= 0 and not all 0, not {amounts[:10]}")
    share = torch.tensor(amounts, dtype=torch.float64, device=logits.device) / sum(amounts)
    return (share.view(-1, 1, 1) * logits.double()).sum(dim=0)


def ensemble_probabilities(logits: Tensor, temperature: float) -> Tensor:
    """Return softmax(mean_j z_j / T): logits are averaged before the softmax.

    Args:
        logits: Shape (N, P, C), floating, N >= 1.
        temperature: T, > 0.

    Returns:
        Shape (P, C), float64, rows sum to 1.

    Raises:
        InvalidInput: As `consensus`, or T <= 0.

    Source: FedDF, Eq. 3.

    >>> ensemble_probabilities(torch.tensor([[[2.0, 0.0]], [[0.0, 2.0]]]), 1.0).tolist()
    [[0.5, 0.5]]
    """
    if temperature <= 0:
        raise InvalidInput(f"the temperature must be > 0, not {temperature}")
    return softmax(consensus(logits) / temperature, dim=1)


def entropies(probabilities: Tensor) -> Tensor:
    """Return the entropy of every prediction, -sum_c p_c log p_c, with 0 log 0 = 0.

    Args:
        probabilities: Shape (n, C), >= 0, rows sum to 1.

    Returns:
        Shape (n,), float64, in nats, 0..log C.

    Raises:
        InvalidInput: `probabilities` has another number of axes.

    Source: MSFKD (our reading), the client's selector.

    >>> entropies(torch.tensor([[1.0, 0.0], [0.5, 0.5]])).round(decimals=6).tolist()
    [0.0, 0.693147]
    """
    if probabilities.ndim != 2:
        raise InvalidInput(f"entropies need probabilities (n, C), not {tuple(probabilities.shape)}")
    p = probabilities.double()
    return torch.xlogy(p, p).sum(dim=1).abs()  # of a sum of numbers <= 0


def within_quantile(own: Tensor, proxy: Tensor, share: float) -> tuple[Tensor, float]:
    """Return which proxy samples are no more uncertain than a share of the client's own ones, and the threshold.

    Args:
        own: Entropies of its own samples, (n,), n >= 1.
        proxy: Entropies of the proxy samples, (P,).
        share: Quantile of `own` that is still answered, 0..1; between two samples it is interpolated.

    Returns:
        Shape (P,), bool: the entropy is at most the threshold; and the threshold.

    Raises:
        InvalidInput: There is no own sample, or the share is outside of 0..1.

    Source: MSFKD (our reading), the client's selector.

    >>> within_quantile(torch.tensor([0.1, 0.3]), torch.tensor([0.2, 0.21]), 0.5)[0].tolist()
    [True, False]
    """
    threshold = _quantile(own, share)
    return proxy.double() <= threshold + ROUNDING, threshold


def above_quantile(own: Tensor, proxy: Tensor, share: float) -> tuple[Tensor, float]:
    """Return which proxy samples have a larger value than a share of the client's own ones, and the threshold.

    Args:
        own: Values of its own samples, (n,), n >= 1, for example density ratios.
        proxy: Values of the proxy samples, (P,).
        share: Quantile of `own` that must be exceeded, 0..1.

    Returns:
        Shape (P,), bool, and the threshold.

    Raises:
        InvalidInput: As `within_quantile`.

    Source: MSFKD (our reading), selector `kulsif`.

    >>> above_quantile(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.5, 1.6]), 0.25)[0].tolist()
    [False, True]
    """
    threshold = _quantile(own, share)
    return proxy.double() > threshold, threshold


def selected_mean(probabilities: Tensor, answered: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean prediction over those who answer, e(x), and how many they are.

    Args:
        probabilities: Shape (N, P, C), floating; rows that are not answered are not read.
        answered: Shape (N, P), bool.

    Returns:
        Shape (P, C), float64, NaN where nobody answers; and shape (P,), int64.

    Raises:
        InvalidInput: The shapes do not fit.

    Source: MSFKD (our reading), the ensemble.

    >>> said = torch.tensor([[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]])
    >>> mean, number = selected_mean(said, torch.tensor([[True, False], [True, False]]))
    >>> mean.tolist(), number.tolist()
    ([[0.5, 0.5], [nan, nan]], [2, 0])
    """
    _check_stack(probabilities)
    if answered.shape != probabilities.shape[:2]:
        raise InvalidInput(f"{tuple(answered.shape)} answers do not fit predictions {tuple(probabilities.shape)}")
    number = answered.sum(dim=0)
    total = probabilities.double().masked_fill(~answered.unsqueeze(2), 0.0).sum(dim=0)
    return (total / number.unsqueeze(1)).masked_fill((number == 0).unsqueeze(1), torch.nan), number


def unambiguous(mean: Tensor, ambiguity: float) -> Tensor:
    """Return which samples have a mean prediction near enough to one class.

    |e - onehot(argmax e)|_1 = 2 (1 - max e) must be at most `ambiguity`; samples without any answer are left out.

    Args:
        mean: e, shape (P, C), rows sum to 1 or are NaN.
        ambiguity: Largest distance, 0 (certain) to 2 (anything).

    Returns:
        Shape (P,), bool.

    Raises:
        InvalidInput: `mean` has another number of axes.

    Source: MSFKD (our reading), the server's selector.

    >>> unambiguous(torch.tensor([[0.9, 0.1], [0.5, 0.5], [torch.nan, torch.nan]]), 0.5).tolist()
    [True, False, False]
    """
    return ambiguities(mean) <= ambiguity + ROUNDING  # NaN is not


def ambiguities(mean: Tensor) -> Tensor:
    """Return |e - onehot(argmax e)|_1 of every mean prediction.

    Args:
        mean: e, shape (P, C), rows sum to 1 or are NaN.

    Returns:
        Shape (P,), float64, 0..2, NaN where e is.

    Raises:
        InvalidInput: `mean` has another number of axes.

    Source: MSFKD (our reading), the server's selector.

    >>> ambiguities(torch.tensor([[0.75, 0.25]])).tolist()
    [0.5]
    """
    if mean.ndim != 2:
        raise InvalidInput(f"mean predictions must have the shape (P, C), not {tuple(mean.shape)}")
    return 2 * (1 - mean.double().max(dim=1).values)


def _quantile(own: Tensor, share: float) -> float:
    if own.ndim != 1 or not len(own) or not 0 <= share <= 1:
        raise InvalidInput(
            f"a threshold needs at least one own value and a share in 0..1, not {tuple(own.shape)} and {share}"
        )
    return torch.quantile(own.double(), share).item()


def _check_stack(values: Tensor) -> None:
    if values.ndim != 3 or not len(values):
        raise InvalidInput(
            f"what clients say of the proxy has the shape (N, P, C) with N >= 1, not {tuple(values.shape)}"
        )
