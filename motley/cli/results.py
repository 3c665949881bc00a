"""The end of a run or a comparison: the report is written, the table printed, and where everything is."""

from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import RenderableType

from motley.cli.output import print_table, warnings_to_stderr
from motley.errors import InvalidConfig
from motley.record.comparison import CONFIG, Comparison, load_comparison
from motley.record.files import dump_json
from motley.record.load import RunRecord, load_run
from motley.record.ranking import load_settings, rank_settings
from motley.record.sweep import CONFIG as SWEEP_CONFIG
from motley.record.sweep import Sweep, load_sweep
from motley.report.columns import Table
from motley.report.page import write_report
from motley.report.published import published_table
from motley.report.ranks import rank_table
from motley.report.render import to_csv, to_latex, to_markdown, to_rich
from motley.report.studies import STUDIES, study_table
from motley.report.sweep import sweep_ranking, sweep_table, write_sweep
from motley.report.tables import comparison_table, run_table

FORMATS: dict[str, Callable[[Table], RenderableType]] = {
    "text": to_rich,
    "markdown": to_markdown,
    "latex": to_latex,
    "csv": to_csv,
}


def show_result(path: Path, *, as_json: bool) -> None:
    """Write the report of a folder anew, print its table or its figures, and say where everything is."""
    with warnings_to_stderr():
        report = write_report(path, replace=True)
        if as_json:
            render_json(path)
            return
        render_table(path, "text")
    print_table(f"written to {path}; report: {report}")


def show_sweep(path: Path, *, as_json: bool) -> None:
    """Write table and figure of a sweep anew, print its table or its figures, and say where everything is."""
    with warnings_to_stderr():
        files = write_sweep(load_sweep(path))
        if as_json:
            render_json(path)
            return
        render_table(path, "text")
    print_table(f"written to {path}: {', '.join(file.name for file in files)}")


def render_table(path: Path, form: str, *, reference: str | None = None, caption: str = "") -> None:
    """Print the table of a folder in one of `FORMATS`.

    Args:
        path: Of a run, a comparison or a sweep.
        form: Which of the formats.
        reference: Another row that the others are compared with.
        caption: Of a table in LaTeX.

    Raises:
        InvalidConfig: The folder has no such row.
    """
    _print(_table(path, reference), form, caption)


def _print(table: Table, form: str, caption: str) -> None:
    print_table(to_latex(table, caption) if caption else FORMATS[form](table))


def _table(path: Path, reference: str | None) -> Table:
    if (path / SWEEP_CONFIG).is_file():
        return sweep_table(sweep_of(path, reference))
    if (path / CONFIG).is_file():
        return comparison_table(comparison_of(path, reference))
    return run_table(run_of(path, reference))


def sweep_of(path: Path, reference: str | None) -> Sweep:
    """Return the sweep in a folder, against another reference if one is given."""
    sweep = load_sweep(path)
    return sweep if reference is None else sweep.against(reference)


def comparison_of(path: Path, reference: str | None) -> Comparison:
    """Return the comparison in a folder, against another reference if one is given."""
    comparison = load_comparison(path)
    return comparison if reference is None else comparison.against(reference)


def run_of(path: Path, reference: str | None) -> RunRecord:
    """Return the run in a folder, which has nothing to be compared with.

    Raises:
        InvalidConfig: A reference is given.
    """
    run = load_run(path)
    if reference is not None:
        raise InvalidConfig(f"{path} is one run, which has no --reference; name the folder of a comparison")
    return run


def render_ranks(paths: Sequence[Path], form: str, *, reference: str | None = None, caption: str = "") -> None:
    """Print the ranks of rows over comparisons and the points of sweeps, in one of `FORMATS` or as JSON.

    Raises:
        InvalidConfig: These are fewer than two settings, or share fewer than two rows.
    """
    ranking = rank_settings(load_settings(paths), reference)
    if form == "json":
        print_table(dump_json(ranking.to_dict(), indent=1))
    else:
        _print(rank_table(ranking), form, caption)


def render_published(path: Path, form: str, *, reference: str | None = None, caption: str = "") -> None:
    """Print, in one of `FORMATS` or as JSON, the figures of a run or a comparison as public code reports them.

    Raises:
        InvalidConfig: The folder is a sweep.
    """
    if (path / SWEEP_CONFIG).is_file():
        raise InvalidConfig(f"{path} is a sweep; name one of the comparisons in {path / 'points'} to see --published")
    if (path / CONFIG).is_file():
        comparison = comparison_of(path, reference)
        rows = {name: comparison.runs.get(name, {}) for name in comparison.config["compare"]["methods"]}
        table = published_table(rows, comparison.reference, comparison.config.get("paper"))
    else:
        run = run_of(path, reference)
        table = published_table({run.method: {run.seed: run}}, None)
    _print_or_dump(path, table, form, caption)


def render_study(path: Path, name: str, form: str, *, reference: str | None = None, caption: str = "") -> None:
    """Print, in one of `FORMATS` or as JSON, a table of a comparison for one question.

    Raises:
        InvalidConfig: There is no such question, or the folder is no comparison.
    """
    if name not in STUDIES:
        raise InvalidConfig(f"--study is '{name}'; it can be {', '.join(STUDIES)}")
    if not (path / CONFIG).is_file():
        raise InvalidConfig(f"{path} is no comparison; --study needs one, also one below 'points' of a sweep")
    _print_or_dump(path, study_table(comparison_of(path, reference), name), form, caption)


def _print_or_dump(path: Path, table: Table, form: str, caption: str) -> None:
    if form != "json":
        _print(table, form, caption)
        return
    data = {name: values for column in table.columns for name, values in column.data.items()}
    lines = [dict(zip(data, values, strict=True)) for values in zip(*data.values(), strict=True)]
    print_table(dump_json({"path": str(path), "remarks": table.remarks, "table": lines}, indent=1))


def render_json(path: Path, *, reference: str | None = None) -> None:
    """Print the figures of a folder as JSON: the lines of a comparison or of every point, or the summary of a run."""
    if (path / SWEEP_CONFIG).is_file():
        sweep = sweep_of(path, reference)
        points = [
            {"point": point, "path": str(comparison.path), "table": comparison.table()}
            for point, comparison in zip(sweep.points, sweep.comparisons, strict=True)
        ]
        ranking = sweep_ranking(sweep)
        told = {"path": str(path), "sweep": sweep.grid, "points": points}
        print_table(dump_json(told if ranking is None else {**told, "ranks": ranking.to_dict()}, indent=1))
    elif (path / CONFIG).is_file():
        comparison = comparison_of(path, reference)
        told = {"path": str(path), "reference": comparison.reference, "table": comparison.table()}
        print_table(dump_json({**told, "remarks": comparison_table(comparison).remarks}, indent=1))
    else:
        print_table(dump_json({"path": str(path), **run_of(path, reference).summary}, indent=1))
