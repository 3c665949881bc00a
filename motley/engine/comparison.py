"""Several methods on the same seeds, each run in a folder of its own; finished ones are never run again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tomli_w

from motley.data.dataset import Dataset
from motley.data.sources import load_dataset
from motley.engine.config import ConfigFile, RunConfig, parse_config, resolve
from motley.engine.runs import Material, Watch, make_folder, resume_run, start_run
from motley.engine.signals import StopSignals
from motley.errors import Interrupted, InvalidConfig
from motley.models.assign import ModelFactory
from motley.record.comparison import CONFIG, Comparison, load_comparison, run_path
from motley.record.load import load_run


@dataclass(frozen=True)
class Plan:
    """What a comparison runs.

    Attributes:
        configs: One a method, with any seed.
        seeds: The seeds, the same for every method.
        reference: The method that the others are compared with.
    """

    configs: tuple[RunConfig, ...]
    seeds: tuple[int, ...]
    reference: str

    @property
    def methods(self) -> tuple[str, ...]:
        """Return the names of the methods."""
        return tuple(config.method for config in self.configs)

    def config(self, position: int, seed: int) -> RunConfig:
        """Return the configuration of one run."""
        config = self.configs[position]
        run = replace(config.settings.run, seed=seed)
        return replace(config, settings=replace(config.settings, run=run))

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as TOML holds it."""
        table: dict[str, Any] = {
            "compare": {"methods": list(self.methods), "seeds": list(self.seeds), "reference": self.reference}
        }
        for config in self.configs:
            table |= {name: value for name, value in config.to_dict().items() if name != "method"}
        return table


@dataclass(frozen=True)
class CompareWatch:
    """Whoever wants to see a comparison while it goes on.

    Attributes:
        began_run: Method, seed, position from 0 and number of the run that begins; returns who watches it.
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
    methods = tuple(methods) or tuple(file.compare.get("methods", ()))
    seeds = tuple(seeds) or tuple(file.compare.get("seeds", ())) or (0,)
    if not methods:
        raise InvalidConfig("nothing to compare: give --methods, for example --methods local,fedtopo")
    if not all(isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0 for seed in seeds):
        raise InvalidConfig(f"compare.seeds are {list(seeds)}; they must be whole numbers, 0 or larger")
    configs = tuple(resolve(method, file, flags, method_flags.get(method, {})) for method in methods)
    configs = _with_one_proxy(configs)
    names = [config.method for config in configs]
    if others := [method for method in method_flags if method not in names]:
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
    return Plan(configs, seeds, chosen)


def _with_one_proxy(configs: tuple[RunConfig, ...]) -> tuple[RunConfig, ...]:
    """Return the configurations with the proxy set of those that need one, so that all have the same partition."""
    sizes = [config.settings.data.proxy for config in configs if config.settings.data.proxy is not None]
    if not sizes:
        return configs
    data = replace(configs[0].settings.data, proxy=max(sizes))
    return tuple(replace(config, settings=replace(config.settings, data=data)) for config in configs)


def start_comparison(
    plan: Plan,
    path: Path | None,
    watch: CompareWatch,
    *,
    dataset: Dataset | None = None,
    factory: ModelFactory | None = None,
) -> Comparison:
    """Run a comparison in a new folder, one below `runs` if none is named.

    Raises:
        MotleyError: As for a single run; finished runs are kept.
    """
    ready = dataset if dataset is not None else load_dataset(plan.configs[0].settings.data)
    folder = make_folder(path, "compare", {CONFIG: tomli_w.dumps(plan.to_dict()).encode()})
    return _run_all(plan, folder.path, watch, ready, factory)


def resume_comparison(
    path: Path, watch: CompareWatch, *, dataset: Dataset | None = None, factory: ModelFactory | None = None
) -> Comparison:
    """Run what is left of a comparison.

    Raises:
        MotleyError: As for a single run.
    """
    plan = stored_plan(path)
    ready = dataset if dataset is not None else load_dataset(plan.configs[0].settings.data)
    return _run_all(plan, path, watch, ready, factory)


def stored_plan(path: Path) -> Plan:
    """Return the plan of a comparison's folder.

    Raises:
        InvalidRunFolder: It is none.
    """
    comparison = load_comparison(path)
    return plan_comparison(parse_config(comparison.config, str(path / CONFIG)), {}, {})


def _run_all(plan: Plan, path: Path, watch: CompareWatch, dataset: Dataset, factory: ModelFactory | None) -> Comparison:
    jobs = [(position, seed) for seed in plan.seeds for position in range(len(plan.configs))]
    signals, number = StopSignals(), 0
    try:
        with signals.listen():
            for number, (position, seed) in enumerate(jobs, start=1):
                config = plan.config(position, seed)
                folder = run_path(path, config.method, seed)
                material = Material(dataset, factory, signals)
                if not folder.exists():
                    start_run(config, folder, material, watch.began_run(config.method, seed, number - 1, len(jobs)))
                elif not load_run(folder).finished:
                    resume_run(folder, material, watch.began_run(config.method, seed, number - 1, len(jobs)))
    except Interrupted as stop:
        text = f"interrupted in run {number} of {len(jobs)}; continue with: motley resume {path}"
        raise Interrupted(text, stop.exit_status) from None
    return load_comparison(path)
