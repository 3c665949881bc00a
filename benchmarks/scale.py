"""1,000 clients on one machine: memory, its growth over rounds, and what the engine costs a client and round.

python benchmarks/scale.py memory      1,000 clients, digits, all of small4, three rounds: peak resident memory
python benchmarks/scale.py growth      200 clients, participation 0.1, 50 rounds: resident memory after rounds 5 and 50
python benchmarks/scale.py overhead    1,000 clients of small-cnn with a sample or two each: ms a client and round
python benchmarks/scale.py peers [N]   N clients (1,000), digits, uniform-kd with 9 drawn teachers each: processor time
                                       a client and round, and how far memory grows over that before round 1
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


def peers() -> None:
    """All have as many samples, so that a client costs the same whatever N is; only N and the graph could change it."""
    clients = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    at: dict[int, float] = {}
    began: list[float] = []
    watch = Watch(
        began=lambda *_: began.append(resident_mib()),
        finished_round=lambda row: at.update({row.round: time.process_time()}),
    )
    same = {"data_limit": 2 * clients // 10 * 10, "protocol": "local", "test_fraction": 0.5}
    play("uniform-kd", watch, clients=clients, rounds=4, partition="iid", graph="random:9", eval_every=100, **same)
    spent = sorted(at[number + 1] - at[number] for number in range(3))  # the last round is evaluated
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{clients} clients: {1000 * spent[1] / clients:.2f} ms a client and round")
    print(f"peak {peak:,.0f} MiB, {1024 * (peak - began[0]) / clients:,.0f} KiB a client above that before round 1")


if __name__ == "__main__":
    {"memory": memory, "growth": growth, "overhead": overhead, "peers": peers}[sys.argv[1]]()
