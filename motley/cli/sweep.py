"""`motley sweep`."""

from pathlib import Path
from typing import Any

from motley.cli.command import command, extra, make_app
from motley.cli.compare import comparison_flags, method_flags, plain_value
from motley.cli.flags import section_parameters
from motley.cli.output import warnings_to_stderr
from motley.cli.progress import RunProgress
from motley.cli.results import show_sweep
from motley.engine.comparison import CompareWatch, plan_comparison
from motley.engine.config import ConfigFile, flag_fields
from motley.engine.sweep import SweepWatch, make_grid, plan_sweep, play_sweep, read_sweep
from motley.errors import InvalidConfig

HELP = """Run the same comparison at every point of a grid of option values.

    motley sweep --methods fedtopo --over fedtopo.strength=0.5,1,2 --seeds 0,1,2
    motley sweep --methods local,fedtopo --over partition.scheme=iid,dirichlet:1
    motley sweep --methods local --over train.lr=0.01,0.1 --over run.rounds=5,20
    motley sweep --config sweep.toml --out runs/sweep

A field is SECTION.FIELD or METHOD.OPTION; several --over make a grid of all combinations. In a file the grid stands in
the section [sweep] as lists of values. One table (table.md, table.csv) and one figure (figure.svg) are written; 'motley
resume DIR', or the same command again, runs what is left.
"""


def _sweep(values: dict[str, Any]) -> None:
    file, grid = read_sweep(values["config"]) if "config" in values else (ConfigFile(), {})
    over = make_grid(map(_axis, values.get("over", ())), "--over")
    flags = {flag: value for flag, value in values.items() if flag in flag_fields()}
    options = method_flags(values.get("set", ()))
    grid |= over
    fixed = {".".join(flag_fields()[flag]): f"--{flag.replace('_', '-')}" for flag in flags}
    fixed |= {f"{method}.{name}": f"--set {method}.{name}" for method, own in options.items() for name in own}
    if both := [place for place in grid if place in fixed]:
        raise InvalidConfig(f"{both[0]} is swept and given by {fixed[both[0]]}; keep one of the two")
    base = plan_comparison(
        file,
        flags,
        options,
        methods=values.get("methods", ()) or (() if "methods" in file.compare or not file.method else (file.method,)),
        seeds=values.get("seeds", ()),
        reference=values.get("reference"),
    )
    plan = plan_sweep(base, grid)
    with warnings_to_stderr(), RunProgress() as progress:
        sweep = play_sweep(plan, values.get("out"), sweep_watch(progress))
    show_sweep(sweep.path, as_json=values["json"])


def sweep_watch(progress: RunProgress) -> SweepWatch:
    """Return what the engine calls: every run is labelled with its point and its number there, method and seed."""

    def began_point(position: int, total: int, text: str) -> CompareWatch:
        place = f"point {position + 1}/{total}"
        return CompareWatch(
            lambda method, seed, run, runs: progress.watch(
                f"[{place}, run {run + 1}/{runs}] {text}: {method}, seed {seed}"
            )
        )

    return SweepWatch(began_point)


def _axis(text: str) -> tuple[str, list[Any]]:
    place, equals, values = text.partition("=")
    if not equals:
        raise InvalidConfig(f"--over {text}: write SECTION.FIELD=A,B,C, for example fedtopo.strength=0.5,1,2")
    return place.strip(), [plain_value(word.strip()) for word in values.split(",") if word.strip()]


app = make_app("sweep", HELP)
app.default(
    command(
        _sweep,
        [
            extra("over", tuple[str, ...], "SECTION.FIELD=A,B,C, the values of one option; may be repeated"),
            *comparison_flags(),
            extra("out", Path, "folder of the sweep  [default: runs/sweep-DATE-TIME]"),
            extra("config", Path, "TOML file with options and a section [sweep]; flags win over it"),
            extra("json", bool, "print the tables as JSON", default=False),
            *[one for one in section_parameters() if one.name != "seed"],
        ],
        HELP,
    )
)
