"""`motley bench`."""

import json
from dataclasses import asdict
from statistics import geometric_mean
from typing import Any

from rich.table import Table

from motley.cli.command import command, extra, make_app
from motley.cli.output import print_table, warnings_to_stderr
from motley.engine.bench import (
    Overhead,
    ServerStep,
    Throughput,
    Work,
    bench_federation,
    measure_overhead,
    measure_server,
    measure_throughput,
)
from motley.engine.threads import threads

HELP = """Measure this machine: images per second by architecture and precision, what our loops
need beyond bare PyTorch loops, and FedTopo's server step. Times are medians of processor
time, of the server step (it takes all threads) of elapsed time; half a minute for small4.

    motley bench
    motley bench --models fedtopo8 --batch-size 128 --samples 256 --threads 1
    motley bench --models crad3 --json
    motley bench --models fedtopo8 --device cuda
"""


KINDS = ("plain", "fp32", "bf16", "auto")


def _bench(values: dict[str, Any]) -> None:
    given = {name: value for name, value in values.items() if name in Work.__dataclass_fields__}
    work = Work(**given)
    speeds, ratios = [], []
    with warnings_to_stderr(), threads(values["threads"]):
        federation = bench_federation(work)
        for client in federation.clients:
            name = federation.plan.architecture(client.id)
            speeds.append(measure_throughput(client, name, work))
            ratios.append(measure_overhead(client, name, work))
        steps = [measure_server(10, 10_000, work.repeats), measure_server(1_000, 50, work.repeats)]
    if values["json"]:
        told = {
            "throughput": [asdict(row) for row in speeds],
            "overhead": [asdict(row) for row in ratios],
            "server": [asdict(row) for row in steps],
        }
        print_table(json.dumps(told, indent=1))
        return
    print_table(_speeds(speeds))
    print_table(_ratios(ratios))
    print_table(_steps(steps))


def _speeds(rows: list[Throughput]) -> Table:
    columns = [f"{word} {kind}" for word in ("train", "infer") for kind in KINDS]
    title = "images a second of processor time; plain: bare loop, float32, contiguous; auto: what a measurement chose"
    table = _table(title, "architecture", *columns, "auto is")
    for row in rows:
        numbers = [speeds[kind] for speeds in (row.train, row.infer) for kind in KINDS]
        table.add_row(row.architecture, *(f"{number:,.0f}" for number in numbers), row.auto)
    gains = [_gain([getattr(row, word) for row in rows]) for word in ("train", "infer")]
    table.caption = f"auto by plain, geometric mean: training {gains[0]:.2f}, inference {gains[1]:.2f}"
    return table


def _gain(speeds: list[dict[str, float]]) -> float:
    return geometric_mean(row["auto"] / row["plain"] for row in speeds)


def _ratios(rows: list[Overhead]) -> Table:
    title = "our time by that of bare loops; fedtopo (exact and running prototypes) by local"
    table = _table(title, "architecture", "local", "evaluate", "fedtopo", "running")
    for row in rows:
        ratios = (row.local, row.evaluate, row.fedtopo, row.running)
        table.add_row(row.architecture, *(f"{ratio:.2f}" for ratio in ratios))
    return table


def _steps(rows: list[ServerStep]) -> Table:
    table = _table(
        "FedTopo's server step, by the clock", "classes", "uploads", "seconds", "uploads a second", "bytes an upload"
    )
    for row in rows:
        rate = row.uploads / row.seconds
        table.add_row(
            f"{row.classes:,}", f"{row.uploads:,}", f"{row.seconds:.3f}", f"{rate:,.0f}", f"{row.upload_bytes:,}"
        )
    return table


def _table(title: str, first: str, *others: str) -> Table:
    table = Table(
        first,
        box=None,
        pad_edge=False,
        title=title,
        title_justify="left",
        title_style="",
        caption_justify="left",
        caption_style="",
    )
    for name in others:
        table.add_column(name, justify="right")
    return table


app = make_app("bench", HELP)
app.default(
    command(
        _bench,
        [
            extra("models", str, "a pool, an architecture, or a list a,b,c  [default: small4]"),
            extra("size", int, "height and width of the pictures  [default: 32]"),
            extra("channels", int, "channels of the pictures  [default: 3]"),
            extra("classes", int, "number of classes  [default: 10]"),
            extra("samples", int, "training samples of a client  [default: 512]"),
            extra("batch_size", int, "samples in a training batch  [default: 64]"),
            extra("repeats", int, "passes of which the median is taken  [default: 5]"),
            extra("device", str, "cpu, cuda or mps  [default: cpu]"),
            extra("threads", int, "threads of torch  [default: 1]", default=1),
            extra("json", bool, "print the tables as JSON", default=False),
        ],
        HELP,
    )
)
