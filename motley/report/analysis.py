"""The files of an analysis: tables as Markdown and CSV, figures, all numbers as JSON, and relations for another run."""

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from motley.errors import InvalidRunFolder
from motley.record.analysis import RELATIONS, Analysis
from motley.record.files import dump_json, write_text
from motley.report.analysis_figures import analysis_figures
from motley.report.analysis_tables import analysis_tables, means_by_name
from motley.report.columns import Table
from motley.report.drawing import save_figure
from motley.report.render import to_csv, to_markdown
from motley.report.wording import plural

FOLDER, PAGE, NUMBERS = "analysis", "analysis.md", "analysis.json"


def check_free(path: Path, *, replace: bool) -> Path:
    """Return the folder of a run's analysis, before anything is computed for it.

    Raises:
        InvalidRunFolder: There is one and `replace` is false.
    """
    target = path / FOLDER
    if target.exists() and not replace:
        raise InvalidRunFolder(f"{target} exists already; write it anew with --replace")
    return target


def write_analysis(analysis: Analysis, *, replace: bool = False) -> Path:
    """Write the analysis of a run into its folder and return where it is.

    Raises:
        InvalidRunFolder: There is one and `replace` is false, or it cannot be written.
    """
    target = check_free(analysis.path, replace=replace)
    tables, figures = analysis_tables(analysis), analysis_figures(analysis)
    try:
        target.mkdir(exist_ok=True)
        for name, (_, table) in tables.items():
            write_text(target / f"{name}.csv", to_csv(table))
        for name, (figure, _) in figures.items():
            save_figure(figure, target / f"{name}.svg")
        write_text(target / RELATIONS, relations_text(analysis.mechanism.relations, analysis.class_names))
        write_text(target / NUMBERS, dump_json(plain(analysis), indent=1) + "\n")
        write_text(target / PAGE, _page(analysis, tables, figures))
    except OSError as error:
        raise InvalidRunFolder(
            f"{target} cannot be written ({error.strerror}); free the place or the rights"
        ) from error
    return target


def relations_text(relations: Tensor, class_names: Sequence[str]) -> str:
    """Return relations as CSV: the names of the classes, then C lines of C numbers that read back exactly."""
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(class_names)
    writer.writerows([[repr(value) for value in row] for row in relations.double().tolist()])
    return lines.getvalue()


def plain(analysis: Analysis) -> dict[str, Any]:
    """Return all numbers of an analysis for programs; None where there is none."""
    found, pairs = analysis.mechanism, analysis.mechanism.pairs
    points = found.prototypes
    return {
        "path": str(analysis.path),
        "method": analysis.method,
        "seed": analysis.seed,
        "round": analysis.round,
        "rounds": analysis.rounds,
        "class_names": list(analysis.class_names),
        "architectures": list(analysis.architectures),
        "feature": analysis.feature,
        "from_server": analysis.from_server,
        "draws": analysis.draws,
        "left_out": list(found.left_out),
        "means": means_by_name(analysis),
        "controls": [asdict(one) for one in found.controls],
        "clients": {
            "D_p": list(points.per_client) if points else None,
            "D_r": list(pairs.plain),
            "D_rs": list(pairs.scaled),
            "D_rs_norm": list(pairs.normalised),
            "D_r_own_removed": list(found.without_self),
            "D_p_own_removed": list(found.without_self_prototypes) if points else None,
        },
        "classes": {"D_p": points.per_class.tolist() if points else None},
        "pairs": {"D_r": pairs.per_pair.tolist()},
        "relations": found.relations.tolist(),
        "reliability": found.reliability.tolist(),
        "consistency": {
            kind: {name: asdict(one) for name, one in own.groups.items()} for kind, own in analysis.consistency.items()
        },
        "alignment": {name: asdict(one) for name, one in analysis.alignment.groups.items()}
        if analysis.alignment
        else None,
        "other_class": dict(analysis.other_class),
    }


def _page(analysis: Analysis, tables: dict[str, tuple[str, Table]], figures: dict[str, tuple[Figure, str]]) -> str:
    head = (
        f"{plural(len(analysis.architectures), 'client')}, {plural(len(analysis.class_names), 'class', 'classes')}, "
        f"after round {analysis.round} of {analysis.rounds}."
    )
    parts = [f"# Mechanism of {analysis.method}, seed {analysis.seed}", head]
    parts += [f"## {title}\n\n{to_markdown(table).rstrip()}" for title, table in tables.values()]
    parts += [f"![{caption}]({name}.svg)\n\n{caption}" for name, (_, caption) in figures.items()]
    return "\n\n".join(parts) + "\n"
