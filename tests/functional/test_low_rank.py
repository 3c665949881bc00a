"""Compression by singular directions: the worked numbers of FedKD's sheet (section 8), and what must always hold."""

import pytest
import torch
from torch import Tensor

from motley.errors import InvalidInput
from motley.functional.low_rank import compress, energy_at, expand, singular_parts

M = [[2.0, 0.0, 1.0], [1.0, 3.0, 0.0], [0.0, 1.0, 2.0], [1.0, 1.0, 1.0]]
SIGMA = [3.882601958303, 2.246506155841, 1.696647319025]
ENERGY = [0.655417302896, 0.87484295108, 1.0]
RANK = {0.6: 1, 0.8: 2, 0.9: 3}
REC_E08 = [
    [1.230957559727, 0.163947202569, 1.581563646012],
    [0.777130713855, 3.04751206707, 0.168537739723],
    [1.066967016412, 0.772540176701, 1.193140461768],
    [0.981080615834, 1.004033301604, 1.014307176639],
]
SCHEDULE = {1: 0.95006, 250: 0.965, 500: 0.98}
SHAPES = {"conv1": (32, 3, 5, 5), "conv2": (64, 32, 5, 5), "fc1": (512, 1600), "fc": (10, 512)}
RANKS = {"conv1": 8, "conv2": 16, "fc1": 64, "fc": 4}
PAYS = {"conv1": 22, "conv2": 59, "fc1": 387, "fc": 9}
SCALARS = 152_646


def matrix() -> Tensor:
    return torch.tensor(M, dtype=torch.float64)


def of_rank(shape: tuple[int, ...], rank: int) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    rest = int(torch.tensor(shape[1:]).prod())
    left, right = (torch.randn(size, rank, generator=generator, dtype=torch.float64) for size in (shape[0], rest))
    return (left @ right.T).view(shape)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("energy", "rank"), [*RANK.items(), (1.0, 3)])
def test_the_rank_of_the_sheet(energy, rank, turned):
    held = matrix().T if turned else matrix()
    left, values, right = singular_parts(held, energy)
    torch.testing.assert_close(values, torch.tensor(SIGMA[:rank], dtype=torch.float64), rtol=0, atol=1e-9)
    for side in (left, right):
        torch.testing.assert_close(side.T @ side, torch.eye(rank, dtype=torch.float64), rtol=0, atol=1e-12)
    if rank == 3:
        torch.testing.assert_close((left * values) @ right.T, held, rtol=0, atol=1e-12)


def test_the_shares_of_energy_of_the_sheet():
    _, values, _ = singular_parts(matrix(), 1.0)
    shares = values.square().cumsum(0) / values.square().sum()
    torch.testing.assert_close(shares, torch.tensor(ENERGY, dtype=torch.float64), rtol=0, atol=1e-9)


def test_the_reconstruction_of_the_sheet():
    left, values, right = singular_parts(matrix(), 0.8)
    expected = torch.tensor(REC_E08, dtype=torch.float64)
    torch.testing.assert_close((left * values) @ right.T, expected, rtol=0, atol=1e-9)


def test_it_is_what_a_singular_value_decomposition_gives():
    held = torch.randn(20, 33, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    u, sigma, vh = torch.linalg.svd(held, full_matrices=False)
    for energy in (0.3, 0.7, 0.95, 1.0):
        share = sigma.square().cumsum(0) / sigma.square().sum()
        rank = next(i for i in range(20) if share[i] >= energy - 1e-12) + 1
        left, values, right = singular_parts(held, energy)
        assert len(values) == rank
        torch.testing.assert_close((left * values) @ right.T, (u[:, :rank] * sigma[:rank]) @ vh[:rank])


def test_a_matrix_of_low_rank_is_kept_whole_at_energy_1():
    held = of_rank((12, 30), 3)
    left, values, right = singular_parts(held, 1.0)
    assert len(values) == 3
    torch.testing.assert_close((left * values) @ right.T, held)


@pytest.mark.parametrize("energy", [0.0, -0.1, 1.01])
def test_a_share_of_energy_outside_of_0_to_1_is_refused(energy):
    with pytest.raises(InvalidInput, match="a share of energy"):
        singular_parts(matrix(), energy)


@pytest.mark.parametrize(("round", "energy"), SCHEDULE.items())
def test_the_schedule_of_the_sheet(round, energy):
    assert energy_at(round, first=0.95, last=0.98, rounds=500) == pytest.approx(energy, abs=1e-12)


def test_the_schedule_ends_where_it_ends():
    assert energy_at(900, first=0.95, last=0.98, rounds=500) == energy_at(500, first=0.95, last=0.98, rounds=500)


def test_the_ledger_of_the_sheet():
    state = {f"{name}.weight": of_rank(shape, RANKS[name]) for name, shape in SHAPES.items()}
    state |= {f"{name}.bias": torch.randn(shape[0], dtype=torch.float64) for name, shape in SHAPES.items()}
    packed = compress(state, 1.0)
    assert sum(tensor.numel() for tensor in packed.values()) == SCALARS
    back = expand(packed, state)
    for name, tensor in state.items():
        torch.testing.assert_close(back[name], tensor)


@pytest.mark.parametrize("name", ["conv1", "fc"])
def test_compression_is_left_out_where_it_does_not_pay(name):
    for rank, paid in ((PAYS[name], True), (PAYS[name] + 1, False)):
        packed = compress({"w": of_rank(SHAPES[name], rank)}, 1.0)
        assert (list(packed) != ["w"]) is paid
        assert sum(tensor.numel() for tensor in packed.values()) <= of_rank(SHAPES[name], rank).numel()


def test_pitfall_a_matrix_whose_energy_only_the_full_rank_reaches_is_not_zeroed():
    state = {"w": torch.eye(10)}
    torch.testing.assert_close(expand(compress(state, 0.95), state)["w"], torch.eye(10))


def test_pitfall_a_vector_of_three_numbers_is_a_vector():
    state = {"bias": torch.tensor([1.0, 2.0, 3.0]), "steps": torch.tensor(7)}
    packed = compress(state, 0.95)
    assert packed.keys() == state.keys()
    back = expand(packed, state)
    assert torch.equal(back["bias"], state["bias"])
    assert back["steps"].item() == 7


def test_a_zero_matrix_costs_nothing():
    state = {"w": torch.zeros(8, 2, 3, 3), "b": torch.zeros(8)}
    packed = compress(state, 0.95)
    assert list(packed) == ["b"]
    assert torch.equal(expand(packed, state)["w"], state["w"])


def test_what_is_not_finite_travels_raw_for_the_receiver_to_refuse():
    state = {"w": torch.full((8, 8), torch.nan)}
    assert torch.isnan(compress(state, 0.95)["w"]).all()


@pytest.mark.parametrize(
    ("packed", "words"),
    [
        ({"w|left": torch.ones(8, 1), "w|values": torch.ones(1)}, "lacks the entry 'w'"),
        ({"w|left": torch.ones(8, 1), "w|values": torch.ones(1), "w|right": torch.ones(7, 1)}, "do not make a matrix"),
        ({"w": torch.ones(8, 7)}, "of shape"),
        ({"v": torch.ones(1)}, "which the model does not have"),
    ],
)
def test_updates_that_do_not_fit_are_refused(packed, words):
    with pytest.raises(InvalidInput, match=words):
        expand(packed, {"w": torch.zeros(8, 8)})


def test_a_missing_vector_is_refused():
    with pytest.raises(InvalidInput, match="lacks the entry 'b'"):
        expand({}, {"b": torch.zeros(3)})
