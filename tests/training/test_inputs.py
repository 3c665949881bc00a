import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motley.data.shards import Normalization
from motley.training.inputs import Augmentation, Normalizer


def pictures(n: int = 6, size: int = 16) -> torch.Tensor:
    return torch.rand(n, 2, size, size, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("shape", [(3, 2, 4, 5), (3, 2, 7)])
def test_inputs_are_normalised_by_channel(shape):
    x = torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    rule = Normalization(1 / 255, (0.5, 0.25), (0.5, 2.0))
    made = Normalizer.of(rule, x)(x)
    for channel in range(2):
        expected = (x[:, channel].double() / 255 - rule.mean[channel]) / rule.std[channel]
        torch.testing.assert_close(made[:, channel].double(), expected, rtol=0, atol=1e-6)
    assert made.dtype == torch.float32


def test_signals_without_statistics_stay_as_they_are():
    x = torch.randn(4, 2, 9)
    assert torch.equal(Normalizer.of(Normalization(1.0, (0.0, 0.0), (1.0, 1.0)), x)(x), x)


def test_no_augmentation_draws_nothing():
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    assert Augmentation.draw("none", 5, 16, generator) is None
    assert torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("kind", ["flip", "crop-flip"])
def test_the_same_sample_gets_the_same_change_in_every_batch_of_an_epoch(kind):
    x = pictures()
    change = Augmentation.draw(kind, 6, 16, torch.Generator().manual_seed(2))
    whole = change.apply(x, torch.arange(6))
    for index in ([0, 1, 2], [5, 3], [4]):
        assert torch.equal(change.apply(x[index], torch.tensor(index)), whole[index])
    assert not torch.equal(whole, x)


def test_a_shift_to_the_middle_of_the_padding_changes_nothing():
    x, reach = pictures(), 16 // 8
    still = Augmentation(torch.zeros(6, dtype=torch.bool), torch.full((6, 2), reach))
    assert torch.equal(still.apply(x, torch.arange(6)), x)


def test_a_flip_mirrors_left_and_right_and_a_crop_moves_the_padded_picture():
    x, reach = pictures(2), 2
    flipped = Augmentation(torch.tensor([True, False]), None).apply(x, torch.arange(2))
    assert torch.equal(flipped[0], x[0].flip(2))
    assert torch.equal(flipped[1], x[1])
    moved = Augmentation(torch.zeros(2, dtype=torch.bool), torch.tensor([[reach + 1, reach], [reach, 0]])).apply(
        x, torch.arange(2)
    )
    assert torch.equal(moved[0, :, :-1], x[0, :, 1:])  # one row up, a black row comes in below
    assert not moved[0, :, -1].any()
    assert torch.equal(moved[1, :, :, reach:], x[1, :, :, :-reach])
    assert not moved[1, :, :, :reach].any()


@given(seed=st.integers(0, 1000), size=st.integers(1, 40))
def test_a_crop_moves_by_at_most_an_eighth_of_the_picture(seed, size):
    change = Augmentation.draw("crop-flip", 50, size, torch.Generator().manual_seed(seed))
    assert 0 <= int(change.shift.min()) <= int(change.shift.max()) <= 2 * max(1, size // 8)
