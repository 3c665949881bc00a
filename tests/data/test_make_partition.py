import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.data import dirichlet
from motley.data.partition import Partition, default_min_samples, make_partition
from motley.data.pathological import draw_pathological
from motley.errors import InvalidInput, InvalidPartition

TEN = np.repeat(np.arange(10), 6000)


def assert_every_index_once(partition: Partition, samples: int) -> None:
    assert np.array_equal(np.sort(np.concatenate(partition.indices)), np.arange(samples))


@st.composite
def pools(draw):
    """Return labels of 2 to 8 classes with 0 to 120 samples each, in any order."""
    sizes = draw(st.lists(st.integers(0, 120), min_size=2, max_size=8).filter(lambda sizes: sum(sizes) >= 40))
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return np.random.default_rng(draw(st.integers(0, 99))).permutation(labels), len(sizes)


@settings(max_examples=60, deadline=None)
@given(
    pool=pools(),
    alpha=st.floats(0.2, 1e4),
    clients=st.integers(1, 8),
    seed=st.integers(0, 2**40),
    kind=st.sampled_from(["iid", "dirichlet", "dirichlet-capped"]),
)
def test_every_index_is_given_exactly_once(pool, alpha, clients, seed, kind):
    labels, num_classes = pool
    scheme = kind if kind == "iid" else f"{kind}:{alpha!r}"
    arguments = {"clients": clients, "num_classes": num_classes, "seed": seed, "min_samples": 1}
    partition = make_partition(labels, scheme, **arguments)
    assert_every_index_once(partition, len(labels))
    assert min(len(index) for index in partition.indices) >= 1
    assert partition.digest() == make_partition(labels, scheme, **arguments).digest()


@settings(max_examples=60, deadline=None)
@given(classes=st.integers(2, 12), clients=st.integers(1, 15), k=st.integers(1, 12), seed=st.integers(0, 1000))
def test_a11_random_pathological_shares_classes_and_samples_evenly(classes, clients, k, seed):
    labels = np.repeat(np.arange(classes), np.random.default_rng(seed).integers(20, 60, classes))
    arguments = {"clients": clients, "num_classes": classes, "seed": seed, "min_samples": 1}
    if k > classes or clients * k < classes:
        with pytest.raises(InvalidPartition):
            make_partition(labels, f"pathological-random:{k}", **arguments)
        return
    partition = make_partition(labels, f"pathological-random:{k}", **arguments)
    assert_every_index_once(partition, len(labels))
    counts = partition.counts(labels, classes)
    assert ((counts > 0).sum(axis=1) == k).all()
    owners = (counts > 0).sum(axis=0)
    assert owners.max() - owners.min() <= 1
    for label in range(classes):
        parts = counts[counts[:, label] > 0, label]
        assert parts.max() - parts.min() <= 1


@pytest.mark.parametrize("scheme", ["pathological:1", "pathological-random:1"])
def test_a11_a_class_of_103_samples_gives_four_owners_26_26_26_25(scheme):
    labels = np.zeros(103, np.int64)
    partition = make_partition(labels, scheme, clients=4, num_classes=1, seed=0, balance=True)
    assert sorted(len(index) for index in partition.indices) == [25, 26, 26, 26]


def test_a11_unequal_pieces_are_drawn_and_the_rest_goes_to_the_last_owner():
    # The sheet's exact procedure: V13 fixes that the last owner keeps what is left, so no cap is put on it.
    partition = make_partition(TEN, "pathological:2", clients=20, num_classes=10, seed=1)
    assert_every_index_once(partition, len(TEN))
    counts = partition.counts(TEN, 10)
    assert ((counts > 0).sum(axis=1) == 2).all()
    assert ((counts > 0).sum(axis=0) == 4).all()


@pytest.mark.parametrize("scheme", ["pathological", "pathological-random"])
def test_a11_impossible_numbers_of_classes_are_named(scheme):
    with pytest.raises(InvalidPartition, match=r"11 classes per client.* only 10"):
        make_partition(TEN, f"{scheme}:11", clients=20, num_classes=10, seed=1)
    with pytest.raises(InvalidPartition, match=r"4 clients with 2 classes each cannot hold all 10"):
        make_partition(TEN, f"{scheme}:2", clients=4, num_classes=10, seed=1)


