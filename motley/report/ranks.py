"""Mean ranks of rows over settings as a table, and what a test over them says as sentences."""

from motley.record.ranking import FEWEST_ROWS, FEWEST_SETTINGS, Ranking
from motley.report.columns import Column, Table
from motley.report.rules import LEVEL
from motley.report.wording import MISSING, p_value, percent, plural


def rank_table(ranking: Ranking) -> Table:
    """Return one row a method: mean rank, how often it is best and, with enough settings, how it differs."""
    names, ranks = ranking.names, ranking.ranks
    means = tuple(ranking.mean_ranks.values())
    first = [sum(own[place] == min(own) for own in ranks) for place in range(len(names))]
    columns = [
        Column("", "method", "method", names, {"method": names}, text=True),
        Column("", "mean rank", "mean rank", tuple(map(mean_text, means)), {"mean_rank": means}),
        Column("", "best in", "best in", tuple(f"{one} of {len(ranks)}" for one in first), {"best_in": tuple(first)}),
    ]
    if ranking.tested:
        columns += _test_columns(ranking)
    for setting, own, values in zip(ranking.settings, ranks, ranking.values, strict=True):
        cells, accuracies = tuple(map(rank_text, own)), tuple(map(percent, values))
        ranked, known = {f"rank[{setting}]": tuple(own)}, {f"local_accuracy[{setting}]": values}
        columns.append(Column("rank in", setting, f"rank: {setting}", cells, ranked, detail=True))
        columns.append(Column("local accuracy in", setting, f"local %: {setting}", accuracies, known, detail=True))
    columns.sort(key=lambda column: ["", "test", "rank in", "local accuracy in"].index(column.group))
    return Table(tuple(columns), tuple(rank_rules(ranking)), tuple(rank_remarks(ranking)))


def _test_columns(ranking: Ranking) -> list[Column]:
    found = [ranking.against_reference.get(name, (None, None)) for name in ranking.names]
    columns = []
    for place, (title, name) in enumerate((("p", "p"), ("p (Holm)", "p_holm"))):
        values = tuple(one[place] for one in found)
        cells = tuple(
            "reference" if row == ranking.reference else p_value(value)
            for row, value in zip(ranking.names, values, strict=True)
        )
        columns.append(Column("test", title, title, cells, {name: values}))
    return columns


def rank_text(rank: float | None) -> str:
    """Return a rank of one setting: 1, 2.5."""
    return MISSING if rank is None else f"{rank:g}"


def mean_text(rank: float | None) -> str:
    """Return a mean of ranks: 1.00, 2.33."""
    return MISSING if rank is None else f"{rank:.2f}"


def rank_rules(ranking: Ranking) -> list[str]:
    """Return how rows were ranked, and what the tests say."""
    means = sorted(ranking.mean_ranks.items(), key=lambda item: item[1] or 0.0)
    rules = [
        f"Ranks by local accuracy at the last round, over the seeds that all rows finished; 1 is the best, equal ones "
        f"share. Mean over {plural(len(ranking.settings), 'setting')}: "
        f"{', '.join(f'{name} {mean_text(mean)}' for name, mean in means)}."
    ]
    test = ranking.friedman
    if test is None:
        return rules
    return [
        *rules,
        f"Friedman's test of {len(ranking.names)} rows over {len(ranking.settings)} settings: chi-square "
        f"{test.chi_square:.2f}, p {p_value(test.p)}; Iman and Davenport's F({test.freedom[0]}, {test.freedom[1]}) "
        f"{test.f:.2f}, p {p_value(test.f_p)}.",
        _pairs(ranking),
        "The tests take settings as independent; those that share data or seeds are not, and p is then too small.",
    ]


def _pairs(ranking: Ranking) -> str:
    found = [name for name, (_, adjusted) in ranking.against_reference.items() if adjusted < LEVEL]
    count = len(ranking.against_reference)
    least = min(1.0, count * 2.0 ** (1 - len(ranking.settings)))
    text = (
        f"Wilcoxon's signed-rank tests against {ranking.reference}, two-sided, with Holm's correction over {count}: at "
        f"{100 * LEVEL:.0f} % {', '.join(found) or 'none'} differ{'s' if len(found) == 1 or not found else ''}."
    )
    if least >= LEVEL:
        text += (
            f" So few settings cannot show a single difference: the smallest p that they can give is {p_value(least)}."
        )
    return text


def rank_remarks(ranking: Ranking) -> list[str]:
    """Return what is missing from a ranking."""
    remarks = []
    if not ranking.tested:
        remarks.append(
            f"{plural(len(ranking.settings), 'setting')} and {plural(len(ranking.names), 'row')}: ranks only, since a "
            f"test of fewer than {FEWEST_SETTINGS} settings or {FEWEST_ROWS} rows would say nothing."
        )
    if ranking.open:
        remarks.append(f"Not finished by all rows, and left out: {'; '.join(ranking.open)}.")
    if ranking.other_rows:
        remarks.append(f"Not in all settings, and left out: {', '.join(ranking.other_rows)}.")
    return remarks
