# ruff: noqa: NPY002  (the global generators are what is watched here)
import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from motley.draws import Draws


def numbers(generator: torch.Generator) -> list[int]:
    return torch.randint(2**31, (4,), generator=generator).tolist()


def global_states() -> tuple[object, ...]:
    kind, keys, *rest = np.random.get_state()
    return random.getstate(), kind, keys.tolist(), rest, torch.random.get_rng_state().tolist()


@given(seed=st.integers(0, 2**40), round=st.integers(0, 999), client=st.integers(-1, 99))
def test_the_same_address_gives_the_same_numbers_whatever_was_drawn_before(seed, round, client):
    first = Draws(seed)
    expected = numbers(first.generator("shuffle", round=round, client=client))
    numbers(first.generator("augment", round=round, client=client))
    assert numbers(first.generator("shuffle", round=round, client=client)) == expected
    assert numbers(Draws(seed).generator("shuffle", round=round, client=client)) == expected


def test_every_part_of_an_address_counts():
    draws = Draws(0)
    addresses = [
        draws.address("a"),
        draws.address("b"),
        draws.address("a", round=1),
        draws.address("a", client=1),
        draws.address("a", round=1, client=1),
        draws.address("a", round=11, client=1),
        draws.address("a", round=1, client=11),
        Draws(1).address("a"),
        Draws(-1).address("a"),
    ]
    assert len(set(addresses)) == len(addresses)
    assert all(0 <= address < 2**63 for address in addresses)


def test_a_purpose_is_independent_of_the_others():
    a = Draws(5).numpy("participants", round=2).random(2000)
    b = Draws(5).numpy("dropout", round=2).random(2000)
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.08  # 3.5 standard deviations of independent draws


def test_an_address_never_changes_between_versions():
    # BLAKE2b-64 of "7/init/0/3", without its last bit: runs of older versions must stay repeatable.
    assert Draws(7).address("init", client=3) == 6464887737833221696


@pytest.mark.parametrize("fails", [False, True])
def test_d1_a_scope_seeds_the_global_generators_and_leaves_them_as_they_were(fails):
    def inside() -> tuple[float, float, float]:
        with Draws(1).scope("init", client=2):
            values = random.random(), float(np.random.rand()), float(torch.rand(()))
            if fails:
                raise KeyError("a model that cannot be built")
        return values

    before = global_states()
    if fails:
        with pytest.raises(KeyError):
            inside()
    else:
        first = inside()
        random.random(), np.random.rand(), torch.rand(())
        before = global_states()
        assert inside() == first
    assert global_states() == before
