"""Several methods on the same seeds: one table, with paired differences to a reference."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from motley.errors import InvalidRunFolder
from motley.functional.statistics import mean_sd, paired_difference
from motley.record.load import RunRecord, load_run
from motley.record.summary import TRAFFIC

CONFIG, SUMMARY, RUNS = "compare.toml", "comparison.json", "runs"


@dataclass(frozen=True)
class Comparison:
    """A comparison on disk.

    Attributes:
        path: Its folder.
        config: What was asked for: methods, seeds, reference and the configuration of every run.
        runs: The runs that exist, by method and seed.
    """

    path: Path
    config: dict[str, Any]
    runs: dict[str, dict[int, RunRecord]]

    @property
    def reference(self) -> str:
        """Return the method that the others are compared with."""
        return str(self.config["compare"]["reference"])

    def table(self) -> list[dict[str, Any]]:
        """Return one line a method, of its finished runs alone; see `method_line`."""
        done = {name: {seed: run for seed, run in runs.items() if run.finished} for name, runs in self.runs.items()}
        return [method_line(name, runs, done.get(self.reference, {})) for name, runs in done.items()]


def run_path(path: Path, method: str, seed: int) -> Path:
    """Return the folder of one run of a comparison."""
    return path / RUNS / method / f"seed-{seed}"


def load_comparison(path: str | Path) -> Comparison:
    """Read the folder of a comparison; runs that have not begun are left out.

    Raises:
        InvalidRunFolder: It is none, or damaged.
    """
    path = Path(path)
    if not (path / CONFIG).is_file():
        raise InvalidRunFolder(f"{path} is no comparison: it has no {CONFIG}; name the folder that was printed")
    try:
        config = tomllib.loads((path / CONFIG).read_text(encoding="utf-8"))
        methods, seeds = config["compare"]["methods"], config["compare"]["seeds"]
    except (ValueError, KeyError) as error:
        raise InvalidRunFolder(f"{path / CONFIG} is damaged ({error}); restore it from a copy") from error
    found = {
        method: {seed: load_run(one) for seed in seeds if (one := run_path(path, method, seed)).is_dir()}
        for method in methods
    }
    return Comparison(path, config, {method: runs for method, runs in found.items() if runs})


def method_line(method: str, runs: dict[int, RunRecord], reference: dict[int, RunRecord]) -> dict[str, Any]:
    """Return the figures of one method over its seeds.

    For `local`, `global` (last round) and, where a validation part exists, `local_selected`, `global_selected`: mean
    and standard deviation over seeds (divisor n - 1, None for one seed), and the paired difference to the reference on
    equal seeds with its 95 % t interval. All accuracies are fractions.
    """
    line: dict[str, Any] = {"method": method, "seeds": sorted(runs)}
    for moment, suffix in (("last", ""), ("selected", "_selected")):
        for name in ("local", "global"):
            values = {seed: _figure(run, moment, f"{name}_accuracy") for seed, run in runs.items()}
            known = [value for value in values.values() if value is not None]
            if not known:
                continue
            mean, deviation = mean_sd(known)
            line[f"{name}{suffix}"] = {"mean": mean, "sd": deviation, "n": len(known)}
            if reference and reference is not runs:
                others = {seed: _figure(run, moment, f"{name}_accuracy") for seed, run in reference.items()}
                line[f"{name}{suffix}"]["difference"] = _difference(values, others)
    for name in TRAFFIC:
        line[name] = _mean([run.summary["traffic"][name] for run in runs.values()])
    line["seconds"] = _mean([sum(run.summary["seconds"].values()) for run in runs.values()])
    return line


def _figure(run: RunRecord, moment: str, name: str) -> float | None:
    value = (run.summary.get(moment) or {}).get(name)
    return None if value is None else float(value)


def _difference(values: dict[int, float | None], others: dict[int, float | None]) -> dict[str, Any] | None:
    pairs = [
        (value, other)
        for seed, value in values.items()
        if value is not None and (other := others.get(seed)) is not None
    ]
    if not pairs:
        return None
    result = paired_difference([value for value, _ in pairs], [other for _, other in pairs])
    return {
        "mean": result.mean,
        "low": result.low,
        "high": result.high,
        "n": result.n,
        "smallest_visible": result.smallest_visible,
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
