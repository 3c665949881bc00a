"""The sums over many uploads at once against the plain form, one upload after the other."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motley.errors import InvalidInput
from motley.functional import topology_chunks
from motley.functional.topology import PairSums, add_relations, relations
from motley.functional.topology_chunks import UploadSums


def _uploads(num_classes, num_clients, seed, real):
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 4, (num_clients, num_classes), generator=generator)
    if real:
        counts = counts * torch.rand(num_clients, num_classes, generator=generator)
    made = [
        relations(torch.rand(num_classes, 3, dtype=torch.float64, generator=generator), one).float() for one in counts
    ]
    return made, counts


@given(
    num_classes=st.integers(1, 7),
    num_clients=st.integers(1, 6),
    seed=st.integers(0, 2**16),
    weighting=st.sampled_from(["reliability", "uniform"]),
    tile=st.sampled_from([None, 1, 5, 2**15]),
    real=st.booleans(),
)
def test_many_uploads_at_once_give_the_bits_of_one_after_the_other(
    num_classes, num_clients, seed, weighting, tile, real
):
    matrices, counts = _uploads(num_classes, num_clients, seed, real)
    plain = PairSums.zeros(num_classes)
    for matrix, count in zip(matrices, counts, strict=True):
        plain = add_relations(plain, matrix, count, weighting=weighting)
    with pytest.MonkeyPatch.context() as patch:
        if tile:
            patch.setattr(topology_chunks, "STACKED_ENTRIES", 0)
            patch.setattr(topology_chunks, "TILE_ENTRIES", tile)
        taken = UploadSums(num_classes, weighting=weighting)
        taken.add(matrices[:1], counts[:1])
        taken.add(matrices[1:], counts[1:])
        fast = taken.result()
    for name in ("weighted", "weight", "support"):
        assert torch.equal(getattr(fast, name), getattr(plain, name)), name


def test_uploads_of_another_number_of_classes_are_refused():
    matrices, counts = _uploads(3, 2, 0, real=False)
    with pytest.raises(InvalidInput, match=r"with C = 4, not 2 of \(3, 3\) and \(2, 3\)"):
        UploadSums(4).add(matrices, counts)
