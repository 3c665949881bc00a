"""Weighted averages of model states (rule R6 of the server methods: batch-norm buffers included)."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from motley.errors import InvalidInput

State = Mapping[str, Tensor]


def shares(amounts: Sequence[float]) -> list[float]:
    """Return amounts / sum: weights that sum to 1.

    Args:
        amounts: >= 0, for example the training samples of each client.

    Returns:
        As many shares.

    Raises:
        InvalidInput: An amount is negative or not finite, or all are 0: there is no average over nothing.

    >>> shares([30, 10])
    [0.75, 0.25]
    """
    if any(not 0 <= amount < math.inf for amount in amounts):
        raise InvalidInput(f"amounts must be finite and >= 0, not {list(amounts)[:10]}")
    total = sum(amounts)
    if total == 0:
        raise InvalidInput("there is nothing to average: no state, or every weight is 0")
    return [amount / total for amount in amounts]


def average_states(states: Sequence[State], weights: Sequence[float]) -> dict[str, Tensor]:
    """Return the weighted mean of states.

    Floating entries (parameters, running means and variances) get the weighted mean, summed in the given order and in
    float32 or better; integer entries (batch counters) the maximum. One state with weight 1 returns itself bit for bit.

    Args:
        states: In ascending client id, equal keys and shapes.
        weights: One for each state, >= 0, sum 1.

    Returns:
        A new state with the dtypes of the first; it shares no memory with the inputs, which are not changed.

    Raises:
        InvalidInput: Keys or shapes disagree (the sentence names the key and the position of the state), the number of
            weights differs, or they do not sum to 1 within 1e-6.

    Source: rule R6.

    >>> average_states([{"w": torch.tensor([0.0])}, {"w": torch.tensor([4.0])}], [0.75, 0.25])["w"].tolist()
    [1.0]
    """
    if len(states) != len(weights):
        raise InvalidInput(f"{len(states)} states need as many weights, not {len(weights)}")
    if not abs(math.fsum(weights) - 1) <= 1e-6 or min(weights) < 0:
        raise InvalidInput(f"the weights of an average must be >= 0 and sum to 1, not to {math.fsum(weights)}")
    total: dict[str, Tensor] = {}
    for position, (state, weight) in enumerate(zip(states, weights, strict=True)):
        if position:
            _check_alike(states[0], state, position)
        total = add_state(total, state, weight)
    return {key: value.to(states[0][key].dtype) for key, value in total.items()}


def add_state(total: State, state: State, weight: float) -> dict[str, Tensor]:
    """Return a running average with one more state, for states that arrive as a stream.

    Args:
        total: So far; empty at the start.
        state: The next one, in ascending client id.
        weight: Its share of the whole average.

    Returns:
        A new running average: floating entries in float32 or better, integer entries the maximum.

    Raises:
        InvalidInput: Keys or shapes disagree with those of `total`.

    Source: rule R6.

    >>> add_state(add_state({}, {"n": torch.tensor(3)}, 0.5), {"n": torch.tensor(7)}, 0.5)["n"].item()
    7
    """
    if total:
        _check_alike(total, state, None)
    return {key: _add_entry(total.get(key), value.detach(), weight) for key, value in state.items()}


def _add_entry(total: Tensor | None, value: Tensor, weight: float) -> Tensor:
    if not value.is_floating_point():
        return value.clone() if total is None else torch.maximum(total, value)
    term = weight * value.to(torch.promote_types(value.dtype, torch.float32))
    return term if total is None else total + term


def _check_alike(first: State, state: State, position: int | None) -> None:
    name = "the added state" if position is None else f"state {position}"
    for key in [*first, *state]:
        if key not in state or key not in first:
            owner, other = (name, "the first state") if key in state else ("the first state", name)
            raise InvalidInput(f"states cannot be averaged: {owner} has the entry {key!r}, which {other} lacks")
        if first[key].shape != state[key].shape:
            raise InvalidInput(
                f"states cannot be averaged: {key!r} has shape {tuple(state[key].shape)} in {name} and "
                f"{tuple(first[key].shape)} in the first state"
            )
