"""The end of a run or a comparison: the report is written, the table printed, and where everything is."""

from collections.abc import Callable
from pathlib import Path

from rich.console import RenderableType

from motley.cli.output import print_table, warnings_to_stderr
from motley.errors import InvalidConfig
from motley.record.comparison import CONFIG, load_comparison
from motley.record.files import dump_json
from motley.record.load import load_run
from motley.record.sweep import CONFIG as SWEEP_CONFIG
from motley.record.sweep import load_sweep
from motley.report.columns import Table
from motley.report.page import write_report
from motley.report.published import published_table
from motley.report.render import to_csv, to_latex, to_markdown, to_rich
from motley.report.sweep import sweep_table, write_sweep
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


def render_table(path: Path, form: str) -> None:
    """Print the table of a folder in one of `FORMATS`."""
    print_table(FORMATS[form](_table(path)))


def _table(path: Path) -> Table:
    if (path / SWEEP_CONFIG).is_file():
        return sweep_table(load_sweep(path))
    if (path / CONFIG).is_file():
        return comparison_table(load_comparison(path))
    return run_table(load_run(path))


def render_published(path: Path, form: str) -> None:
    """Print, in one of `FORMATS` or as JSON, the figures of a run or a comparison as public code reports them.

    Raises:
        InvalidConfig: The folder is a sweep.
    """
    if (path / SWEEP_CONFIG).is_file():
        raise InvalidConfig(f"{path} is a sweep; name one of the comparisons in {path / 'points'} to see --published")
    if (path / CONFIG).is_file():
        comparison = load_comparison(path)
        rows = {name: comparison.runs.get(name, {}) for name in comparison.config["compare"]["methods"]}
        table = published_table(rows, comparison.reference)
    else:
        run = load_run(path)
        table = published_table({run.method: {run.seed: run}}, None)
    if form != "json":
        print_table(FORMATS[form](table))
        return
    data = {name: values for column in table.columns for name, values in column.data.items()}
    lines = [dict(zip(data, values, strict=True)) for values in zip(*data.values(), strict=True)]
    print_table(dump_json({"path": str(path), "remarks": table.remarks, "table": lines}, indent=1))


def render_json(path: Path) -> None:
    """Print the figures of a folder as JSON: the lines of a comparison or of every point, or the summary of a run."""
    if (path / SWEEP_CONFIG).is_file():
        sweep = load_sweep(path)
        points = [
            {"point": point, "path": str(comparison.path), "table": comparison.table()}
            for point, comparison in zip(sweep.points, sweep.comparisons, strict=True)
        ]
        print_table(dump_json({"path": str(path), "sweep": sweep.grid, "points": points}, indent=1))
    elif (path / CONFIG).is_file():
        comparison = load_comparison(path)
        print_table(
            dump_json({"path": str(path), "reference": comparison.reference, "table": comparison.table()}, indent=1)
        )
    else:
        print_table(dump_json({"path": str(path), **load_run(path).summary}, indent=1))
