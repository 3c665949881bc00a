import pytest
import torch

from motley.errors import InvalidInput
from motley.functional.shuffling import shuffled_batches


def test_every_epoch_uses_every_row_once_in_an_order_of_its_own():
    made = list(shuffled_batches(23, 10, 3, torch.Generator().manual_seed(1)))
    assert [len(one) for one in made] == [10, 10, 3] * 3
    epochs = [torch.cat(made[start : start + 3]).tolist() for start in (0, 3, 6)]
    assert all(sorted(epoch) == list(range(23)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_without_rows_there_is_no_batch():
    assert not list(shuffled_batches(0, 10, 3, torch.Generator()))


def test_a_batch_of_nothing_is_refused():
    with pytest.raises(InvalidInput):
        list(shuffled_batches(3, 0, 1, torch.Generator()))
