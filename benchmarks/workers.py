"""Two workers against one process of two threads: seconds of wall clock of the same run, 20 clients of small4.

    python benchmarks/workers.py [DATA]

DATA is a source of pictures; random ones of 3 x 32 x 32 stand in if it is left out. The start of the processes is not
counted: rounds 2 to 5 are.
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from motley.engine.bench import Work, pictures
from motley.engine.config import ConfigFile, resolve
from motley.engine.runs import Material, Watch, start_run

CLIENTS, REPEATS = 20, 5


def seconds(workers: int, threads: int) -> float:
    at: dict[int, float] = {}
    flags = {
        "clients": CLIENTS,
        "rounds": 6,
        "workers": workers,
        "threads": threads,
        "eval_every": 6,
        "checkpoint_every": 0,
    }
    if len(sys.argv) > 1:
        flags["data"] = sys.argv[1]
    dataset = None if len(sys.argv) > 1 else pictures(Work(samples=500), CLIENTS)
    watch = Watch(finished_round=lambda row: at.update({row.round: time.perf_counter()}))
    with tempfile.TemporaryDirectory() as folder:
        config = resolve("local", ConfigFile(), flags, {})
        start_run(config, Path(folder) / "run", Material(dataset=dataset), watch)
    return (at[5] - at[1]) / 4


def main() -> None:
    one, two = [], []
    for _ in range(REPEATS):
        one.append(seconds(1, 2))
        two.append(seconds(2, 1))
        print(f"one process of two threads {one[-1]:.2f} s a round, two workers {two[-1]:.2f} s", flush=True)
    print(f"medians: {statistics.median(one) / statistics.median(two):.2f} x faster with two workers")


if __name__ == "__main__":
    main()
