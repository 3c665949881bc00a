import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motley.errors import InvalidInput
from motley.functional.averaging import add_state, average_states, shares

# Worked numbers of R6 in server_methods.md, section 0.
BN_N = [30, 10]
BN_STATES = [
    {"mean": [0.0, 2.0], "var": [1.0, 4.0], "batches": 12},
    {"mean": [4.0, -2.0], "var": [2.0, 0.5], "batches": 7},
]


def bn_states():
    return [{key: torch.tensor(value) for key, value in state.items()} for state in BN_STATES]


def random_state(seed):
    draw = torch.Generator().manual_seed(seed)
    return {
        "weight": torch.randn(3, 2, generator=draw),
        "half": torch.randn(4, generator=draw).half(),
        "running_var": torch.rand(2, dtype=torch.float64, generator=draw),
        "num_batches_tracked": torch.randint(0, 99, (), generator=draw),
        "flag": torch.rand(2, generator=draw) < 0.5,
    }


def test_batch_norm_buffers_are_averaged_and_counters_keep_the_maximum():
    found = average_states(bn_states(), shares(BN_N))
    assert found["mean"].tolist() == [1.0, 1.0]
    assert found["var"].tolist() == [1.25, 3.125]
    assert found["batches"].item() == 12
    assert found["batches"].dtype == torch.int64


@given(seed=st.integers(0, 2**31))
def test_one_state_returns_itself_bit_for_bit(seed):
    state = random_state(seed)
    found = average_states([state], [1.0])
    assert list(found) == list(state)
    for key, value in state.items():
        assert found[key].dtype == value.dtype
        assert found[key].shape == value.shape
        assert torch.equal(found[key], value)
        assert found[key].data_ptr() != value.data_ptr()


@given(seed=st.integers(0, 2**31), number=st.integers(1, 5))
def test_the_mean_is_summed_in_the_given_order(seed, number):
    states = [random_state(seed + k) for k in range(number)]
    weights = shares([k + 1 for k in range(number)])
    before = [{key: value.clone() for key, value in state.items()} for state in states]
    found = average_states(states, weights)
    expected = weights[0] * states[0]["weight"]
    for state, weight in zip(states[1:], weights[1:], strict=True):
        expected = expected + weight * state["weight"]
    assert torch.equal(found["weight"], expected)
    assert found["num_batches_tracked"] == max(int(state["num_batches_tracked"]) for state in states)
    for state, copy in zip(states, before, strict=True):
        assert all(torch.equal(state[key], copy[key]) for key in copy)


def test_a_stream_gives_the_same_average():
    states, weights = bn_states(), shares(BN_N)
    total = {}
    for state, weight in zip(states, weights, strict=True):
        total = add_state(total, state, weight)
    whole = average_states(states, weights)
    assert all(torch.equal(total[key], whole[key]) for key in whole)


def test_no_gradient_is_kept():
    parameter = torch.nn.Parameter(torch.ones(2))
    assert not average_states([{"w": parameter}], [1.0])["w"].requires_grad


def test_missing_and_misshapen_entries_are_named():
    first = {"a": torch.ones(2), "b": torch.ones(1)}
    with pytest.raises(InvalidInput, match=r"the first state has the entry 'b', which state 1 lacks"):
        average_states([first, {"a": torch.ones(2)}], [0.5, 0.5])
    with pytest.raises(InvalidInput, match=r"state 2 has the entry 'c', which the first state lacks"):
        average_states([first, first, {**first, "c": torch.ones(1)}], [0.25, 0.25, 0.5])
    with pytest.raises(InvalidInput, match=r"'a' has shape \(3,\) in state 1 and \(2,\) in the first state"):
        average_states([first, {**first, "a": torch.ones(3)}], [0.5, 0.5])
    with pytest.raises(InvalidInput, match="'b'"):
        add_state(first, {"a": torch.ones(2)}, 0.5)


@pytest.mark.parametrize("weights", [[0.5], [0.5, 0.6], [1.5, -0.5], [float("nan"), 0.5]])
def test_weights_that_are_no_shares_are_refused(weights):
    with pytest.raises(InvalidInput):
        average_states(bn_states(), weights)


@pytest.mark.parametrize("amounts", [[], [0, 0], [-1, 2], [float("nan"), 1.0], [float("inf"), 1.0]])
def test_c5_there_is_no_average_over_nothing(amounts):
    with pytest.raises(InvalidInput):
        shares(amounts)
    with pytest.raises(InvalidInput):
        average_states([], [])
