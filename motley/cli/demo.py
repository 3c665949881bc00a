"""`motley demo`."""

from pathlib import Path
from typing import Any

from motley.cli.command import command, extra, make_app
from motley.cli.compare import compare_watch
from motley.cli.progress import RunProgress, print_result
from motley.cli.results import show_result
from motley.engine.comparison import plan_comparison, start_comparison
from motley.engine.config import ConfigFile
from motley.record.folder import fresh_path

HELP = """Train small federations of different models on real handwritten digits and compare methods.

    motley demo

FedTopo: 20 clients, four architectures, Dirichlet(0.1), each tested on its own part; against training alone, plain and
with the same scale of the loss. CRAD: 10 clients, three architectures, Dirichlet(0.3), tested on a common test set;
against training alone and against the plain mean of all peers. About a minute on two cores.
"""
FEDTOPO = {"rounds": 30, "clients": 20, "partition": "dirichlet:0.1", "models": "small4", "batch_size": 32}
CRAD = {
    "rounds": 24,
    "clients": 10,
    "partition": "dirichlet:0.3",
    "protocol": "global",
    "models": "small3",
    "batch_size": 16,
    "momentum": 0.9,
    "weight_decay": 5e-4,
    "clip_norm": 5.0,
}
PARTS = {
    "fedtopo": (("local", "local-scaled", "fedtopo"), FEDTOPO),
    "crad": (("local", "uniform-kd", "crad"), CRAD),
}


def _demo(values: dict[str, Any]) -> None:
    parent = values.get("out") or fresh_path(Path("runs"), "demo")
    with RunProgress() as progress:
        for name, (methods, options) in PARTS.items():
            shared = {**options, "eval_every": 5, "partition_seed": "run", "checkpoint_every": options["rounds"]}
            plan = plan_comparison(ConfigFile(), shared, {}, methods=methods, seeds=(0, 1))
            start_comparison(plan, parent / name, compare_watch(progress))
    for name in PARTS:
        show_result(parent / name, as_json=False)
    print_result("\nTwo seeds show the way, not a result: see docs for measured figures with intervals.")


app = make_app("demo", HELP)
app.default(command(_demo, [extra("out", Path, "folder of the demo  [default: runs/demo-DATE-TIME]")], HELP))
