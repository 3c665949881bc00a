"""Ranks of the rows of several comparisons, each of which is one setting: a data set, a partition, ..."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from motley.errors import InvalidConfig
from motley.functional.ranks import FriedmanTest, friedman, holm, ranks_of, signed_rank_p
from motley.functional.statistics import mean_sd
from motley.record.comparison import Comparison, load_comparison
from motley.record.sweep import CONFIG as SWEEP_CONFIG
from motley.record.sweep import Sweep, load_sweep, point_text

FEWEST_SETTINGS, FEWEST_ROWS = 5, 3  # with fewer, a test over ranks says nothing


@dataclass(frozen=True)
class Ranking:
    """Rows ranked in every setting by their local accuracy at the last round, 1 for the best.

    Attributes:
        names: The rows that all settings have.
        reference: The one that the others are tested against.
        settings: Names of the settings that count.
        values: Of every such setting, the mean of each row over the seeds that all rows have finished; fractions.
        open: Names of the settings without such a seed.
        other_rows: Rows that only some settings have.
    """

    names: tuple[str, ...]
    reference: str
    settings: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]
    open: tuple[str, ...] = ()
    other_rows: tuple[str, ...] = field(default=())

    @cached_property
    def ranks(self) -> list[list[float]]:
        """Return the ranks, settings by rows."""
        found: list[list[float]] = ranks_of(self.values).tolist() if self.values and self.names else []
        return found

    @property
    def mean_ranks(self) -> dict[str, float | None]:
        """Return the mean rank over settings of every row."""
        return {name: mean_sd([own[place] for own in self.ranks]).mean for place, name in enumerate(self.names)}

    @property
    def tested(self) -> bool:
        """Tell whether there are enough settings and rows for a test."""
        return len(self.settings) >= FEWEST_SETTINGS and len(self.names) >= FEWEST_ROWS

    @cached_property
    def friedman(self) -> FriedmanTest | None:
        """Return Friedman's test over all rows, or None without enough settings or rows."""
        return friedman(ranks_of(self.values)) if self.tested else None

    @cached_property
    def against_reference(self) -> dict[str, tuple[float, float]]:
        """Return Wilcoxon's p value of every other row against the reference, plain and adjusted by Holm."""
        if not self.tested:
            return {}
        place = self.names.index(self.reference)
        others = [one for one in range(len(self.names)) if one != place]
        plain = [signed_rank_p([own[other] - own[place] for own in self.values]) for other in others]
        return {self.names[one]: pair for one, pair in zip(others, zip(plain, holm(plain), strict=True), strict=True)}

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain values."""
        test = self.friedman
        return {
            "settings": list(self.settings),
            "left_out": list(self.open),
            "reference": self.reference,
            "table": [
                {
                    "method": name,
                    "mean_rank": self.mean_ranks[name],
                    "ranks": [own[place] for own in self.ranks],
                    "local_accuracy": [own[place] for own in self.values],
                    **dict(zip(("p", "p_holm"), self.against_reference.get(name, ()), strict=False)),
                }
                for place, name in enumerate(self.names)
            ],
            "friedman": None
            if test is None
            else {
                "chi_square": test.chi_square,
                "p": test.p,
                "f": test.f if test.f_p else None,
                "f_p": test.f_p,
                "freedom": test.freedom,
            },
        }


def rank_settings(settings: Sequence[tuple[str, Comparison]], reference: str | None = None) -> Ranking:
    """Rank the rows that all comparisons have; settings where a row has no finished run do not count.

    Args:
        settings: Names and comparisons, one or more.
        reference: The row that the others are tested against; that of the first comparison if None.

    Raises:
        InvalidConfig: They have fewer than two rows in common, or the reference is none of these.
    """
    everything = dict.fromkeys(name for _, comparison in settings for name in comparison.names)
    names = tuple(name for name in everything if all(name in comparison.names for _, comparison in settings))
    if len(names) < 2:
        raise InvalidConfig(
            f"ranks need two rows that all settings have; of {', '.join(everything)} they share "
            f"{', '.join(names) or 'none'}"
        )
    reference = reference or settings[0][1].reference
    if reference not in names:
        raise InvalidConfig(
            f"the reference '{reference}' is not a row of all settings; choose one of {', '.join(names)} by --reference"
        )
    found = {setting: _values(comparison, names) for setting, comparison in settings}
    known = {setting: values for setting, values in found.items() if values}
    return Ranking(
        names,
        reference,
        tuple(known),
        tuple(known.values()),
        tuple(setting for setting in found if setting not in known),
        tuple(name for name in everything if name not in names),
    )


def load_settings(paths: Sequence[Path]) -> list[tuple[str, Comparison]]:
    """Return the comparisons of folders, and all points of those that are sweeps, with names that tell them apart.

    Raises:
        InvalidConfig: There is only one, or a sweep is over an option of a method: then its points are no settings.
        InvalidRunFolder: A folder is neither comparison nor sweep, or damaged.
    """
    settings: list[tuple[str, Comparison]] = []
    for path in paths:
        name = path.name if [one.name for one in paths].count(path.name) == 1 else str(path)
        if not (path / SWEEP_CONFIG).is_file():
            settings.append((name, load_comparison(path)))
            continue
        sweep = load_sweep(path)
        if not sweep.has_settings:
            raise InvalidConfig(f"{path} sweeps an option of a method, so that its points are no settings to rank in")
        settings += [(f"{name}: {point}" if len(paths) > 1 else point, one) for point, one in point_settings(sweep)]
    if len(settings) < 2:
        raise InvalidConfig("ranks need several settings; name two comparisons or more, or a sweep")
    return settings


def point_settings(sweep: Sweep) -> list[tuple[str, Comparison]]:
    """Return the points of a sweep as settings."""
    return [(point_text(point), one) for point, one in zip(sweep.points, sweep.comparisons, strict=True)]


def _values(comparison: Comparison, names: Sequence[str]) -> tuple[float, ...]:
    """Return the mean accuracy of each row over the seeds that all of them have finished; empty without one."""
    by_row = [
        {
            seed: float(value)
            for seed, run in comparison.runs.get(name, {}).items()
            if run.finished and (value := run.final.get("local_accuracy")) is not None
        }
        for name in names
    ]
    seeds = sorted(set.intersection(*map(set, by_row)))
    return tuple(sum(own[seed] for seed in seeds) / len(seeds) for own in by_row) if seeds else ()
