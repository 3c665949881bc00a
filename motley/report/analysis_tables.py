"""The tables of an analysis: measures beside the paper's, controls, clients, classes, consistency between models."""

import math
from collections.abc import Sequence

from motley.functional.mechanism import ALONE, CONSTANT, NORMALISED, OTHERS_CONSTANT, Control
from motley.functional.relation_consistency import Agreement
from motley.functional.statistics import mean_sd
from motley.record.analysis import Analysis
from motley.report.columns import Column, Table, Value
from motley.report.wording import MISSING, plural

PAPER = {"D_p": 0.163, "D_r": 0.126, "D_rs": 0.058}  # FedTopo, Fig. 4
MOST_NAMED = 12
MEASURES = (
    "D_p: mean over a client's classes of |phi(its prototype, the global prototype) - 1|, phi = (1 + cos) / 2.",
    "D_r: mean over its class pairs of |R_k - R^g|; D_rs: the same terms times S, over the number of pairs, so never "
    "above D_r; D_rs_norm: over the sum of S, the fair form.",
)


def analysis_tables(analysis: Analysis) -> dict[str, tuple[str, Table]]:
    """Return the tables by name of their file, each with its title."""
    return {
        "measures": ("Distance from the global prototypes and relations", _measures_table(analysis)),
        "controls": ("Controls", _controls_table(analysis)),
        "consistency": ("Consistency between models", _consistency_table(analysis)),
        "clients": ("Clients", _clients_table(analysis)),
        "classes": ("Classes", _classes_table(analysis)),
    }


def client_values(analysis: Analysis) -> dict[str, tuple[float | None, ...]]:
    """Return the measures of every client by name, those that the run has."""
    found, pairs = analysis.mechanism, analysis.mechanism.pairs
    values = {"D_p": found.prototypes.per_client} if found.prototypes else {}
    return values | {"D_r": pairs.plain, "D_rs": pairs.scaled, "D_rs_norm": pairs.normalised}


def compared(analysis: Analysis) -> dict[str, list[float]]:
    """Return the measures by name over the clients that have D_p, D_r and D_rs; D_rs_norm where S is not 0."""
    left = set(analysis.mechanism.left_out)
    return {
        name: [value for client, value in enumerate(values) if client not in left and value is not None]
        for name, values in client_values(analysis).items()
    }


def means_by_name(analysis: Analysis) -> dict[str, float | None]:
    """Return the mean of each measure."""
    return {name: mean_sd(values).mean for name, values in compared(analysis).items()}


def _measures_table(analysis: Analysis) -> Table:
    values, means = compared(analysis), means_by_name(analysis)
    names = list(values)
    columns = [
        _words("measure", names),
        _numbers("mean", [means[name] for name in names], "mean"),
        _numbers("sd over clients", [mean_sd(own).sd for own in values.values()], "sd_clients"),
        _counts("clients", [len(own) for own in values.values()], "clients"),
    ]
    if analysis.method == "fedtopo":
        paper = [PAPER.get(name) for name in names]
        apart = [
            ours - theirs if (ours := means[name]) is not None and theirs is not None else None
            for name, theirs in zip(names, paper, strict=True)
        ]
        columns += [
            _numbers("paper", paper, "paper", digits=3),
            _numbers("ours - paper", apart, "difference", signed=True),
        ]
    return Table(tuple(columns), _measure_rules(analysis), tuple(_readings(analysis)))


def _measure_rules(analysis: Analysis) -> tuple[str, ...]:
    source = (
        "R^g and S are the server's after this round; R_k is computed anew of the models after it."
        if analysis.from_server
        else "The run has no such server: R^g and S are those that FedTopo would make of these models (Eqs. 5-7)."
    )
    rules = [*MEASURES, source, "Mean over clients that have all measures, of one run; lower is nearer."]
    if analysis.feature == "raw":
        rules.append(
            "Relations are of the features before the pooling (relation_feature = raw), D_p of the pooled ones."
        )
    if analysis.method == "fedtopo":
        rules.append(
            "Paper: CIFAR-10, Dirichlet(0.1), 20 clients, eight architectures, 500 rounds; it prints no intervals."
        )
    return tuple(rules)


