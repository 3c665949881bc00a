"""Addressed random numbers: the same address gives the same numbers on every engine.

An address is (seed, purpose, round, client). Nothing else decides a draw: neither the order of the calls, nor the
number of workers, nor what other purposes drew. The global generators of torch, NumPy and Python are never read, and
code of others that insists on them (the initialisation of layers, dropout) runs inside `Draws.scope`, which restores
them.
"""

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch


@dataclass(frozen=True)
class Draws:
    """Random generators of one run.

    Args:
        seed: The run's seed, any integer.
    """

    seed: int

    def address(self, purpose: str, *, round: int = 0, client: int = -1) -> int:
        """Return the 63-bit seed that belongs to an address; client -1 stands for the run as a whole."""
        text = f"{self.seed}/{purpose}/{round}/{client}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1

    def generator(self, purpose: str, *, round: int = 0, client: int = -1) -> torch.Generator:
        """Return a fresh torch generator on the CPU for an address."""
        generator = torch.Generator()
        generator.manual_seed(self.address(purpose, round=round, client=client))
        return generator

    def numpy(self, purpose: str, *, round: int = 0, client: int = -1) -> np.random.Generator:
        """Return a fresh NumPy generator for an address."""
        return np.random.default_rng(self.address(purpose, round=round, client=client))

    @contextmanager
    def scope(self, purpose: str, *, round: int = 0, client: int = -1) -> Iterator[None]:
        """Run a block whose code draws from the global generators; they are seeded for it and restored after it."""
        seed = self.address(purpose, round=round, client=client)
        before = random.getstate(), np.random.get_state(), torch.get_rng_state()
        in_use = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        on_devices = torch.cuda.get_rng_state_all() if in_use else []
        # torch.random.fork_rng does the same but asks the driver for devices each time, which costs milliseconds.
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.default_generator.manual_seed(seed)
        if on_devices:
            torch.cuda.manual_seed_all(seed)
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])
            torch.set_rng_state(before[2])
            if on_devices:
                torch.cuda.set_rng_state_all(on_devices)
