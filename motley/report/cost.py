"""The table of a cost study, beside the published one where it is of the same setting."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import cache
from importlib.resources import files
from statistics import fmean
from typing import Any

from motley.record.cost import CostStudy, Flops, Footprint, MethodCost, Work
from motley.report.columns import Column, Table
from motley.report.wording import MISSING, duration, size

TRAFFIC = "per client and round"
SETTING = ("models", "classes", "feature_width", "batch_size")


@cache
def published() -> dict[str, Any]:
    """Return what table3.toml holds."""
    return tomllib.loads(files("motley.report").joinpath("table3.toml").read_text(encoding="utf-8"))


def comparable(study: CostStudy) -> Mapping[str, Mapping[str, Any]]:
    """Return the published rows by method; none if the setting is another one."""
    theirs = published()
    same = all(getattr(study, name) == theirs["setting"][name] for name in SETTING)
    methods: Mapping[str, Mapping[str, Any]] = theirs["methods"]
    return methods if same else {}


def cost_table(study: CostStudy) -> Table:
    """Return the table of a cost study."""
    rows, paper = study.methods, comparable(study)
    beside = [paper.get(row.name, {}) for row in rows] if any(row.name in paper for row in rows) else []
    names = tuple(row.name for row in rows)
    columns = [Column("", "method", "method", names, {"method": names}, text=True), *_traffic(rows, beside)]
    columns += _products(rows, study.batch_size)
    columns += _all_operations(rows, study.batch_size, beside)
    if any(row.footprint for row in rows):
        columns += _footprints(rows, study.local_footprint)
    return Table(tuple(columns), tuple(_rules(study, bool(beside))), tuple(_remarks(study, bool(beside))))


def cost_data(study: CostStudy) -> dict[str, Any]:
    """Return a cost study for programs, with the published rows if they are of the same setting."""
    return {**asdict(study), "paper": {name: dict(row) for name, row in comparable(study).items()}}


def _traffic(rows: Sequence[MethodCost], beside: Sequence[Mapping[str, Any]]) -> list[Column]:
    columns = []
    for way in ("up", "down"):
        columns.append(_sent(f"numbers {way}", f"{way}_scalars", rows, _exact))
        if beside:
            columns.append(_paper(TRAFFIC, f"paper {way}", beside, way))
    return [*columns, *(_sent(f"bytes {way}", f"{way}_bytes", rows, size) for way in ("up", "down"))]


def _sent(title: str, name: str, rows: Sequence[MethodCost], show: Callable[[float], str]) -> Column:
    values: list[tuple[int, ...]] = [getattr(row.sent, name) for row in rows]
    data = {
        name: tuple(fmean(one) if one else None for one in values),
        f"{name}_least": tuple(min(one, default=None) for one in values),
        f"{name}_most": tuple(max(one, default=None) for one in values),
    }
    return Column(TRAFFIC, title, title, tuple(_range(one, show) for one in values), data)


def _range(values: Sequence[int], show: Callable[[float], str]) -> str:
    if not values:
        return MISSING
    if min(values) == max(values):
        return show(values[0])
    return f"{show(fmean(values))} ({show(min(values))} to {show(max(values))})"


def _exact(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def _paper(group: str, title: str, beside: Sequence[Mapping[str, Any]], key: str) -> Column:
    values = tuple(row.get(key) for row in beside)
    cells = tuple(MISSING if one is None else one if isinstance(one, str) else _exact(one) for one in values)
    return Column(group, title, title, cells, {f"paper_{key}": values})


def _products(rows: Sequence[MethodCost], batch: int) -> list[Column]:
    kinds: dict[str, Callable[[Work], Flops]] = {
        "training": lambda extra: extra.forward + extra.backward,
        "teachers": lambda extra: extra.teachers,
        "passes": lambda extra: extra.passes,
        "inference": lambda extra: extra.inference,
    }
    group = f"extra products, a batch of {batch}"
    columns = [
        _flops(group, title, f"{title}_products", [of(row.extra).products for row in rows])
        for title, of in kinds.items()
    ]
    server = [row.extra.server.products for row in rows]
    return [*columns, _flops("products, a round", "server", "server_products", server)]


def _all_operations(rows: Sequence[MethodCost], batch: int, beside: Sequence[Mapping[str, Any]]) -> list[Column]:
    kinds: dict[str, tuple[str, Callable[[Work], Flops]]] = {
        "forward, all operations": ("", lambda extra: extra.forward),
        "with passes, all operations": ("training", lambda extra: extra.forward + extra.teachers + extra.passes),
        "inference, all operations": ("inference", lambda extra: extra.inference),
    }
    group = f"extra operations of all kinds, a batch of {batch}"
    columns = []
    for title, (published_as, of) in kinds.items():
        name = title.replace(", ", "_").replace(" ", "_")
        columns.append(_flops(group, title, name, [of(row.extra).total for row in rows]))
        if beside and published_as:
            columns.append(_paper(group, f"paper {published_as}", beside, published_as))
    return columns


def _flops(group: str, title: str, name: str, values: Sequence[float]) -> Column:
    return Column(group, title, title, tuple(map(flops_text, values)), {name: tuple(values)})


def flops_text(value: float) -> str:
    """Return a number of operations: 12.8 k, 3.93 M, 40.69 G.

    >>> flops_text(12800), flops_text(-2621440), flops_text(0.2)
    ('12.8 k', '-2.62 M', '0')
    """
    for unit, amount, digits in (("T", 1e12, 2), ("G", 1e9, 2), ("M", 1e6, 2), ("k", 1e3, 1)):
        if abs(value) >= amount:
            return f"{value / amount:.{digits}f} {unit}"
    return f"{value:.0f}"


def _footprints(rows: Sequence[MethodCost], local: Footprint | None) -> list[Column]:
    found = [row.footprint for row in rows]
    seconds = tuple(one.seconds if one else None for one in found)
    memory = tuple(one.memory_bytes if one else None for one in found)
    before = local.memory_bytes if local else None
    more = tuple(None if own is None or before is None else own - before for own in memory)
    return [
        Column("a round", "time", "time of a round", tuple(map(duration, seconds)), {"seconds": seconds}),
        Column("a round", "peak memory", "peak memory", tuple(map(size, memory)), {"memory_bytes": memory}),
        Column("a round", "over Local", "over Local", tuple(map(size, more)), {"extra_memory_bytes": more}),
    ]


def _rules(study: CostStudy, has_paper: bool) -> list[str]:
    local, batch = study.local, study.batch_size
    rules = [
        f"Numbers and bytes: of the real messages of round {study.round}, of {study.participants} of {study.clients} "
        "clients; the mean, and from least to most where they differ.",
        "Training, teachers, passes, inference and server: convolutions and matrix products, 2 for a multiply-add, as "
        "torch's own counter counts them, which counts nothing else. All but the server's: beyond Local on the same "
        f"federation and draws, for a batch of {batch}, as a mean over clients; the server's: of a round.",
        "Training: the loop of local training, forward and backward; teachers: what they are asked about the samples "
        "of an epoch; passes: all else on a client (prototypes, statistics, a proxy set). A batch's share of the work "
        f"of a round: work / samples trained on x {batch}; so a pass counts 1 / local epochs.",
        f"Local itself: training {flops_text((local.forward + local.backward).products)} a batch, of it forward "
        f"{flops_text(local.forward.products)}; inference {flops_text(local.inference.products)}.",
        "All operations: products and elementwise ones, by the convention behind FedTopo's Table III, of forward "
        "passes alone.",
    ]
    if study.local_footprint:
        alone = study.local_footprint
        rules.append(
            f"Time and peak memory: round {study.round} in a process of its own; memory above that of before round 1. "
            f"Local: {duration(alone.seconds)}, {size(alone.memory_bytes)}."
        )
    if has_paper:
        theirs = published()
        rules.append(f"Paper: {theirs['source']}, as printed; its operations are means over {theirs['over']}.")
    return rules


def _remarks(study: CostStudy, has_paper: bool) -> list[str]:
    if has_paper or not any(row.name in published()["methods"] for row in study.methods):
        return list(study.notes)
    theirs = published()["setting"]
    return [
        *study.notes,
        f"{published()['source']} is of --models {theirs['models']} with {theirs['classes']} classes, features of "
        f"width {theirs['feature_width']} and --batch-size {theirs['batch_size']}; it is shown beside such a study.",
    ]
