"""The end of a run or a comparison: the report is written, the table printed, and where everything is."""

from pathlib import Path

from motley.cli.output import print_table


def show_result(path: Path, *, as_json: bool) -> None:
    print_table(f"TODO {path}")


def render_table(path: Path, form: str) -> None:
    print_table(f"TODO {path}")
