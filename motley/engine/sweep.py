"""A sweep: the same comparison at every point of a grid of option values; what is finished is never run again."""

import shutil
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import tomli_w

from motley.data.dataset import Dataset
from motley.data.sources import load_dataset
from motley.engine.comparison import CompareWatch, Plan, is_finished, plan_comparison, resume_comparison
from motley.engine.config import SECTIONS, ConfigFile, flag_fields, parse_config, read_config
from motley.engine.runs import make_folder
from motley.engine.signals import StopSignals
from motley.engine.trial import Trial
from motley.errors import Interrupted, InvalidConfig, InvalidRunFolder, MotleyError
from motley.methods.registry import find_method
from motley.options import DataOptions
from motley.record.comparison import CONFIG as COMPARE_CONFIG
from motley.record.comparison import run_path
from motley.record.folder import RunFolder, check_free
from motley.record.sweep import CONFIG, Grid, Point, Sweep, Value, grid_points, load_sweep, point_path, point_text

EXAMPLE = "--over fedtopo.strength=0.5,1,2"


@dataclass(frozen=True)
class SweepPlan:
    """What a sweep runs.

    Attributes:
        base: The comparison that every point is a variant of.
        grid: Values by SECTION.FIELD.
        points: Their combinations.
        plans: The comparison at every point.
    """

    base: Plan
    grid: Grid
    points: tuple[Point, ...]
    plans: tuple[Plan, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as TOML holds it."""
        return {**self.base.to_dict(), "sweep": {place: list(values) for place, values in self.grid.items()}}


@dataclass(frozen=True)
class SweepWatch:
    """Whoever wants to see a sweep while it goes on.

    Attributes:
        began_point: Position from 0, number of points and text of the point that begins; returns who watches it.
    """

    began_point: Callable[[int, int, str], CompareWatch] = field(default=lambda *_: CompareWatch())


def read_sweep(path: Path) -> tuple[ConfigFile, dict[str, Sequence[Value]]]:
    """Read a configuration file that may have a section `sweep`; return the rest of it, and the grid.

    Raises:
        InvalidConfig: As for every configuration file, or the grid is none.
    """
    try:
        table = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except (OSError, ValueError):
        return read_config(path), {}  # which says what is wrong
    section = table.pop("sweep", {})
    if not isinstance(section, dict):
        raise InvalidConfig(f"{path}: 'sweep' must be a section [sweep] with lists of values, for example train.lr")
    return parse_config(table, str(path)), make_grid(_flat(section).items(), str(path))


def _flat(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return values by SECTION.FIELD, however deep the dots of TOML put them."""
    found: dict[str, Any] = {}
    for key, value in section.items():
        inner = _flat(value) if isinstance(value, dict) else {"": value}
        found |= {f"{key}.{name}".rstrip("."): one for name, one in inner.items()}
    return found


def make_grid(given: Any, name: str) -> dict[str, Sequence[Value]]:
    """Return a grid whose fields exist and which has no empty or repeated values.

    Args:
        given: Pairs of SECTION.FIELD and its values.
        name: Where they came from, for errors.

    Raises:
        InvalidConfig: It has a field that does not exist or cannot be swept, or a list of values that is none.
    """
    grid: dict[str, Sequence[Value]] = {}
    for place, values in given:
        section, dot, one = place.partition(".")
        if not dot or section in {"compare", "sweep", "method"}:
            home = next((f"{own[0]}.{own[1]}" for own in flag_fields().values() if own[1] == place), "")
            hint = f"did you mean '{home}'?" if home else f"write SECTION.FIELD or METHOD.OPTION as in {EXAMPLE}"
            raise InvalidConfig(f"{name}: '{place}' cannot be swept; {hint}")
        if not isinstance(values, list | tuple) or not values:
            raise InvalidConfig(f"{name}: {place} has no list of values; write some as in {EXAMPLE}")
        key = one.replace("-", "_")
        parse_config({section: {key: values[0]}}, name)  # which says what is unknown
        full = f"{section if section in SECTIONS else find_method(section).name}.{key}"
        if full == "run.seed":
            raise InvalidConfig(f"{name}: run.seed cannot be swept; give the seeds of all points by --seeds")
        if wrong := [value for value in values if not isinstance(value, bool | int | float | str)]:
            raise InvalidConfig(f"{name}: {full} holds {wrong[0]}; it must hold numbers, text, or true and false")
        twice = [value for value in values if list(map(repr, values)).count(repr(value)) > 1]
        if twice or full in grid:
            raise InvalidConfig(
                f"{name}: {' = '.join([full, *map(str, twice[:1])])} is given twice; keep one of the two"
            )
        grid[full] = tuple(values)
    return grid


def plan_sweep(base: Plan, grid: Grid) -> SweepPlan:
    """Check every option of every point before anything runs.

    Raises:
        InvalidConfig: The grid is empty, holds an option of a method that is not run, or a value is not accepted.
    """
    if not grid:
        raise InvalidConfig(f"nothing to sweep: give {EXAMPLE}, or a section [sweep] in the file of --config")
    for place in grid:
        section = place.partition(".")[0]
        if section not in {*SECTIONS, *base.methods}:
            raise InvalidConfig(f"{place} is swept, but {section} is not run; it runs {', '.join(base.methods)}")
        for name, changes in base.variants.items():
            if place.partition(".")[2] in changes.get(section, {}):
                raise InvalidConfig(
                    f"{place} is swept, but the variant '{name}' sets it; take it out of one of the two"
                )
    points = grid_points(grid)
    return SweepPlan(base, grid, points, tuple(_plan_point(base, point) for point in points))


def _plan_point(base: Plan, point: Point) -> Plan:
    table = base.to_dict()
    for place, value in point.items():
        section, _, name = place.partition(".")
        table[section] = {**table[section], name: value}
    if paper := table.pop("paper", None):
        published = paper.get("points", {}).get(point_text(point), paper.get("values", {}))
        table["paper"] = {**{key: one for key, one in paper.items() if key != "points"}, "values": published}
    return plan_comparison(parse_config(table, f"point {point_text(point)}"), {}, {})


def play_sweep(plan: SweepPlan, path: Path | None, watch: SweepWatch) -> Sweep:
    """Run a sweep in a new folder, one below `runs` if none is named, or what is left of the same sweep in its folder.

    Raises:
        InvalidRunFolder: The folder holds something else, or a sweep with another grid or other options.
        MotleyError: As for a single run; a mistake at any point is told before anything is written.
    """
    load = lru_cache(maxsize=1)(load_dataset)
    if path is not None and (path / CONFIG).is_file():
        _check_same(path, plan)
        return _play_all(plan, path, watch, load)
    if path is not None:
        check_free(path)
    _try_points(plan, load)
    folder = make_folder(path, "sweep", {CONFIG: tomli_w.dumps(plan.to_dict()).encode()})
    return _play_all(plan, folder.path, watch, load)


def resume_sweep(path: Path, watch: SweepWatch) -> Sweep:
    """Run what is left of a sweep.

    Raises:
        MotleyError: As for a single run.
    """
    config = dict(load_sweep(path).config)
    grid = make_grid(config.pop("sweep").items(), str(path / CONFIG))
    base = plan_comparison(parse_config(config, str(path / CONFIG)), {}, {})
    return play_sweep(plan_sweep(base, grid), path, watch)


def _check_same(path: Path, plan: SweepPlan) -> None:
    stored, asked = load_sweep(path).config, plan.to_dict()
    changed = [key for key in {**stored, **asked} if _text(stored.get(key, {})) != _text(asked.get(key, {}))]
    if changed or list(stored["sweep"]) != list(asked["sweep"]):
        words = {"sweep": "another grid", "compare": "other methods or seeds"}
        what = " and ".join(dict.fromkeys(words.get(key, f"other options in [{key}]") for key in changed or ["sweep"]))
        raise InvalidRunFolder(
            f"{path} is a sweep with {what}; continue it as it is with 'motley resume {path}' or choose another folder "
            "with --out"
        )


def _text(section: Any) -> str:
    return tomli_w.dumps({"section": section})


def _try_points(plan: SweepPlan, load: Callable[[DataOptions], Dataset]) -> None:
    trial = Trial(load)
    for point, comparison in zip(plan.points, plan.plans, strict=True):
        try:
            trial.check(comparison.configs(comparison.seeds[0]))
        except MotleyError as error:
            if error.exit_status == 2:
                raise InvalidConfig(f"point {point_text(point)}: {error}") from error
            raise


def _play_all(plan: SweepPlan, path: Path, watch: SweepWatch, load: Callable[[DataOptions], Dataset]) -> Sweep:
    signals, total, place = StopSignals(), len(plan.points), ""
    finished: dict[str, Path] = {}
    try:
        with signals.listen():
            for position, (point, comparison) in enumerate(zip(plan.points, plan.plans, strict=True)):
                folder = point_path(path, position, point)
                place = f"point {position + 1} of {total} ({point_text(point)})"
                runs = _runs(comparison, folder)
                if not all(map(is_finished, runs.values())):
                    if not folder.exists():
                        with signals.writing():
                            make_folder(folder, "", {COMPARE_CONFIG: tomli_w.dumps(comparison.to_dict()).encode()})
                    for key, run in runs.items():
                        if key in finished and not run.exists():
                            _copy_run(finished[key], run)
                    resume_comparison(
                        folder,
                        watch.began_point(position, total, point_text(point)),
                        dataset=load(comparison.rows[0].config.settings.data),
                    )
                finished = {**runs, **finished}
    except Interrupted as stop:
        text = f"interrupted in {place}; continue with: motley resume {path}"
        raise Interrupted(text, stop.exit_status) from None
    return load_sweep(path)


def _runs(plan: Plan, folder: Path) -> dict[str, Path]:
    """Return the folders of all runs of a point by their whole configuration."""
    return {
        tomli_w.dumps(plan.config(position, seed).to_dict()): run_path(folder, method, seed)
        for seed in plan.seeds
        for position, method in enumerate(plan.names)
    }


def _copy_run(source: Path, target: Path) -> None:
    """Take over a finished run with the same configuration from another point, in one step."""
    part = target.with_name(f".{target.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(source, part)
    RunFolder(part).log(f"copied from {source}, a run with the same configuration")
    part.rename(target)
