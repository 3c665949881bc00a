"""Published figures beside ours (section `paper` of a configuration file)."""

from collections.abc import Mapping, Sequence
from typing import Any

from motley.report.columns import Column
from motley.report.wording import MISSING, points

GROUP = "paper"


def paper_columns(values: Mapping[str, Any], names: Sequence[str], ours: Sequence[float | None]) -> list[Column]:
    """Return what the paper prints for every row, and ours minus it.

    Args:
        values: Per cent by name of the row, alone or as mean and standard deviation; rows may lack one.
        names: The rows.
        ours: Fractions; None where there is none.
    """
    published = [_pair(values.get(name)) for name in names]
    means = [mean for mean, _ in published]
    shown = tuple(
        MISSING if mean is None else f"{mean:.2f}" if sd is None else f"{mean:.2f} ± {sd:.2f}" for mean, sd in published
    )
    differences = [
        None if mean is None or own is None else own - mean / 100 for mean, own in zip(means, ours, strict=True)
    ]
    return [
        Column(GROUP, "%", "paper %", shown, {"paper": tuple(None if mean is None else mean / 100 for mean in means)}),
        Column(
            GROUP,
            "ours - paper",
            "ours - paper",
            tuple(map(points, differences)),
            {"paper_difference": tuple(differences)},
        ),
    ]


def rules_of_paper(paper: Mapping[str, Any], columns: Sequence[Column]) -> list[str]:
    """Return where the published figures in a table are from."""
    if not _are_shown(columns):
        return []
    source = paper.get("source") or "published figures"
    return [f"paper: {source}, {_figure(paper)}; ours - paper in percentage points."]


def remark_on_paper(paper: Mapping[str, Any], columns: Sequence[Column]) -> list[str]:
    """Return why published figures do not stand in a table, if they do not."""
    if _are_shown(columns) or not paper.get("values"):
        return []
    return [f"The published figures are left out: they are of {_figure(paper)}, and these runs have none."]


def _are_shown(columns: Sequence[Column]) -> bool:
    return any(column.group == GROUP for column in columns)


def _figure(paper: Mapping[str, Any]) -> str:
    part, _, selected = str(paper.get("figure", "local")).partition("_")
    return f"{part} accuracy{' at the selected round' if selected else ''}"


def _pair(value: Any) -> tuple[float | None, float | None]:
    if value is None:
        return None, None
    mean, *sd = value if isinstance(value, Sequence) else [value]
    return float(mean), float(sd[0]) if sd else None
