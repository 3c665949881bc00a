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


def rules_of_paper(paper: Mapping[str, Any]) -> list[str]:
    """Return where the published figures are from."""
    if not paper:
        return []
    source = paper.get("source") or "published figures"
    return [f"paper: {source}, {paper.get('figure', 'local')} accuracy; ours - paper in percentage points."]


def _pair(value: Any) -> tuple[float | None, float | None]:
    if value is None:
        return None, None
    mean, *sd = value if isinstance(value, Sequence) else [value]
    return float(mean), float(sd[0]) if sd else None
