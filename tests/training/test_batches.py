import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from motley.training.batches import batch_bounds, batches, epoch_order, num_used, order_digest


def test_a3_a_remainder_of_one_joins_the_batch_before_it():
    assert batch_bounds(257, 256) == [(0, 257)]
    assert batch_bounds(513, 256) == [(0, 256), (256, 513)]
    assert batch_bounds(258, 256) == [(0, 256), (256, 258)]
    assert batch_bounds(256, 256) == [(0, 256)]
    assert batch_bounds(5, 256) == [(0, 5)]
    assert batch_bounds(1, 256) == [(0, 1)]
    assert batch_bounds(3, 1) == [(0, 1), (1, 3)]


@given(n=st.integers(1, 600), size=st.integers(1, 300))
def test_a3_every_sample_is_used_exactly_once_per_epoch(n, size):
    order = epoch_order(n, torch.Generator().manual_seed(n))
    cut = list(batches(order, size))
    assert torch.equal(torch.cat(cut), order)
    assert sorted(order.tolist()) == list(range(n))
    lengths = [len(one) for one in cut]
    steps = math.ceil(n / size) - (n % size == 1 and n > size) - (size == 1 and n > 1)
    assert len(lengths) == steps
    assert max(lengths) <= size + 1
    assert n == 1 or min(lengths) > 1 or size == 1


def test_two_orders_have_one_digest_only_if_they_are_equal():
    orders = [torch.arange(5), torch.arange(5).flip(0)]
    assert order_digest(orders) == order_digest([torch.arange(5), torch.tensor([4, 3, 2, 1, 0])])
    assert order_digest(orders) != order_digest(orders[::-1])
    assert len(order_digest(orders)) == 16


def test_a_last_batch_that_is_not_full_can_be_dropped():
    assert batch_bounds(257, 256, "drop") == [(0, 256)]
    assert batch_bounds(512, 256, "drop") == [(0, 256), (256, 512)]
    assert batch_bounds(255, 256, "drop") == []
    assert num_used(873, 256, "drop") == 768  # client 10 of FedTopo's table: 105 of its 873 samples are never seen
    assert num_used(873, 256, "keep") == 873


@given(n=st.integers(1, 600), size=st.integers(2, 300))
def test_with_drop_all_batches_are_full_and_from_the_front_of_the_order(n, size):
    order = epoch_order(n, torch.Generator().manual_seed(n))
    cut = list(batches(order, size, "drop"))
    assert [len(one) for one in cut] == [size] * (n // size)
    assert not cut or torch.equal(torch.cat(cut), order[: n - n % size])


def test_without_shuffling_the_order_is_that_of_the_samples():
    assert epoch_order(5, torch.Generator(), shuffle=False).tolist() == [0, 1, 2, 3, 4]
