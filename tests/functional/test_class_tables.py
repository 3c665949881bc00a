import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motley.errors import InvalidInput
from motley.functional.class_tables import merge_means, pack_rows, unpack_rows
from motley.functional.prototypes import class_prototypes, class_sums

from . import server_numbers as sheet
from .closeness import assert_near, float64


def fedproto_tables():
    parts = [
        class_sums(float64(z), torch.tensor(y), 3) for z, y in ((sheet.pr_zA, sheet.pr_yA), (sheet.pr_zB, sheet.pr_yB))
    ]
    return [class_prototypes(*part) for part in parts], [counts for _, counts in parts]


def test_fedproto_uniform_and_samples():
    tables, counts = fedproto_tables()
    assert_near(merge_means(tables), sheet.pr_uniform)
    assert_near(merge_means(tables, counts), sheet.pr_samples)


def test_the_prototypes_of_fedproto_are_those_of_fedre():
    for table, expected in zip(fedproto_tables()[0], sheet.re_protos, strict=True):
        assert_near(table, sheet.rows(expected))


def test_fd_global_and_holders():
    tables = [float64(sheet.rows(one)) for one in sheet.fd_means]
    assert_near(merge_means(tables), sheet.fd_global)
    assert sum(~table.isnan().any(dim=1) for table in tables).tolist() == sheet.fd_holders


def test_fd_teachers_are_the_means_of_the_others():
    tables = [float64(sheet.rows(one)) for one in sheet.fd_means]
    assert_near(merge_means(tables[1:]), sheet.rows(sheet.fd_teacher_client0))
    assert_near(merge_means([tables[0], tables[2]]), sheet.rows(sheet.fd_teacher_client1))


def random_tables(seed: int, clients: int = 3):
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 4, (clients, 5), generator=generator)
    tables = torch.randn(clients, 5, 2, dtype=torch.float64, generator=generator)
    return list(tables.masked_fill((counts == 0)[:, :, None], torch.nan)), list(counts)


@given(seed=st.integers(0, 2**31), weighted=st.booleans())
def test_the_mean_is_that_of_plain_loops(seed, weighted):
    tables, counts = random_tables(seed)
    made = merge_means(tables, counts if weighted else None)
    for label in range(5):
        own = [
            (table[label], int(n[label]) if weighted else 1)
            for table, n in zip(tables, counts, strict=True)
            if n[label]
        ]
        if own:
            expected = sum(n * row for row, n in own) / sum(n for _, n in own)
            torch.testing.assert_close(made[label], expected, rtol=0, atol=1e-12)
        else:
            assert bool(made[label].isnan().all())


@given(seed=st.integers(0, 2**31), order=st.permutations(range(5)))
def test_identity_15_renaming_classes_permutes_the_means(seed, order):
    tables, counts = random_tables(seed)
    renamed = merge_means([table[list(order)] for table in tables], [n[list(order)] for n in counts])
    torch.testing.assert_close(renamed, merge_means(tables, counts)[list(order)], rtol=0, atol=0, equal_nan=True)


@given(seed=st.integers(0, 2**31), factor=st.integers(1, 1000))
def test_identities_11_and_12_equal_counts_are_no_counts_and_a_factor_changes_nothing(seed, factor):
    tables, counts = random_tables(seed)
    equal = [factor * (n > 0) for n in counts]
    assert torch.allclose(merge_means(tables, equal), merge_means(tables), rtol=0, atol=1e-12, equal_nan=True)
    scaled = [factor * n for n in counts]
    assert torch.allclose(merge_means(tables, scaled), merge_means(tables, counts), rtol=0, atol=1e-12, equal_nan=True)


@given(seed=st.integers(0, 2**31))
def test_what_is_packed_is_unpacked_with_the_same_numbers(seed):
    table = random_tables(seed)[0][0].float()
    rows, mask = pack_rows(table, ~table.isnan().any(dim=1))
    assert rows.shape == (int(mask.sum()), 2)
    torch.testing.assert_close(unpack_rows(rows, mask), table, rtol=0, atol=0, equal_nan=True)


def test_a_row_that_is_not_finite_is_sent_and_not_called_absent():
    rows, mask = pack_rows(torch.tensor([[torch.nan, 1.0], [2.0, 3.0]]), torch.tensor([True, True]))
    assert bool(mask.all())
    assert bool(rows.isnan().any())


def test_a_holder_without_weight_gives_no_mean():
    table = torch.ones(1, 2)
    assert bool(merge_means([table], [torch.zeros(1)]).isnan().all())


@pytest.mark.parametrize(
    "call",
    [
        lambda: merge_means([]),
        lambda: merge_means([torch.zeros(2, 3), torch.zeros(2, 4)]),
        lambda: merge_means([torch.zeros(2, 3)], [torch.ones(3)]),
        lambda: merge_means([torch.zeros(2, 3)], []),
        lambda: pack_rows(torch.zeros(2, 3), torch.ones(3, dtype=torch.bool)),
        lambda: unpack_rows(torch.zeros(2, 3), torch.tensor([True, False])),
    ],
)
def test_shapes_that_do_not_fit_are_refused(call):
    with pytest.raises(InvalidInput):
        call()
