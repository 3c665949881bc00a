"""The page of a run or of a comparison: one file, nothing outside of it, no script."""

import warnings
from dataclasses import dataclass
from pathlib import Path

from motley.errors import InvalidConfig, InvalidRunFolder, MotleyWarning
from motley.record.comparison import CONFIG as COMPARE_CONFIG
from motley.record.comparison import load_comparison
from motley.record.files import write_text
from motley.record.folder import REPORT
from motley.record.load import load_run
from motley.report.accounts import faults_section, missing_section, traffic_section
from motley.report.columns import Table
from motley.report.facts import (
    Fact,
    Options,
    facts_of_comparison,
    facts_of_run,
    options_of,
    repeat_comparison,
    repeat_run,
)
from motley.report.material import Runs, with_summary
from motley.report.method_sections import method_sections
from motley.report.render import to_html
from motley.report.sections import Section, accuracy_sections
from motley.report.tables import comparison_table, run_table, single_runs
from motley.report.templating import template
from motley.report.wording import percent, plural

MOST_NOTES = 60


@dataclass(frozen=True)
class Page:
    """What the template shows."""

    title: str
    lead: str
    facts: list[Fact]
    options: list[Options]
    repeat: list[Fact]
    notes: list[str]
    table: Table
    oracle: list[str]
    sections: list[Section]


def build_report(path: Path, *, reference: str | None = None) -> str:
    """Return the report of a run folder or of the folder of a comparison as HTML, UTF-8.

    Whatever warnings the records give are shown on the page, and warned of again.

    Args:
        path: The folder.
        reference: Another row of a comparison that the others are compared with.

    Raises:
        InvalidConfig: The comparison has no such row, or the folder is one run.
        InvalidRunFolder: It is neither, or damaged beyond an incomplete last line.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", MotleyWarning)
        several = (path / COMPARE_CONFIG).is_file()
        page = _comparison_page(path, reference) if several else _run_page(path, reference)
    told = []
    for one in caught:
        warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
        if issubclass(one.category, MotleyWarning):
            told.append(str(one.message))
    page.notes[:0] = told
    hidden = len(page.notes) - MOST_NOTES
    if hidden > 0:
        page.notes[MOST_NOTES:] = [f"and {hidden} more; summary.json and log.txt have all of them"]
    return template("page.html.j2").render(page=page, table=to_html(page.table))


def write_report(path: Path, *, replace: bool = False, reference: str | None = None) -> Path:
    """Write the report of a folder into the folder and return its path.

    Raises:
        InvalidConfig: As for `build_report`.
        InvalidRunFolder: As for `build_report`, or there is a report already and `replace` is false.
    """
    target = path / REPORT
    if target.exists() and not replace:
        raise InvalidRunFolder(f"{target} exists already; write it anew with --replace")
    write_text(target, build_report(path, reference=reference))
    return target


def _run_page(path: Path, reference: str | None) -> Page:
    run = with_summary(load_run(path))
    if reference is not None:
        raise InvalidConfig(f"{path} is one run, in which nothing is compared with '{reference}'; name a comparison")
    runs: dict[str, Runs] = {run.method: {run.seed: run}}
    return Page(
        title=f"{run.method}, seed {run.seed}",
        lead="One run.",
        facts=facts_of_run(run),
        options=options_of(run.config),
        repeat=repeat_run(run),
        notes=_notes(runs),
        table=run_table(run),
        oracle=_oracle(runs),
        sections=_sections(runs),
    )


def _comparison_page(path: Path, reference: str | None) -> Page:
    comparison = load_comparison(path)
    comparison = comparison if reference is None else comparison.against(reference)
    runs = single_runs(comparison)
    methods, seeds = comparison.config["compare"]["methods"], comparison.config["compare"]["seeds"]
    return Page(
        title=" against ".join(methods) if len(methods) <= 3 else f"Comparison of {len(methods)} methods",
        lead=f"A comparison of {plural(len(methods), 'method')} on {plural(len(seeds), 'seed')}.",
        facts=facts_of_comparison(comparison, runs),
        options=options_of(comparison.config),
        repeat=repeat_comparison(comparison),
        notes=_notes(runs),
        table=comparison_table(comparison),
        oracle=_oracle(runs),
        sections=_sections(runs),
    )


def _sections(runs: dict[str, Runs]) -> list[Section]:
    accounts = [*faults_section(runs), missing_section(runs), traffic_section(runs)]
    return [*accuracy_sections(runs), *method_sections(runs), *accounts]


def _notes(runs: dict[str, Runs]) -> list[str]:
    """Return notes and warnings, each once, with the runs that gave it if not all did."""
    places: dict[str, list[str]] = {}
    for method, own in runs.items():
        for seed, run in own.items():
            for text in [*run.summary.get("notes", []), *run.summary.get("warnings", [])]:
                places.setdefault(str(text), []).append(f"{method} seed {seed}")
    total = sum(map(len, runs.values()))
    return [text if len(where) == total else f"{text} ({', '.join(where)})" for text, where in places.items()]


def _oracle(runs: dict[str, Runs]) -> list[str]:
    """Return one line a method."""
    lines = []
    for method, own in runs.items():
        best = {seed: run.summary.get("best_test_round") or {} for seed, run in own.items()}
        shown = [
            f"{percent(one['local_accuracy'])} % (seed {seed}, round {one['round']})"
            for seed, one in best.items()
            if one
        ]
        if shown:
            lines.append(f"{method}: {', '.join(shown)}")
    return lines
