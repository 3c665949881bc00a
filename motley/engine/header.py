"""What a run says of itself beside its figures: federation, partition, machine, versions."""

import os
import platform
import shlex
import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from motley.engine.config import RunConfig
from motley.engine.crew import Crew
from motley.engine.faults import bad_peers, faults_text
from motley.engine.setup import Federation

LIBRARIES = ("motley-fl", "torch", "numpy", "safetensors")


def run_header(config: RunConfig, federation: Federation, crew: Crew) -> dict[str, Any]:
    """Return the header of a run as plain values; it is known before round 1."""
    data, plan = federation.data, federation.plan
    faults, bad = config.settings.faults, bad_peers(config, len(data.shards))
    counts = [shard.counts.tolist() for shard in data.shards]
    parts = [{"train": len(s.train), "validation": len(s.validation), "test": len(s.test)} for s in data.shards]
    return {
        "method": config.method,
        "seed": config.settings.run.seed,
        "class_names": list(data.class_names),
        "input_shape": list(data.input_shape),
        "num_clients": len(data.shards),
        "participants_per_round": federation.participants_per_round,
        "participation": participation_text(config, federation),
        "architectures": list(plan.names),
        "counts": counts,
        "samples": parts,
        "partition": {
            "scheme": data.partition.scheme,
            "seed": data.partition.seed,
            "digest": data.partition.digest(),
            "tries": data.partition.tries,
            "acceptance_rate": data.partition.acceptance_rate,
            "effective_classes": data.heterogeneity.mean_effective_classes,
            "label_distance": data.heterogeneity.mean_distance,
        },
        "notes": [*data.notes, *([faults_text(faults, bad)] if bad else [])],
        **({"faults": {"clients": list(bad), **asdict(faults)}} if bad else {}),
        "chance": 1 / data.num_classes,
        "device": str(federation.device),
        "machine": {
            "system": platform.platform(),
            "processor": platform.processor() or platform.machine(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "workers": crew.workers,
            "threads": crew.threads,
            "python": platform.python_version(),
            "libraries": {name: version(name) for name in LIBRARIES},
        },
        "command": _command(),
    }


def participation_text(config: RunConfig, federation: Federation) -> str:
    """Return how many take part in a round, and how a share was rounded: "7 of 10 (0.75, rounded down)"."""
    number, total = federation.participants_per_round, len(federation.data.shards)
    asked = config.settings.run.participation
    text = f"{number} of {total}"
    return f"{text} ({asked}, rounded down)" if isinstance(asked, float) and number < total else text


def _command() -> str:
    """Return the command line, or that there was none, as text whatever the locale is."""
    program, *arguments = sys.argv or ["-c"]
    if program in {"-c", "", "-"}:
        return "the Python API"
    line = shlex.join([Path(program).name.replace("__main__.py", "motley"), *arguments])
    return os.fsencode(line).decode("utf-8", "replace")
