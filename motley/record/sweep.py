"""A sweep on disk: a grid of option values, and a comparison in a folder of its own for every point of it."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from motley.errors import InvalidRunFolder
from motley.record.comparison import CONFIG as COMPARE_CONFIG
from motley.record.comparison import Comparison, load_comparison

CONFIG, POINTS = "sweep.toml", "points"
LONGEST_NAME = 80  # of a point's folder

Value = bool | int | float | str
Grid = Mapping[str, Sequence[Value]]  # values by SECTION.FIELD, the first field changes slowest
Point = Mapping[str, Value]


@dataclass(frozen=True)
class Sweep:
    """A sweep on disk.

    Attributes:
        path: Its folder.
        config: What was asked for: the comparison that every point is a variant of, and the grid.
        points: The points in the order of the grid.
        comparisons: Their comparisons; one that has not begun holds no runs.
    """

    path: Path
    config: dict[str, Any]
    points: tuple[Point, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def grid(self) -> Grid:
        """Return the values by field."""
        grid: Grid = self.config["sweep"]
        return grid

    @property
    def has_settings(self) -> bool:
        """Tell whether its points are settings of the run alone; a method's option makes other rows, not a setting."""
        methods = Comparison(self.path, self.config, {}).methods.values()
        return not any(place.partition(".")[0] in methods for place in self.grid)

    def against(self, reference: str) -> "Sweep":
        """Return the same sweep with another row as the reference.

        Raises:
            InvalidConfig: It has no such row.
        """
        return replace(self, comparisons=tuple(comparison.against(reference) for comparison in self.comparisons))


def grid_points(grid: Grid) -> tuple[Point, ...]:
    """Return every combination of the values of a grid."""
    return tuple(dict(zip(grid, values, strict=True)) for values in product(*grid.values()))


def point_text(point: Point) -> str:
    """Return a point as a reader sees it: strength=0.5, scheme=dirichlet:1; sections stand where a name needs them."""
    names = [place.partition(".")[2] for place in point]
    return ", ".join(
        f"{name if names.count(name) == 1 else place}={value_text(value)}"
        for (place, value), name in zip(point.items(), names, strict=True)
    )


def value_text(value: Value) -> str:
    """Return a value as it is written on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def point_path(path: Path, position: int, point: Point) -> Path:
    """Return the folder of a point: its number, and its values in letters that every file system takes."""
    words = re.sub(r"[^A-Za-z0-9._=-]+", "-", point_text(point).replace(", ", "_"))
    return path / POINTS / f"{position + 1:03}_{words}"[:LONGEST_NAME].rstrip(".-_")


def load_sweep(path: str | Path) -> Sweep:
    """Read the folder of a sweep.

    Raises:
        InvalidRunFolder: It is none, or damaged.
    """
    path = Path(path)
    if not (path / CONFIG).is_file():
        raise InvalidRunFolder(f"{path} is no sweep: it has no {CONFIG}; name the folder that was printed")
    try:
        config = tomllib.loads((path / CONFIG).read_text(encoding="utf-8"))
        points = grid_points(config["sweep"])
        empty: dict[str, Any] = {"compare": config["compare"], "variants": config.get("variants", {})}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidRunFolder(f"{path / CONFIG} is damaged ({error}); restore it from a copy") from error
    folders = [point_path(path, position, point) for position, point in enumerate(points)]
    comparisons = tuple(
        load_comparison(folder) if (folder / COMPARE_CONFIG).is_file() else Comparison(folder, empty, {})
        for folder in folders
    )
    return Sweep(path, config, points, comparisons)
