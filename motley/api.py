"""motley in a notebook: `motley.run`, `motley.compare`, `motley.resume`, `motley.load_run`.

Options have the names of the command line's flags, with underscores; options of a method are given likewise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from motley.data.dataset import Dataset
from motley.engine.comparison import CompareWatch, plan_comparison, start_comparison
from motley.engine.config import ConfigFile, flag_fields, read_config, resolve
from motley.engine.runs import Material, Watch, resume_run, start_run
from motley.errors import InvalidConfig
from motley.methods.registry import find_method
from motley.models.assign import ModelFactory
from motley.record.comparison import Comparison, load_comparison
from motley.record.load import RunRecord, load_run

__all__ = ["Comparison", "RunRecord", "compare", "load_comparison", "load_run", "resume", "run"]


def run(
    method: str,
    *,
    data: str | Dataset | None = None,
    models: str | ModelFactory | None = None,
    out: str | Path | None = None,
    config: str | Path | None = None,
    watch: Watch | None = None,
    **options: Any,
) -> RunRecord:
    """Train one method on a federation and return its record.

    Args:
        method: Name of the method, as in 'motley list methods'.
        data: A source such as "digits", or a data set in memory (`motley.data.memory.from_arrays`).
        models: A pool such as "small4", or a callable (client id, input shape, number of classes) -> nn.Module.
        out: A folder that does not exist yet; by default one below "runs" with the date.
        config: A TOML file; what is given here wins.
        watch: Called while the run goes on.
        options: Options of the run and of the method: rounds=5, clients=10, strength=2.0, ...

    Returns:
        The record: `summary`, and the data frames `rounds` and `clients`.

    Raises:
        MotleyError: As its kinds say.
    """
    own = {one.name for one in fields(find_method(method).options)}
    flags, method_flags = _split(options, own)
    _name(flags, data, models)
    file = read_config(Path(config)) if config else ConfigFile(name="the call")
    material = Material(data if isinstance(data, Dataset) else None, models if callable(models) else None)
    return start_run(resolve(method, file, flags, method_flags), Path(out) if out else None, material, watch or Watch())


def compare(
    methods: Sequence[str],
    *,
    seeds: Sequence[int] = (0,),
    reference: str | None = None,
    data: str | Dataset | None = None,
    models: str | ModelFactory | None = None,
    out: str | Path | None = None,
    config: str | Path | None = None,
    method_options: Mapping[str, Mapping[str, Any]] | None = None,
    watch: CompareWatch | None = None,
    **options: Any,
) -> Comparison:
    """Run several methods on the same seeds; `Comparison.table()` holds means and paired differences.

    Args:
        methods: Names of the methods; the first is the reference unless `reference` names one.
        seeds: Seeds, the same for all methods.
        reference: The method that the others are compared with.
        data, models, out, config: As for `run`.
        method_options: Options of single methods, by method name.
        watch: Called while the comparison goes on.
        options: Options of all runs.

    Raises:
        MotleyError: As its kinds say.
    """
    flags, _ = _split(options, set())
    _name(flags, data, models)
    file = read_config(Path(config)) if config else ConfigFile(name="the call")
    own = {find_method(name).name: dict(values) for name, values in (method_options or {}).items()}
    plan = plan_comparison(file, flags, own, methods=methods, seeds=seeds, reference=reference)
    return start_comparison(
        plan,
        Path(out) if out else None,
        watch or CompareWatch(),
        dataset=data if isinstance(data, Dataset) else None,
        factory=models if callable(models) else None,
    )


def resume(
    path: str | Path,
    *,
    rounds: int | None = None,
    data: Dataset | None = None,
    models: ModelFactory | None = None,
    watch: Watch | None = None,
) -> RunRecord:
    """Continue an unfinished run, or add rounds to a finished one.

    Args:
        path: The run folder.
        rounds: The new number of rounds, if it is to grow.
        data, models: What the run was begun with, if that was in memory.
        watch: Called while the run goes on.

    Raises:
        MotleyError: As its kinds say.
    """
    return resume_run(Path(path), Material(data, models), watch or Watch(), rounds=rounds)


def _split(options: Mapping[str, Any], own: set[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    flags = {name: value for name, value in options.items() if name in flag_fields()}
    rest = {name: value for name, value in options.items() if name not in flags}
    if unknown := sorted(set(rest) - own):
        raise InvalidConfig(f"unknown option '{unknown[0]}'; known are {', '.join([*flag_fields(), *sorted(own)])}")
    return flags, rest


def _name(flags: dict[str, Any], data: str | Dataset | None, models: str | ModelFactory | None) -> None:
    if isinstance(data, str):
        flags["data"] = data
    elif data is not None:
        flags["data"] = f"memory:{data.name}"
    if isinstance(models, str):
        flags["models"] = models
