"""V12, the upload checks, and that every form is the exact inverse of its packing."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motley.errors import InvalidInput
from motley.functional.topology import (
    pair_mask,
    relations,
)
from motley.functional.topology_guidance import guidance
from motley.functional.topology_wire import (
    check_relations,
    download_size,
    pack_download,
    pack_guidance,
    pack_upload,
    unpack_download,
    unpack_guidance,
    unpack_upload,
    upload_size,
)

from . import fedtopo_numbers as sheet
from .closeness import assert_near, float64

SEEDS = st.integers(0, 2**31)
FORMS = st.sampled_from(["dense", "sparse", "half"])


def random_client(seed, num_classes=6):
    draw = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 9, (num_classes,), generator=draw) * (torch.rand(num_classes, generator=draw) < 0.6)
    prototypes = torch.rand(num_classes, 4, generator=draw) + 0.01
    matrices = []
    for _ in range(2):
        upper = torch.rand(num_classes, num_classes, dtype=torch.float64, generator=draw).triu(1)
        matrices.append((upper + upper.T).fill_diagonal_(1))
    return counts, relations(prototypes, counts), *matrices


@pytest.mark.parametrize(("key", "sizes"), sheet.SIZES.items())
def test_v12_sizes(key, sizes):
    num_classes, num_held, q = key
    found = (
        upload_size(num_classes, num_held, "dense"),
        download_size(num_classes, num_held, "dense", q=q),
        upload_size(num_classes, num_held, "sparse"),
        download_size(num_classes, num_held, "sparse", q=q),
        download_size(num_classes, num_held, "half", q=q),
        download_size(num_classes, num_held, "guidance", q=q),
    )
    assert found == sizes


def test_v12_sparse_upload_of_client_2():
    values, counts = sheet.SPARSE_UP_CLIENT2
    packed = pack_upload(float64(sheet.R2), torch.tensor(counts))
    assert packed.dtype == torch.float32
    assert_near(packed, values, 1e-7)  # float32 on the wire


@pytest.mark.parametrize("num_held", [0, 1])
def test_a_client_with_less_than_two_classes_sends_counts_alone(num_held):
    counts = torch.tensor([3 * num_held, 0])
    matrix = relations(torch.ones(2, 2), counts)
    packed = pack_upload(matrix, counts)
    assert len(packed) == 0
    torch.testing.assert_close(unpack_upload(packed, counts), matrix, equal_nan=True)
    assert download_size(2, num_held, "sparse") == download_size(2, num_held, "guidance", q=3) == 0


@given(seed=SEEDS, wire=st.sampled_from(["dense", "sparse", "half", "guidance"]))
def test_an_upload_comes_back_as_it_was(seed, wire):
    counts, matrix, *_ = random_client(seed)
    packed = pack_upload(matrix, counts, wire)
    assert packed.dtype == torch.float32
    assert len(packed) + len(counts) == upload_size(6, int((counts > 0).sum()), wire)
    back = unpack_upload(packed, counts, wire)
    assert back.dtype == torch.float64
    assert torch.equal(back.isnan(), matrix.isnan())
    assert torch.equal(back.nan_to_num(), matrix.float().double().nan_to_num())


@given(seed=SEEDS)
def test_sparse_and_dense_uploads_give_the_same_bits(seed):
    counts, matrix, *_ = random_client(seed)
    dense = unpack_upload(pack_upload(matrix, counts, "dense"), counts, "dense")
    sparse = unpack_upload(pack_upload(matrix, counts, "sparse"), counts, "sparse")
    assert torch.equal(dense.nan_to_num(), sparse.nan_to_num())


@given(seed=SEEDS, wire=FORMS, q=st.one_of(st.integers(1, 7), st.just("all")))
def test_every_form_of_download_gives_the_same_guidance(seed, wire, q):
    counts, _, topology, support = random_client(seed)
    held = counts > 0
    packed = pack_download(topology, support, held, wire)
    assert len(packed) == download_size(6, int(held.sum()), wire, q=q)
    received = unpack_download(packed, held, wire)
    dense = unpack_download(pack_download(topology, support, held, "dense"), held, "dense")
    assert torch.equal(dense[0], topology.float().double())
    pairs = pair_mask(counts) & ~torch.eye(6, dtype=torch.bool)
    for found, whole in zip(received, dense, strict=True):
        assert torch.equal(found[pairs], whole[pairs])
        assert torch.equal(found, found.T)
    assert torch.equal(guidance(*received, held, q=q)[held], guidance(*dense, held, q=q)[held])


@given(seed=SEEDS, q=st.one_of(st.integers(1, 7), st.just("all")))
def test_guidance_comes_back_up_to_float32(seed, q):
    counts, _, topology, support = random_client(seed)
    held = counts > 0
    whole = guidance(topology, support.round(decimals=1), held, q=q)
    indices, values = pack_guidance(whole, held, q)
    assert indices.numel() + values.numel() == download_size(6, int(held.sum()), "guidance", q=q)
    assert torch.equal(unpack_guidance(indices, values, held)[held], whole.float().double()[held])


def test_guidance_without_the_local_mask_cannot_travel_as_guidance():
    matrix = guidance(float64(sheet.RT), float64(sheet.S_ALL), torch.tensor(sheet.N1) > 0, q=3, local_mask=False)
    with pytest.raises(InvalidInput, match="local mask"):
        pack_guidance(matrix, torch.tensor(sheet.N1) > 0, 3)


def broken(change):
    matrix = float64(sheet.R2)
    change(matrix)
    return matrix


def put(*entries):
    def change(matrix):
        for a, b, value in entries:
            matrix[a, b] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put((0, 1, torch.nan)), r"\(0, 1\) = nan is missing"),
        (put((0, 3, 0.5)), r"\(0, 3\) = 0.5 is given"),
        (put((0, 1, 1.5), (1, 0, 1.5)), r"\(0, 1\) = 1.5 lies outside"),
        (put((2, 1, -0.5), (1, 2, -0.5)), r"\(1, 2\) = -0.5 lies outside"),
        (put((0, 1, torch.inf), (1, 0, torch.inf)), r"\(0, 1\) = inf lies outside"),
        (put((0, 1, 0.25)), r"\(0, 1\) = 0.25 differs"),
        (put((1, 1, 0.5)), r"\(1, 1\) = 0.5 must be 1"),
    ],
)
def test_a_broken_upload_names_its_entry(change, message):
    counts = torch.tensor(sheet.N2)
    with pytest.raises(InvalidInput, match=message):
        check_relations(broken(change), counts)
    with pytest.raises(InvalidInput, match=message):
        unpack_upload(broken(change).flatten().float(), counts, "dense")


@pytest.mark.parametrize(
    "call",
    [
        lambda: check_relations(torch.eye(3), torch.tensor([1, 1])),
        lambda: unpack_upload(torch.zeros(2), torch.tensor([1, 1])),
        lambda: unpack_upload(torch.tensor([2.0]), torch.tensor([1, 1])),
        lambda: unpack_upload(torch.tensor([0.5]), torch.tensor([1, -1])),
        lambda: unpack_upload(torch.tensor([0.5]), torch.tensor([1.0, torch.nan])),
        lambda: unpack_download(torch.zeros(3), torch.tensor([True, True])),
        lambda: unpack_download(torch.zeros(3), torch.tensor([True, True]), "dense"),
        lambda: pack_download(torch.eye(2), torch.eye(3), torch.tensor([True, True])),
        lambda: pack_download(torch.eye(2), torch.eye(2), torch.tensor([True, True]), "guidance"),
        lambda: unpack_guidance(torch.tensor([[2], [0]]), torch.zeros(2, 1), torch.tensor([True, True])),
        lambda: unpack_guidance(torch.tensor([[-1], [0]]), torch.zeros(2, 1), torch.tensor([True, True])),
        lambda: unpack_guidance(torch.tensor([[0]]), torch.zeros(1, 1), torch.tensor([True, True])),
    ],
)
def test_what_does_not_fit_is_refused(call):
    with pytest.raises(InvalidInput):
        call()
