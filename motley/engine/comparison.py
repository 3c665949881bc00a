"""Several methods on the same seeds, each run in a folder of its own; finished ones are never run again."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomli_w

from motley.data.dataset import Dataset
from motley.data.sources import load_dataset
from motley.engine.config import ConfigFile, RunConfig, parse_config
from motley.engine.runs import Material, Watch, make_folder, resume_run, start_run
from motley.engine.signals import StopSignals
from motley.engine.trial import Trial
from motley.engine.variants import Row, make_row, nested
from motley.errors import Interrupted, InvalidConfig, MotleyWarning, RunDiverged
from motley.models.assign import ModelFactory
from motley.options import DataOptions
from motley.record.comparison import CONFIG, Comparison, load_comparison, run_path
from motley.record.folder import check_free
from motley.record.load import load_run

Load = Callable[[DataOptions], Dataset]


@dataclass(frozen=True)
class Plan:
    """What a comparison runs.

    Attributes:
        rows: Methods and variants of methods.
        seeds: The seeds, the same for every row.
        reference: Name of the row that the others are compared with.
        variants: What the variants among the rows change, by name.
        paper: Published figures that the result is held against (section `paper` of a file).
    """

    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    reference: str
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    paper: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the rows."""
        return tuple(row.name for row in self.rows)

    @property
    def methods(self) -> tuple[str, ...]:
        """Return the names of the methods, each once."""
        return tuple(dict.fromkeys(row.config.method for row in self.rows))

    def config(self, position: int, seed: int) -> RunConfig:
        """Return the configuration of one run."""
        config = self.rows[position].config
        run = replace(config.settings.run, seed=seed)
        return replace(config, settings=replace(config.settings, run=run))

    def configs(self, seed: int) -> list[RunConfig]:
        """Return the configurations of all rows with a seed."""
        return [self.config(position, seed) for position in range(len(self.rows))]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as TOML holds it."""
        table: dict[str, Any] = {
            "compare": {"methods": list(self.names), "seeds": list(self.seeds), "reference": self.reference}
        }
        for row in self.rows:
            table |= {name: value for name, value in row.base.to_dict().items() if name != "method"}
        extra = {"variants": dict(self.variants), "paper": dict(self.paper)}
        return table | {name: value for name, value in extra.items() if value}


@dataclass(frozen=True)
class CompareWatch:
    """Whoever wants to see a comparison while it goes on.

    Attributes:
        began_run: Name of the row, seed, position from 0 and number of the run that begins; returns who watches it.
    """

    began_run: Callable[[str, int, int, int], Watch] = field(default=lambda *_: Watch())


def plan_comparison(
    file: ConfigFile,
    flags: dict[str, Any],
    method_flags: dict[str, dict[str, Any]],
    *,
    methods: Sequence[str] = (),
    seeds: Sequence[int] = (),
    reference: str | None = None,
) -> Plan:
    """Check everything that a comparison will run before anything runs.

    Raises:
        InvalidConfig: Nothing to compare, a method or a seed twice, or an option that is not accepted.
    """
    asked = tuple(methods) or tuple(file.compare.get("methods", ()))
    if not methods:
        asked += tuple(name for name in file.variants if name not in asked)
    seeds = tuple(seeds) or tuple(file.compare.get("seeds", ())) or (0,)
    if not asked:
        raise InvalidConfig("nothing to compare: give --methods, for example --methods local,fedtopo")
    if not all(isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in seeds):
        raise InvalidConfig(f"compare.seeds are {list(seeds)}; they must be whole numbers, 0 or larger")
    rows = _with_one_proxy(tuple(make_row(name, file, flags, method_flags) for name in asked))
    names = [row.name for row in rows]
    run = {row.config.method for row in rows}
    if others := [method for method in method_flags if method not in run]:
        raise InvalidConfig(
            f"options are set for {', '.join(others)}, which the comparison does not run; it runs {', '.join(names)}"
        )
    given: tuple[tuple[str, list[Any]], ...] = (("method", names), ("seed", list(seeds)))
    for kind, values in given:
        twice = sorted({str(value) for value in values if values.count(value) > 1})
        if twice:
            raise InvalidConfig(f"{kind} {', '.join(twice)} is given twice; each is run once")
    chosen = reference or file.compare.get("reference") or names[0]
    if chosen not in names:
        raise InvalidConfig(
            f"the reference '{chosen}' is not one of the methods ({', '.join(names)}); add it to --methods"
        )
    variants = {name: nested(file.variants[name]) for name in names if name in file.variants}
    return Plan(rows, seeds, chosen, variants, file.paper)


def _with_one_proxy(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Return the rows with the proxy set of those that need one, so that all have the same partition."""
    sizes = [row.config.settings.data.proxy for row in rows if row.config.settings.data.proxy is not None]
    if not sizes:
        return rows

    def with_proxy(config: RunConfig) -> RunConfig:
        data = replace(config.settings.data, proxy=max(sizes))
        return replace(config, settings=replace(config.settings, data=data))

    return tuple(replace(row, base=with_proxy(row.base), config=with_proxy(row.config)) for row in rows)


