"""Several methods on the same seeds: one table, with paired differences to a reference."""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from motley.errors import InvalidConfig, InvalidRunFolder
from motley.functional.ranks import holm
from motley.functional.statistics import mean_sd, paired_difference
from motley.record.classes import class_shares, rarest_class
from motley.record.load import RunRecord, load_run
from motley.record.summary import TRAFFIC

CONFIG, SUMMARY, RUNS = "compare.toml", "comparison.json", "runs"
MOMENTS = (("last", ""), ("selected", "_selected"))
FIGURES = tuple(f"{name}{suffix}" for _, suffix in MOMENTS for name in ("local", "global"))  # of a line


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
        """Return the row that the others are compared with."""
        return str(self.config["compare"]["reference"])

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the rows that were asked for: methods and variants of methods."""
        return tuple(self.config["compare"]["methods"])

    @property
    def methods(self) -> dict[str, str]:
        """Return the method of every row by the row's name."""
        variants = self.config.get("variants", {})
        return {name: str(variants.get(name, {}).get("method", name)) for name in self.names}

    def against(self, reference: str) -> "Comparison":
        """Return the same comparison with another row as the reference.

        Raises:
            InvalidConfig: It has no such row.
        """
        if reference not in self.names:
            raise InvalidConfig(f"the reference '{reference}' is not a row of {self.path}: {', '.join(self.names)}")
        return replace(self, config={**self.config, "compare": {**self.config["compare"], "reference": reference}})

    def table(self) -> list[dict[str, Any]]:
        """Return one line a row, of its finished runs alone; see `method_line`.

        Of several differences to the reference each has `p_holm`, too: its p value adjusted over all of the figure.
        """
        done = {name: {seed: run for seed, run in runs.items() if run.finished} for name, runs in self.runs.items()}
        lines = [method_line(name, runs, done.get(self.reference, {})) for name, runs in done.items()]
        for key in FIGURES:
            found = [one for line in lines if (one := (line.get(key) or {}).get("difference"))]
            tested = [one for one in found if one["p"] is not None]
            for one, adjusted in zip(tested, holm([one["p"] for one in tested]), strict=True):
                one["p_holm"] = adjusted
        return lines


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
    and standard deviation over seeds (divisor n - 1, None for one seed), the means over seeds of the worst client's
    accuracy (`worst`) and of the deviation over clients (`sd_clients`, divisor n), and the paired difference to the
    reference on equal seeds with its 95 % t interval and the p value of the paired t test. `rarest_class` is the local
    accuracy of the class with the fewest training samples, over the samples of all clients, with the class of every
    seed. All accuracies are fractions.
    """
    line: dict[str, Any] = {"method": method, "seeds": sorted(runs)}
    for moment, suffix in MOMENTS:
        for name in ("local", "global"):
            values = {seed: _figure(run, moment, f"{name}_accuracy") for seed, run in runs.items()}
            known = [value for value in values.values() if value is not None]
            if not known:
                continue
            mean, deviation = mean_sd(known)
            line[f"{name}{suffix}"] = {
                "mean": mean,
                "sd": deviation,
                "n": len(known),
                "worst": _mean([_figure(run, moment, f"{name}_accuracy_worst") for run in runs.values()]),
                "sd_clients": _mean([_figure(run, moment, f"{name}_accuracy_sd_clients") for run in runs.values()]),
            }
            if reference and reference is not runs:
                others = {seed: _figure(run, moment, f"{name}_accuracy") for seed, run in reference.items()}
                line[f"{name}{suffix}"]["difference"] = _difference(values, others)
    if rarest := _rarest_class(runs):
        line["rarest_class"] = rarest
    for name in TRAFFIC:
        line[name] = _mean([run.summary["traffic"][name] for run in runs.values()])
    line["seconds"] = _mean([sum(run.summary["seconds"].values()) for run in runs.values()])
    return line


def _figure(run: RunRecord, moment: str, name: str) -> float | None:
    value = (run.summary.get(moment) or {}).get(name)
    return None if value is None else float(value)


def _rarest_class(runs: dict[int, RunRecord]) -> dict[str, Any] | None:
    found = [
        (str(run.summary["class_names"][rarest]), float(shares[rarest]))
        for _, run in sorted(runs.items())
        if (rarest := rarest_class(run)) is not None and (shares := class_shares(run)) is not None
    ]
    if not found:
        return None
    mean, deviation = mean_sd([share for _, share in found])
    return {"mean": mean, "sd": deviation, "n": len(found), "classes": [name for name, _ in found]}


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
        "p": result.p,
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
