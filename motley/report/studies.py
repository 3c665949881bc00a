"""Tables of a comparison for one question: accuracy by what a client has of classes, and convergence."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from motley.functional.statistics import mean_sd, paired_difference
from motley.record.comparison import Comparison
from motley.record.load import RunRecord
from motley.record.studies import Figures, by_held_classes, by_support, convergence
from motley.report.columns import Column, Table
from motley.report.material import finished
from motley.report.wording import MISSING, interval, percent, points


@dataclass(frozen=True)
class Study:
    """One question.

    Attributes:
        figures: What is taken of every run.
        rule: How it was made.
    """

    figures: Callable[[RunRecord], Figures]
    rule: str


STUDIES = {
    "support": Study(
        by_support,
        "Accuracy in per cent in the last round on the classes that a client has most of, fewest of, and none of: mean "
        "over classes and clients, on the common test set where there is one, else on the client's own test part.",
    ),
    "classes": Study(
        by_held_classes,
        "Local accuracy in per cent in the last round, the mean over the clients that hold few classes and over those "
        "that hold more.",
    ),
    "convergence": Study(
        convergence,
        "The first evaluated round with 95 % of the last local accuracy, and the deviation of the accuracy over the "
        "evaluated ones of the last 20 rounds, in points.",
    ),
}


def study_table(comparison: Comparison, name: str) -> Table:
    """Return means over seeds of the figures of `STUDIES[name]`, with paired differences to the reference."""
    study = STUDIES[name]
    rows = comparison.config["compare"]["methods"]
    taken = {
        row: {seed: study.figures(run) for seed, run in finished(comparison.runs.get(row, {})).items()} for row in rows
    }
    titles = list(dict.fromkeys(title for own in taken.values() for figures in own.values() for title in figures))
    names = tuple(map(str, rows))
    columns = [
        Column("", "method", "method", names, {"method": names}, text=True),
        Column(
            "", "n", "n", tuple(str(len(taken[row])) for row in rows), {"n": tuple(len(taken[row]) for row in rows)}
        ),
    ]
    for title in titles:
        columns += _columns(title, [_values(taken[row], title) for row in rows], rows.index(comparison.reference))
    rules = (
        study.rule,
        "n runs, one a seed. Differences to the reference are paired on equal seeds, with Student's 95 % interval.",
    )
    return Table(tuple(columns), rules)


def _values(taken: Mapping[int, Figures], title: str) -> dict[int, float]:
    return {seed: value for seed, figures in taken.items() if (value := figures.get(title)) is not None}


def _columns(title: str, values: Sequence[Mapping[int, float]], reference: int) -> list[Column]:
    rounds = title.startswith("rounds")
    show = (lambda value: MISSING if value is None else f"{value:.1f}") if rounds else percent
    means = [mean_sd(list(own.values())).mean for own in values]
    other = values[reference]
    paired = []
    for own in values:
        seeds = sorted(set(own) & set(other))
        paired.append(paired_difference([own[seed] for seed in seeds], [other[seed] for seed in seeds]))
    scale = 0.01 if rounds else 1.0  # `points` shows hundredths

    def between(position: int) -> str:
        one = paired[position]
        if position == reference:
            return "reference"
        if one.mean is None or one.low is None or one.high is None:
            return points(None if one.mean is None else scale * one.mean)
        return f"{points(scale * one.mean)} {interval(scale * one.low, scale * one.high)}"

    return [
        Column(title, "mean", title, tuple(map(show, means)), {title: tuple(means)}),
        Column(
            title,
            "difference",
            f"{title}: difference",
            tuple(map(between, range(len(values)))),
            {
                f"{title} difference": tuple(one.mean for one in paired),
                f"{title} difference low": tuple(one.low for one in paired),
                f"{title} difference high": tuple(one.high for one in paired),
            },
        ),
    ]