def _readings(analysis: Analysis) -> list[str]:
    """Return what the numbers say, and who is left out."""
    told = []
    if analysis.round < analysis.rounds:
        told.append(f"The models are those after round {analysis.round}; the run has {analysis.rounds} rounds.")
    if analysis.mechanism.left_out:
        told.append(f"Left out of the means: {_named(analysis)}.")
    if analysis.mechanism.prototypes is None:
        told.append("The clients have features of different widths: there is no global prototype, and so no D_p.")
    by_name = {(one.measure, one.name): one for one in analysis.mechanism.controls}
    fair = by_name["D_r", NORMALISED]
    for whose, one in (("R^g", by_name["D_r", CONSTANT]), ("the others' relations", by_name[ALONE, OTHERS_CONSTANT])):
        if one.own is not None and one.value is not None:
            told.append(
                f"Clients are {'nearer' if one.own < one.value else 'no nearer'} to {whose} than to one constant for "
                f"all pairs: {one.own:.4f} against {one.value:.4f}."
            )
    if fair.own is not None and fair.value is not None:
        word = "nearer to R^g than pairs of less" if fair.value < fair.own else "no nearer to R^g than pairs of less"
        told.append(f"Pairs of more support are {word}: D_rs_norm {fair.value:.4f} against D_r {fair.own:.4f}.")
    return told


def _named(analysis: Analysis) -> str:
    held = (analysis.mechanism.counts > 0).sum(dim=1).tolist()
    left = analysis.mechanism.left_out
    named = [f"client {client} ({plural(held[client], 'class', 'classes')})" for client in left[:MOST_NAMED]]
    more = len(left) - MOST_NAMED
    return ", ".join([*named, f"and {more} more"] if more > 0 else named)


def _controls_table(analysis: Analysis) -> Table:
    controls = analysis.mechanism.controls
    columns = (
        _words("measure", [one.measure for one in controls]),
        _words("control", [one.name for one in controls]),
        _numbers("control's value", [one.value for one in controls], "control_value"),
        _numbers("measure", [one.own for one in controls], "measure_value"),
        _numbers("measure - control", [_apart(one) for one in controls], "difference", signed=True),
        _counts("clients", [one.clients for one in controls], "clients"),
        Column(
            "95 % of draws",
            "95 % of draws",
            "95 % of draws",
            tuple(MISSING if one.low is None else f"[{one.low:.4f}, {one.high:.4f}]" for one in controls),
            {"low": tuple(one.low for one in controls), "high": tuple(one.high for one in controls)},
        ),
        _numbers("p", [one.p for one in controls], "p", digits=3),
    )
    rules = (
        "Value and measure are over the same clients, and for 'own part removed' over the pairs (classes) that another "
        "client holds, too, of the aggregate that is not smoothed.",
        f"S permuted: observed off-diagonal entries among each other, mean of {plural(analysis.draws, 'draw')}; p: "
        "(1 + draws that are as low as the measure or lower) / (1 + draws).",
        "Constant relations: every observed R^g is their mean; of the others: the mean of their aggregate. R^g holds "
        "the client's own relations and the constant hardly does, so the fair comparison is that without the own part.",
    )
    return Table(columns, rules)


def _apart(one: Control) -> float | None:
    return None if one.own is None or one.value is None else one.own - one.value


def _consistency_table(analysis: Analysis) -> Table:
    rows: list[tuple[str, str, Agreement, float | None]] = [
        (f"relations, {kind}: rank correlation", name, one, None)
        for kind, own in analysis.consistency.items()
        for name, one in own.groups.items()
    ]
    if analysis.alignment:
        rows += [
            ("prototypes: phi of the same class", name, one, analysis.other_class.get(name))
            for name, one in analysis.alignment.groups.items()
        ]
    found = [one for _, _, one, _ in rows]
    columns = (
        _words("what", [what for what, _, _, _ in rows]),
        _words("clients of", [name for _, name, _, _ in rows]),
        _counts("pairs of clients", [one.pairs for one in found], "client_pairs"),
        _numbers("mean", [one.value for one in found], "value"),
        _numbers("chance", [one.chance for one in found], "chance"),
        _numbers("97.5 % of chance", [one.chance_high for one in found], "chance_high"),
        _numbers("p", [one.p for one in found], "p", digits=3),
        _numbers("other classes", [other for _, _, _, other in rows], "other_classes"),
    )
    rules = [
        f"Over pairs of clients with at least 4 classes in common; chance: {plural(analysis.draws, 'draw')} in which "
        "every client's classes are permuted (relations), or its feature space is rotated (prototypes).",
        "Features that are never negative have phi of at least 0.5 whatever they mean; what the same class has beyond "
        "'other classes' is what feature spaces agree on.",
        "Clients of equal data compare models alone: --partition shared. On different data, class counts matter, too.",
    ]
    if "raw" not in analysis.consistency:
        rules.append("No model pools its features to the common width, so raw and pooled features are the same.")
    remarks = [] if any(one.pairs for one in found) else ["No two clients have 4 classes in common."]
    return Table(columns, tuple(rules), tuple(remarks))