def start_comparison(
    plan: Plan,
    path: Path | None,
    watch: CompareWatch,
    *,
    dataset: Dataset | None = None,
    factory: ModelFactory | None = None,
) -> Comparison:
    """Run a comparison in a new folder, one below `runs` if none is named.

    A run whose numbers are no longer finite is warned of and left unfinished; the others go on.

    Raises:
        MotleyError: As for a single run; finished runs are kept.
    """
    load = _loader(dataset)
    if path is not None:
        check_free(path)
    Trial(load, factory).check(plan.configs(plan.seeds[0]))  # before a folder is made
    folder = make_folder(path, "compare", {CONFIG: tomli_w.dumps(plan.to_dict()).encode()})
    return _run_all(plan, folder.path, watch, load, factory)


def resume_comparison(
    path: Path, watch: CompareWatch, *, dataset: Dataset | None = None, factory: ModelFactory | None = None
) -> Comparison:
    """Run what is left of a comparison.

    Raises:
        MotleyError: As for a single run.
    """
    return _run_all(stored_plan(path), path, watch, _loader(dataset), factory)


def _loader(dataset: Dataset | None) -> Load:
    """Return what gives the samples of a row; rows that read the same share them."""
    return lru_cache(maxsize=1)(load_dataset) if dataset is None else lambda _: dataset


def stored_plan(path: Path) -> Plan:
    """Return the plan of a comparison's folder.

    Raises:
        InvalidRunFolder: It is none.
    """
    comparison = load_comparison(path)
    return plan_comparison(parse_config(comparison.config, str(path / CONFIG)), {}, {})


def _run_all(plan: Plan, path: Path, watch: CompareWatch, load: Load, factory: ModelFactory | None) -> Comparison:
    jobs = [(position, seed) for seed in plan.seeds for position in range(len(plan.rows))]
    signals, number = StopSignals(), 0
    try:
        with signals.listen():
            for number, (position, seed) in enumerate(jobs, start=1):
                name, config = plan.names[position], plan.config(position, seed)
                folder = run_path(path, name, seed)
                if is_finished(folder):
                    continue
                material = Material(load(config.settings.data), factory, signals)
                try:
                    if not folder.exists():
                        start_run(config, folder, material, watch.began_run(name, seed, number - 1, len(jobs)))
                    else:
                        resume_run(folder, material, watch.began_run(name, seed, number - 1, len(jobs)))
                except RunDiverged as error:
                    text = f"{name}, seed {seed}: {error}; the other runs go on without it"
                    warnings.warn(text, MotleyWarning, stacklevel=2)
    except Interrupted as stop:
        text = f"interrupted in run {number} of {len(jobs)}; continue with: motley resume {path}"
        raise Interrupted(text, stop.exit_status) from None
    return load_comparison(path)


def is_finished(run: Path) -> bool:
    """Tell whether a folder holds a run that reached its last round."""
    return run.exists() and load_run(run).finished
