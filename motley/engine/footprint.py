"""Seconds and peak memory of a round, measured in a process of its own, without any counter."""

import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from motley.engine.config import RunConfig
from motley.engine.cost import play_rounds
from motley.engine.played import Played
from motley.engine.setup import build_federation
from motley.engine.threads import choose_threads, threads
from motley.record.cost import Footprint

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def measure_footprint(config: RunConfig, rounds: int) -> Footprint:
    """Play rounds in a new process and return what the last of them needed.

    Raises:
        RunFailed: A client had to be left out of the last round.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_measure, config, rounds).result()


def _measure(config: RunConfig, rounds: int) -> Footprint:
    federation = build_federation(config)
    before = _resident("VmRSS")
    took = 0.0

    def timed(play: Callable[[], Played]) -> Played:
        nonlocal took
        began = time.perf_counter()
        played = play()
        took = time.perf_counter() - began
        return played

    with threads(choose_threads(config.settings.run.threads, federation.clients)):
        if before is not None:
            RESET.write_text("5")  # the high-water mark begins anew
        play_rounds(config, federation, config.entry.method(config.options), rounds, last=timed)
    peak = _resident("VmHWM")
    return Footprint(took, None if peak is None or before is None else max(0, peak - before))


def _resident(name: str) -> int | None:
    """Return a size of this process in bytes; None where the system does not tell."""
    if sys.platform != "linux":
        return None
    lines = (line.split() for line in STATUS.read_text(encoding="ascii", errors="replace").splitlines())
    return next((int(line[1]) * 1024 for line in lines if line[0] == f"{name}:"), None)
