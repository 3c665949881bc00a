"""The end of a run or a comparison: the report is written, the table printed, and where everything is."""

from collections.abc import Callable
from pathlib import Path

from rich.console import RenderableType

from motley.cli.output import print_table, warnings_to_stderr
from motley.record.comparison import CONFIG, load_comparison
from motley.record.files import dump_json
from motley.record.load import load_run
from motley.report.page import write_report
from motley.report.render import to_csv, to_latex, to_markdown, to_rich
from motley.report.tables import Table, comparison_table, run_table

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


def render_table(path: Path, form: str) -> None:
    """Print the table of a folder in one of `FORMATS`."""
    is_comparison = (path / CONFIG).is_file()
    table = comparison_table(load_comparison(path)) if is_comparison else run_table(load_run(path))
    print_table(FORMATS[form](table))


def render_json(path: Path) -> None:
    """Print the figures of a folder as JSON: the lines of a comparison, or the summary of a run."""
    if (path / CONFIG).is_file():
        comparison = load_comparison(path)
        print_table(
            dump_json({"path": str(path), "reference": comparison.reference, "table": comparison.table()}, indent=1)
        )
    else:
        print_table(dump_json({"path": str(path), **load_run(path).summary}, indent=1))
