"""Precision and layout of every architecture of a run: asked for, or measured once a machine and stored with the run.

`auto` is resolved before round 1 into a text that names the choice for each architecture, `cnn=bf16/bf16,
resnet18=fp32/bf16/trimmed` (training/inference/layout), and this text takes its place in the run's configuration. So a
resume, and a repetition with the stored configuration, compute as the run did, whatever a new measurement would say.
"""

import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import torch

from motley.errors import InvalidConfig
from motley.federation import Client
from motley.models.assign import ModelPlan
from motley.training.precision import DTYPES, Precision, computes_bfloat16, measure_precision


def resolve_precision(asked: str, plan: ModelPlan, clients: list[Client]) -> dict[str, Precision]:
    """Return the precision of each architecture; for models of a factory, which have no name of their own, of "*".

    Args:
        asked: `fp32`, `bf16`, `training/inference`, with the layout after it, `auto`, or `NAME=...` for each
            architecture.
        plan: Names of the architectures.
        clients: Whose models may be measured.

    Raises:
        InvalidConfig: A word is not known, or an architecture is left out.
    """
    names = ["*"] if plan.factory is not None else list(dict.fromkeys(plan.names))
    if "=" in asked:
        return _listed(asked, names)
    if asked != "auto":
        return dict.fromkeys(names, Precision.parse(asked))
    if plan.factory is not None or next(clients[0].model.parameters()).device.type not in {"cpu", "cuda"}:
        return dict.fromkeys(names, Precision())
    kept = _Measurements()
    return {name: kept.precision(name, clients[plan.clients_of(name)[0]]) for name in names}


def precision_text(chosen: Mapping[str, Precision]) -> str:
    """Return a choice as the option `run.precision` takes it."""
    values = set(chosen.values())
    if len(values) == 1:
        only = values.pop()
        return str(only) if only.train != only.infer else str(only).partition("/")[2]
    return ",".join(f"{name}={precision}" for name, precision in chosen.items())


def of_client(chosen: Mapping[str, Precision], plan: ModelPlan, client_id: int) -> Precision:
    """Return the precision of a client's architecture."""
    return chosen["*"] if plan.factory is not None else chosen[plan.architecture(client_id)]


def _listed(asked: str, names: list[str]) -> dict[str, Precision]:
    given = dict(part.strip().partition("=")[::2] for part in asked.split(","))
    missing = [name for name in names if name not in given]
    if missing:
        raise InvalidConfig(f"run.precision says nothing of {', '.join(missing)}; add {missing[0]}=fp32, or use auto")
    return {name: Precision.parse(given[name]) for name in names}


class _Measurements:
    """What was measured on this machine, in a small file of the user's cache; one that cannot be read is ignored."""

    def __init__(self) -> None:
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self._path = home / "motley" / "precision.json"
        try:
            self._known: dict[str, str] = json.loads(self._path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            self._known = {}

    def precision(self, name: str, client: Client) -> Precision:
        device = next(client.model.parameters()).device
        machine = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
        shape = "x".join(map(str, client.task.input_shape))
        sizes = f"{client.training.batch_size}/{client.evaluation.batch_size}"
        library = f"motley {version('motley-fl')}, torch {torch.__version__}"
        key = f"{library}, {machine}, {torch.get_num_threads()} threads, {name}, {shape}, batch {sizes}"
        if key in self._known:
            return Precision.parse(self._known[key])
        found = measure_precision(
            client.model,
            client.task.input_shape,
            train_batch=client.training.batch_size,
            infer_batch=client.evaluation.batch_size,
            dtypes=[dtype for name, dtype in DTYPES.items() if name == "fp32" or computes_bfloat16(device)],
        )
        self._known[key] = str(found)
        self._write()
        return found

    def _write(self) -> None:
        aside = self._path.with_suffix(f".{os.getpid()}")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            aside.write_text(json.dumps(self._known, indent=1), encoding="utf-8")
            aside.replace(self._path)
        except OSError:
            return  # without a cache the next run measures again


def _processor() -> str:
    return f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}"
