import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motley.errors import InvalidInput
from motley.functional.count_noise import (
    coarse_accuracies,
    draw_hidden_relations,
    fill_hidden_relations,
    laplace_counts,
    laplace_noise,
    noisy_counts,
    pass_probability,
)
from motley.functional.topology import PairSums, add_relations, pair_mask, pair_weights
from motley.functional.topology_wire import check_relations

from . import crad_numbers
from . import fedtopo_numbers as sheet
from .closeness import assert_near, float64


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_v11_noisy_counts():
    counts, noise = torch.tensor(sheet.N_TRUE), float64(sheet.NOISE)
    assert_near(noisy_counts(counts, noise), sheet.N_NOISY_DEFAULT)
    hidden = noisy_counts(counts, noise, hide_absent=True)
    assert_near(hidden, sheet.N_NOISY_HIDE)
    assert_near(pair_weights(hidden)[0, 2], sheet.W_NOISY_02)


def test_laplace_noise_has_its_distribution():
    # 200,000 draws: the mean has sd 0.0032 b, the mean size (b in theory) 0.0022 b; P(|x| > 2 b) = exp(-2).
    draws = laplace_noise(200_000, 3.0, generator())
    assert abs(float(draws.mean())) < 0.06
    assert abs(float(draws.abs().mean()) - 3) < 0.04
    assert abs(float((draws.abs() > 6).double().mean()) - 0.1353) < 0.004
    assert abs(float((draws > 0).double().mean()) - 0.5) < 0.006


def test_the_generator_alone_decides_the_noise():
    state = torch.random.get_rng_state()
    assert torch.equal(laplace_noise(5, 1.0, generator(4)), laplace_noise(5, 1.0, generator(4)))
    assert not torch.equal(laplace_noise(5, 1.0, generator(4)), laplace_noise(5, 1.0, generator(5)))
    assert torch.equal(torch.random.get_rng_state(), state)


@given(seed=st.integers(0, 2**31), held=st.lists(st.booleans(), min_size=2, max_size=7), data=st.data())
def test_hidden_relations_cannot_be_told_by_their_form(seed, held, data):
    counts = torch.tensor(held).long() * 9
    own = torch.rand(len(held), len(held), dtype=torch.float64, generator=generator(seed)).triu(1)
    own = (own + own.T).fill_diagonal_(1).masked_fill(~pair_mask(counts), torch.nan)
    noise = float64([data.draw(st.floats(-20, 20)) for _ in held])
    noisy = noisy_counts(counts, noise, hide_absent=True)
    hidden = draw_hidden_relations(own, generator(seed))
    found = fill_hidden_relations(own, noisy, hidden)
    check_relations(found, noisy)
    kept = pair_mask(counts) & pair_mask(noisy)
    assert torch.equal(found[kept], own[kept])
    add_relations(PairSums.zeros(len(held)), found, noisy)
    valid = own[~own.isnan() & ~torch.eye(len(held), dtype=torch.bool)]
    claimed = found[(pair_mask(noisy) & ~kept) & ~torch.eye(len(held), dtype=torch.bool)]
    if len(valid):
        assert torch.isin(claimed, valid).all()
    else:
        assert ((claimed >= 0.5) & (claimed <= 1)).all()


def test_hidden_relations_can_be_drawn_in_place():
    own = torch.full((3, 3), torch.nan, dtype=torch.float64)
    noisy = torch.tensor([1.0, 0.5, 0.0])
    expected = fill_hidden_relations(own, noisy, draw_hidden_relations(own, generator(2)))
    torch.testing.assert_close(fill_hidden_relations(own, noisy, generator(2)), expected, equal_nan=True)


def test_dp_pass_probabilities():
    assert_near(pass_probability(torch.tensor([0, 1, 2, 3, 10]), 1.0), crad_numbers.dp_pass)
    assert pass_probability(torch.tensor([0]), 1.0, min_support=0).item() == 1


def test_noised_counts_pass_as_often_as_computed():
    # 100,000 classes with 1 sample: P = 0.1839, sd 0.0012.
    counts = torch.ones(100_000, dtype=torch.int64)
    passed = float((laplace_counts(counts, 1.0, generator()) >= 2).double().mean())
    assert abs(passed - crad_numbers.dp_pass[1]) < 0.006


def test_accuracies_are_rounded_to_thirty_seconds():
    assert coarse_accuracies(torch.tensor([0.0, 0.4, 1.0])).tolist() == [0.0, 13 / 32, 1.0]


@pytest.mark.parametrize(
    "call",
    [
        lambda: laplace_noise(2, -1.0, generator()),
        lambda: laplace_noise(2, float("nan"), generator()),
        lambda: noisy_counts(torch.tensor([1, 2]), torch.tensor([0.5])),
        lambda: laplace_counts(torch.tensor([1]), 0.0, generator()),
        lambda: pass_probability(torch.tensor([1]), float("nan")),
    ],
)
def test_impossible_arguments_are_refused(call):
    with pytest.raises(InvalidInput):
        call()
