"""1,000 clients on one machine: memory, its growth over rounds, and what the engine costs a client and round.

python benchmarks/scale.py memory      1,000 clients, digits, all of small4, three rounds: peak resident memory
python benchmarks/scale.py growth      200 clients, participation 0.1, 50 rounds: resident memory after rounds 5 and 50
python benchmarks/scale.py overhead    1,000 clients of small-cnn with a sample or two each: ms a client and round
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

from motley.engine.config import ConfigFile, resolve
from motley.engine.runs import Material, Watch, start_run

DIGITS = {"data": "digits", "workers": 1, "threads": 1, "checkpoint_every": 0, "min_samples": 1}


def resident_mib() -> float:
    """Return the resident memory of this process now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20


def play(method: str, watch: Watch, **flags: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        start_run(resolve(method, ConfigFile(), {**DIGITS, **flags}, {}), Path(folder) / "run", Material(), watch)


def memory() -> None:
    play("fedtopo", Watch(), clients=1000, rounds=3, partition="iid", eval_every=3)
    print(f"peak {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")


def growth() -> None:
    seen: dict[int, float] = {}
    watch = Watch(finished_round=lambda row: seen.update({row.round: resident_mib()}))
    play("fedtopo", watch, clients=200, rounds=50, participation=0.1, partition="iid", eval_every=5)
    print(
        f"after round 5 {seen[5]:,.1f} MiB, after round 50 {seen[50]:,.1f} MiB: {100 * (seen[50] / seen[5] - 1):+.2f} %"
    )


def overhead() -> None:
    at: dict[int, float] = {}
    watch = Watch(finished_round=lambda row: at.update({row.round: time.process_time()}))
    play("local", watch, clients=1000, rounds=6, partition="iid", models="small-cnn", eval_every=100)
    spent = min(at[number + 1] - at[number] for number in range(1, 5))  # the last round is evaluated
    print(f"{spent:.2f} ms a client and round, one training step included")


if __name__ == "__main__":
    {"memory": memory, "growth": growth, "overhead": overhead}[sys.argv[1]]()