@settings(max_examples=200, deadline=None)
@given(classes=st.integers(1, 12), clients=st.integers(1, 24), k=st.integers(1, 12))
def test_pathological_in_order_works_exactly_for_multiples_of_classes_over_k(classes, clients, k):
    by_class = np.split(np.arange(classes * 30), classes)
    fits = k <= classes and clients * k >= classes and classes % k == 0 and clients % (classes // k) == 0
    try:
        rng = np.random.RandomState(0)
        given_out = draw_pathological(list(by_class), k, rng, clients=clients, least=1, balance=True)
    except InvalidPartition:
        assert not fits
    else:
        assert fits
        assert np.array_equal(np.sort(np.concatenate(given_out)), np.arange(classes * 30))


def test_the_smallest_drawn_piece_is_a_tenth_of_the_mean_or_a_share_of_the_minimum():
    # 60 samples, 4 owners: per = 15. least 100 over 10 classes asks for pieces from 10 on; without it from 1 on.
    by_class = list(np.split(np.arange(600), 10))
    for least, low in ((100, 10), (0, 1)):
        given_out = draw_pathological(by_class, 2, np.random.RandomState(0), clients=20, least=least, balance=False)
        counts = np.stack([np.bincount(index // 60, minlength=10) for index in given_out])
        drawn = [counts[counts[:, label] > 0, label][:-1] for label in range(10)]
        assert np.min(drawn) == low
        assert np.max(drawn) < 15


def test_pathological_names_the_numbers_of_clients_that_fit():
    labels = np.repeat(np.arange(6), 100)
    with pytest.raises(InvalidPartition, match=r"a multiple of 3 clients, or pathological-random:2"):
        make_partition(labels, "pathological:2", clients=20, num_classes=6, seed=1)


def test_pathological_draws_again_for_a_minimum_of_the_user():
    arguments = {"clients": 20, "num_classes": 10, "seed": 1}
    free = make_partition(TEN, "pathological:2", **arguments)
    kept = make_partition(TEN, "pathological:2", min_samples=1000, **arguments)
    assert min(len(index) for index in free.indices) < 1000 <= min(len(index) for index in kept.indices)
    assert kept.tries > 1
    with pytest.raises(InvalidPartition, match=r"smallest client [1-9]\d+ samples \(draws: 1000\).* asks for 2900"):
        make_partition(TEN, "pathological:2", min_samples=2900, **arguments)


def test_a1_more_samples_asked_for_than_there_are_is_an_error_at_once():
    with pytest.raises(InvalidPartition, match=r"1000 clients with at least 70 samples each need 70000.* 60000"):
        make_partition(TEN, "dirichlet:0.1", clients=1000, num_classes=10, seed=1, min_samples=70)


@pytest.mark.parametrize("scheme", ["dirichlet:0.1", "dirichlet-capped:0.1"])
def test_a1_a_partition_that_no_draw_reaches_ends_with_what_was_reached(scheme, monkeypatch):
    monkeypatch.setattr(dirichlet, "MAX_TRIES", 20)
    message = r"in 20 draws the smallest client never had more than 0 samples.* asks for 40; raise alpha"
    for _ in range(2):
        with pytest.raises(InvalidPartition, match=message):
            make_partition(TEN, scheme, clients=1000, num_classes=10, seed=1, min_samples=40)


def test_a1_the_search_ends_after_its_time(monkeypatch):
    monkeypatch.setattr(dirichlet, "MAX_SECONDS", 0.1)
    start = time.monotonic()
    with pytest.raises(InvalidPartition, match="min_samples"):
        make_partition(TEN, "dirichlet:0.1", clients=1000, num_classes=10, seed=1, min_samples=40)
    assert time.monotonic() - start < 3


def test_a1_a_tiny_alpha_is_an_error_and_not_a_division_by_zero():
    with pytest.raises(InvalidPartition, match="alpha"):
        make_partition(TEN, "dirichlet:1e-9", clients=20, num_classes=10, seed=1)


def test_the_default_minimum_follows_the_sheet_and_stays_within_reach_of_small_sets():
    assert default_min_samples(60_000, 20) == 40
    assert default_min_samples(1797, 20) == 10  # 89.85 a client; 40 takes over 400 draws at alpha 0.1
    assert default_min_samples(1797, 200) == 4  # 8.985 / 2
    assert default_min_samples(10, 10) == 1


@pytest.mark.parametrize(("labels", "clients"), [([0, 1], 0), ([0, 2], 1), ([-1, 1], 1)])
def test_labels_out_of_range_are_never_lost_in_silence(labels, clients):
    with pytest.raises(InvalidInput, match=r"labels in 0..1"):
        make_partition(np.array(labels), "iid", clients=clients, num_classes=2, seed=1)


def test_iid_gives_equal_sizes_and_all_classes():
    partition = make_partition(TEN, "iid", clients=7, num_classes=10, seed=1)
    assert_every_index_once(partition, len(TEN))
    sizes = [len(index) for index in partition.indices]
    assert max(sizes) - min(sizes) <= 1
    assert (partition.counts(TEN, 10) > 700).all()


def test_another_seed_gives_another_partition():
    digests = {make_partition(TEN, "iid", clients=7, num_classes=10, seed=seed).digest() for seed in range(5)}
    assert len(digests) == 5


def test_column_makes_one_client_of_each_value_in_sorted_order():
    labels = np.array([0, 1, 0, 1, 0])
    columns = {"subject": np.array([30, 2, 30, 11, 2])}
    partition = make_partition(labels, "column:subject", clients=20, num_classes=2, seed=1, columns=columns)
    assert [index.tolist() for index in partition.indices] == [[1, 4], [3], [0, 2]]


def test_column_that_is_not_there_is_named_with_those_that_are():
    columns = {"user": np.zeros(3), "run": np.zeros(3)}
    with pytest.raises(InvalidPartition, match=r"column:subject.* its columns are run, user"):
        make_partition(np.zeros(3, int), "column:subject", clients=1, num_classes=1, seed=1, columns=columns)


def test_a_minimum_of_the_user_holds_for_columns_too():
    columns = {"user": np.array([1, 1, 2])}
    with pytest.raises(InvalidPartition, match=r"smallest client 1 samples.* asks for 2"):
        make_partition(
            np.zeros(3, int), "column:user", clients=1, num_classes=1, seed=1, columns=columns, min_samples=2
        )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("dirichlt:0.1", "did you mean 'dirichlet:ALPHA'"),
        ("dirichlet", "is written dirichlet:ALPHA"),
        ("dirichlet:0", "is written dirichlet:ALPHA"),
        ("dirichlet:nan", "is written dirichlet:ALPHA"),
        ("dirichlet:small", "is written dirichlet:ALPHA"),
        ("pathological:2.5", "is written pathological:K"),
        ("pathological:-1", "is written pathological:K"),
        ("pathological:", "is written pathological:K"),
        ("iid:3", "is written iid"),
        ("shared:2", "is written shared"),
        ("column:", "is written column:NAME"),
        ("", "dirichlet-capped:ALPHA, pathological:K, pathological-random:K, shared, column:NAME"),
    ],
)
def test_a_scheme_that_cannot_be_read_is_answered_with_the_forms(text, expected):
    with pytest.raises(InvalidPartition) as caught:
        make_partition(TEN, text, clients=20, num_classes=10, seed=1)
    assert expected in str(caught.value)


def test_a_partition_is_read_back_as_it_was_written(tmp_path: Path):
    partition = make_partition(TEN, "dirichlet:0.5", clients=20, num_classes=10, seed=4)
    partition.save(tmp_path / "partition.npz")
    again = Partition.load(tmp_path / "partition.npz")
    assert again.digest() == partition.digest()
    assert (again.scheme, again.seed, again.tries) == (partition.scheme, partition.seed, partition.tries)


class Trap:
    def __reduce__(self):
        return (pytest.fail, ("an object was unpickled",))


def test_a_file_that_is_no_partition_is_refused(tmp_path: Path):
    (tmp_path / "empty.npz").write_bytes(b"")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    partition = make_partition(TEN, "iid", clients=3, num_classes=10, seed=4).arrays()
    np.savez(tmp_path / "objects.npz", **(partition | {"scheme": np.array([Trap()], dtype=object)}))
    np.savez(tmp_path / "sizes.npz", **(partition | {"indices_sizes": np.array([1, 2, 3])}))
    np.savez(tmp_path / "tries.npz", **(partition | {"tries": np.array(0)}))
    for name in ("empty", "other", "objects", "sizes", "tries", "missing"):
        with pytest.raises(InvalidPartition, match=f"{name}.npz is not a partition file"):
            Partition.load(tmp_path / f"{name}.npz")
