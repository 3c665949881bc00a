"""`motley partition`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from motley.cli.command import command, extra, make_app, positional
from motley.cli.flags import section_parameters
from motley.cli.output import print_table, warnings_to_stderr
from motley.data.federated import FederatedData, build_federated_data
from motley.data.sources import load_dataset
from motley.engine.config import ConfigFile, flag_fields, read_config, resolve
from motley.errors import InvalidRunFolder
from motley.report.drawing import save_figure
from motley.report.figures import bubble_figure

HELP = """Show which client gets which samples, as a table and as a bubble plot, without training.

    motley partition dirichlet:0.1 --data digits --clients 20
    motley partition dirichlet-capped:0.1 --data parquet:DIR --plot bubbles.svg
    motley partition column:subject --data parquet:DIR --save partition.npz
"""
MOST_COLUMNS = 20


def _partition(values: dict[str, Any]) -> None:
    file = read_config(values["config"]) if "config" in values else ConfigFile()
    flags = {flag: value for flag, value in values.items() if flag in flag_fields()}
    if "scheme" in values:
        flags["partition"] = values["scheme"]
    settings = resolve("local", file, flags, {}).settings
    for place in (values.get("plot"), values.get("save")):
        if place is not None and place.exists() and not values["replace"]:
            raise InvalidRunFolder(f"{place} exists; give another name, or --replace to write over it")
    with warnings_to_stderr():
        data = build_federated_data(load_dataset(settings.data), settings.partition, settings.data, settings.run.seed)
    counts = data.partition.counts(_labels(data), data.num_classes)
    if values["json"]:
        print_table(json.dumps(_plain(data, counts), ensure_ascii=False))
    else:
        print_table(_table(data, counts))
        print_table(_figures(data))
    if "save" in values:
        data.save_partition(values["save"])
    if "plot" in values:
        save_figure(bubble_figure(counts, data.class_names), values["plot"])


def _labels(data: FederatedData) -> np.ndarray:
    """Return the class of every position of the pool; positions that no client holds are 0 and never read."""
    size = 1 + max(int(part.max()) for parts in data.split_indices for part in _arrays(parts) if len(part))
    labels = np.zeros(size, np.int64)
    for parts, shard in zip(data.split_indices, data.shards, strict=True):
        for index, samples in zip(_arrays(parts), (shard.train, shard.validation, shard.test), strict=True):
            labels[index] = samples.y.numpy()
    return labels


def _arrays(parts: Any) -> tuple[np.ndarray, ...]:
    return parts.train, parts.validation, parts.test


def _table(data: FederatedData, counts: np.ndarray) -> Table:
    shown = data.class_names[:MOST_COLUMNS]
    table = Table("client", "train", "val", "test", "classes", box=None, pad_edge=False)
    for name in shown:
        table.add_column(name, justify="right", overflow="fold")
    if len(data.class_names) > MOST_COLUMNS:
        table.add_column(f"{len(data.class_names) - MOST_COLUMNS} more")
    for client, (row, shard) in enumerate(zip(counts.tolist(), data.shards, strict=True)):
        sizes = (str(client), len(shard.train), len(shard.validation), len(shard.test), sum(value > 0 for value in row))
        more = [str(sum(row[MOST_COLUMNS:]))] if len(row) > MOST_COLUMNS else []
        table.add_row(*map(str, sizes), *(str(value) if value else "." for value in row[:MOST_COLUMNS]), *more)
    return table


def _figures(data: FederatedData) -> str:
    partition, unlike = data.partition, data.heterogeneity
    lines = [
        f"{partition.scheme}, seed {partition.seed}: {len(data.shards)} clients, accepted after {partition.tries} "
        f"draw{'s' if partition.tries > 1 else ''} (acceptance rate {partition.acceptance_rate:.3g})",
        f"effective classes per client {unlike.mean_effective_classes:.2f} of {data.num_classes}, mean distance to the "
        f"labels of all {unlike.mean_distance:.3f} (0 alike, towards 1 unlike)",
        f"sha256 {partition.digest()}",
        *data.notes,
    ]
    return "\n".join(lines)


def _plain(data: FederatedData, counts: np.ndarray) -> dict[str, Any]:
    return {
        "scheme": data.partition.scheme,
        "seed": data.partition.seed,
        "sha256": data.partition.digest(),
        "acceptance_rate": data.partition.acceptance_rate,
        "effective_classes": data.heterogeneity.mean_effective_classes,
        "label_distance": data.heterogeneity.mean_distance,
        "class_names": list(data.class_names),
        "counts": counts.tolist(),
        "samples": [[len(shard.train), len(shard.validation), len(shard.test)] for shard in data.shards],
        "notes": list(data.notes),
    }


app = make_app("partition", HELP)
app.default(
    command(
        _partition,
        [
            positional("scheme", str | None, "the partition; --partition is the same").replace(default=None),
            extra("plot", Path, "write the bubble plot to this file (.svg, .png, .pdf)"),
            extra("save", Path, "write the partition to this npz file"),
            extra("replace", bool, "write over files that exist", default=False),
            extra("config", Path, "TOML file with options; flags win over it"),
            extra("json", bool, "print the partition as JSON", default=False),
            *section_parameters(("data", "partition")),
        ],
        HELP,
    )
)