def _clients_table(analysis: Analysis) -> Table:
    found = analysis.mechanism
    held = (found.counts > 0).sum(dim=1).tolist()
    columns = [
        _key("client", list(range(len(held)))),
        _words("architecture", analysis.architectures),
        _counts("classes", held, "classes"),
        _counts("pairs", [size * (size - 1) // 2 for size in held], "pairs"),
        *(_numbers(name, values, name) for name, values in client_values(analysis).items()),
        _numbers("D_r, own part removed", found.without_self, "D_r_own_removed"),
    ]
    if found.prototypes:
        columns.append(_numbers("D_p, own part removed", found.without_self_prototypes, "D_p_own_removed"))
    levels = [_mean(_upper(own.tolist())) for own in found.local]
    columns.append(_numbers("mean R_k", levels, "mean_relation"))
    rules = (
        "Mean R_k: over the client's pairs; pooling wide features raises it, so it differs by architecture for this "
        "reason alone.",
    )
    return Table(tuple(columns), rules)


def _classes_table(analysis: Analysis) -> Table:
    found, names = analysis.mechanism, analysis.class_names
    size = len(names)
    rows = found.pairs.per_pair.tolist()
    columns = [
        _words("class", names),
        _counts("samples", [int(total) for total in found.counts.sum(dim=0).tolist()], "samples"),
        _counts("holders", (found.counts > 0).sum(dim=0).tolist(), "holders"),
    ]
    if found.prototypes:
        columns.append(_numbers("D_p", found.prototypes.per_class.tolist(), "D_p"))
    columns.append(_numbers("D_r", [_mean(row) for row in rows], "D_r"))
    seen = [[other for other in range(size) if not math.isnan(rows[label][other])] for label in range(size)]
    for heading, name, matrix in (
        ("mean R^g", "mean_relation", found.relations),
        ("mean S", "mean_S", found.reliability),
    ):
        values = [_mean([float(matrix[label, other]) for other in others]) for label, others in enumerate(seen)]
        columns.append(_numbers(heading, values, name))
    rules = ("D_p: mean over holders; D_r, R^g and S: mean over the pairs of the class that a client holds.",)
    return Table(tuple(columns), rules)


def _upper(matrix: Sequence[Sequence[float]]) -> list[float]:
    return [value for row, line in enumerate(matrix) for value in line[row + 1 :]]


def _mean(values: Sequence[float]) -> float | None:
    return mean_sd([value for value in values if math.isfinite(value)]).mean


def _words(heading: str, texts: Sequence[str]) -> Column:
    return Column("", heading, heading, tuple(texts), {heading.replace(" ", "_"): tuple(texts)}, text=True)


def _key(heading: str, values: Sequence[int]) -> Column:
    return Column("", heading, heading, tuple(map(str, values)), {heading: tuple(values)})


def _counts(heading: str, values: Sequence[int], name: str) -> Column:
    return Column(heading, heading, heading, tuple(f"{value:,}" for value in values), {name: tuple(values)})


def _numbers(
    heading: str, values: Sequence[float | None], name: str, *, digits: int = 4, signed: bool = False
) -> Column:
    known: list[Value] = [None if value is None or not math.isfinite(value) else value for value in values]
    sign = "+" if signed else ""
    cells = tuple(MISSING if value is None else format(value, f"{sign}.{digits}f") for value in known)
    return Column(heading, heading, heading, cells, {name: tuple(known)})  # a group of its own: it may move below
