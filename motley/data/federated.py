"""From a data set to one shard a client: pool, partition, split, counts, and figures of how unlike the clients are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from motley.data.dataset import DataReport, Dataset, Split
from motley.data.notes import Notes
from motley.data.partition import Partition, draw_partition, pack
from motley.data.proxy import proxy_positions
from motley.data.shards import Normalization, Samples, Shard, normalization_of
from motley.data.splits import Parts, split_halved, split_per_class, split_random
from motley.data.wording import listed
from motley.draws import Draws
from motley.errors import InvalidPartition
from motley.options import DataOptions, PartitionOptions

LOCAL_TEST_FRACTION = 0.25
GLOBAL_HELD_FRACTION = 0.2
COMMON_TEST_FRACTION = 0.2


@dataclass(frozen=True)
class Heterogeneity:
    """How unlike the clients are, from all samples of each client (training, validation and test)."""

    effective_classes: tuple[float, ...]  # exp of the entropy of each client's labels, 1..C
    distances: tuple[float, ...]  # half the summed difference to the labels of the pool, 0..1

    @property
    def mean_effective_classes(self) -> float:
        """Mean over clients."""
        return float(np.mean(self.effective_classes))

    @property
    def mean_distance(self) -> float:
        """Mean over clients."""
        return float(np.mean(self.distances))


@dataclass(frozen=True)
class FederatedData:
    """Everything that an engine needs to know about the data."""

    dataset_name: str
    class_names: tuple[str, ...]
    input_shape: tuple[int, ...]
    shards: tuple[Shard, ...]
    common_test: Samples | None  # protocol global alone
    normalization: Normalization
    partition: Partition
    split_indices: tuple[Parts, ...]  # one a client, positions in the pool
    common_test_indices: np.ndarray  # positions in the pool that were held out from all clients; mostly empty
    proxy: Samples | None  # of data.proxy alone; no client and no test set has them
    proxy_indices: np.ndarray  # their positions in the pool, ascending; empty without them
    heterogeneity: Heterogeneity
    report: DataReport
    notes: tuple[str, ...]  # those of the report, and what was decided about pool and partition

    @property
    def num_classes(self) -> int:
        """Number of classes, those without any sample included."""
        return len(self.class_names)

    def partition_arrays(self) -> dict[str, np.ndarray]:
        """Return the partition with every client's split as plain arrays for an npz file."""
        arrays = self.partition.arrays() | {"common_test": self.common_test_indices}
        if self.proxy is not None:
            arrays["proxy"] = self.proxy_indices
        for part in ("train", "validation", "test"):
            arrays |= pack(part, tuple(getattr(parts, part) for parts in self.split_indices))
        return arrays

    def save_partition(self, path: Path | str) -> None:
        """Write `partition_arrays` as npz; `Partition.load` reads the partition."""
        with Path(path).open("wb") as file:
            np.savez_compressed(file, **self.partition_arrays())  # type: ignore[arg-type]


def build_federated_data(
    dataset: Dataset, options: PartitionOptions, data_options: DataOptions, run_seed: int
) -> FederatedData:
    """Give the samples of a data set to clients and split them there.

    Protocol `local` pools all splits of the source. Protocol `global` partitions the training split and keeps the test
    split as the common test set; a source without one gives 20 % of each class for it, chosen by an addressed draw.
    A proxy set is drawn of what is left, and the rest partitioned.

    Args:
        dataset: What `load_dataset` returned.
        options: Scheme, number of clients, protocol and split.
        data_options: Gives the size of the proxy set and the kind of normalization.
        run_seed: Seed of the partition if the options say `run`.

    Raises:
        InvalidPartition: The samples cannot be given to the clients as asked.
        InvalidConfig: The pool is too small for the proxy set.
    """
    _check_used(options)
    seed = run_seed if options.seed == "run" else options.seed
    draws, notes = Draws(seed), Notes()
    pool = _pool(dataset, options, notes)
    labels = pool.y.numpy()
    common = _common_test_positions(dataset, labels, options, draws, notes)
    rest = np.setdiff1d(np.arange(len(labels)), common)
    proxy = proxy_positions(labels, rest, data_options.proxy, draws, notes)
    rest = np.setdiff1d(rest, proxy)
    partition, rng = _partition(pool, rest, options, num_classes=dataset.num_classes, seed=seed, notes=notes)
    shared = options.scheme == "shared"  # one client's data, which all have
    parts = tuple(
        _split_client(index, labels, options, draws=draws, rng=rng, client=client)
        for client, index in enumerate(partition.indices[:1] if shared else partition.indices)
    )
    train_index = np.sort(np.concatenate([part.train for part in parts]))
    normalization = normalization_of(pool.x[torch.from_numpy(train_index)], data_options.normalize)
    if data_options.normalize == "half" and pool.x.dtype != torch.uint8:
        notes.add("signals are used as stored: normalize = half is made for pictures")
    shards = tuple(_shard(pool, part, dataset.num_classes, normalization) for part in parts)
    if shared:
        parts, shards = parts * options.clients, shards * options.clients
        notes.add("shared: every client has the same samples, so their accuracies are of one test part")
    _note_empty_tests(parts, notes)
    counts = partition.counts(labels, dataset.num_classes)
    return FederatedData(
        dataset_name=dataset.name,
        class_names=dataset.class_names,
        input_shape=dataset.input_shape,
        shards=shards,
        common_test=_common_test(dataset, pool, common, options),
        normalization=normalization,
        partition=partition,
        split_indices=parts,
        common_test_indices=common,
        proxy=_samples(pool, proxy) if len(proxy) else None,
        proxy_indices=proxy,
        heterogeneity=heterogeneity(counts),
        report=dataset.report,
        notes=dataset.report.notes + notes.all(),
    )


def _check_used(options: PartitionOptions) -> None:
    """Refuse an option that would be accepted and then not looked at."""
    if options.validation_fraction and options.protocol == "global":
        raise InvalidPartition(
            "partition.validation_fraction is for protocol local; protocol global validates on half of test_fraction"
        )
    if options.balance and not options.scheme.startswith("pathological"):
        raise InvalidPartition(f"partition.balance is for pathological:K and means nothing for {options.scheme}")


def heterogeneity(counts: np.ndarray) -> Heterogeneity:
    """Return how unlike clients with these samples per class, (N, C), are."""
    shares = counts / counts.sum(axis=1, keepdims=True).clip(min=1)
    overall = counts.sum(axis=0) / max(1, counts.sum())
    entropy = -(shares * np.log(np.where(shares > 0, shares, 1))).sum(axis=1)
    distances = np.abs(shares - overall).sum(axis=1) / 2
    return Heterogeneity(tuple(np.exp(entropy).tolist()), tuple(distances.tolist()))


def _pool(dataset: Dataset, options: PartitionOptions, notes: Notes) -> Split:
    if options.protocol == "global":
        if dataset.validation is not None:
            notes.add(
                f"pool: train; the source's validation split of {len(dataset.validation)} samples is not used, since "
                "each client validates on its own samples"
            )
        return dataset.train
    splits = {"train": dataset.train, "test": dataset.test, "validation": dataset.validation}
    present = {name: split for name, split in splits.items() if split is not None}
    if len(present) > 1:
        sizes = ", ".join(f"{name} {len(split)}" for name, split in present.items())
        notes.add(f"pool: {' + '.join(present)} merged ({sizes}), then each client tests on its own part")
    return _merge(list(present.values()))


def _merge(splits: Sequence[Split]) -> Split:
    if len(splits) == 1:
        return splits[0]
    common = set.intersection(*(set(split.columns) for split in splits))
    columns = {name: np.concatenate([split.columns[name] for split in splits]) for name in sorted(common)}
    return Split(torch.cat([split.x for split in splits]), torch.cat([split.y for split in splits]), columns)


def _common_test_positions(
    dataset: Dataset, labels: np.ndarray, options: PartitionOptions, draws: Draws, notes: Notes
) -> np.ndarray:
    if options.protocol == "local" or dataset.test is not None:
        return np.zeros(0, np.int64)
    held = split_per_class(np.arange(len(labels)), labels, COMMON_TEST_FRACTION, draws.numpy("common test"))[1]
    notes.add(f"{dataset.name} has no test split: {len(held)} samples, 20 % of each class, are the common test set")
    return held


def _common_test(dataset: Dataset, pool: Split, common: np.ndarray, options: PartitionOptions) -> Samples | None:
    if options.protocol == "local":
        return None
    if dataset.test is not None:
        return Samples(dataset.test.x, dataset.test.y)
    return _samples(pool, common)


def _partition(
    pool: Split,
    rest: np.ndarray,
    options: PartitionOptions,
    *,
    num_classes: int,
    seed: int,
    notes: Notes,
) -> tuple[Partition, np.random.RandomState]:
    """Partition the samples at these positions; the indices are positions in the whole pool, too."""
    columns: Mapping[str, np.ndarray] = {name: values[rest] for name, values in pool.columns.items()}
    partition, rng = draw_partition(
        pool.y.numpy()[rest],
        options.scheme,
        clients=options.clients,
        num_classes=num_classes,
        seed=seed,
        min_samples=options.min_samples,
        balance=options.balance,
        columns=columns,
    )
    if len(partition.indices) != options.clients:
        notes.add(f"{options.scheme} gives {len(partition.indices)} clients, whatever partition.clients says")
    if partition.tries > 1:
        notes.add(
            f"{options.scheme}: {partition.tries} draws until every client had enough samples "
            f"(acceptance rate {partition.acceptance_rate:.2g})"
        )
    return replace(partition, indices=tuple(rest[index] for index in partition.indices)), rng


def _split_client(
    index: np.ndarray,
    labels: np.ndarray,
    options: PartitionOptions,
    *,
    draws: Draws,
    rng: np.random.RandomState,
    client: int,
) -> Parts:
    """Split one client's samples; clients come in ascending order, since the random split reads on from `rng`."""
    addressed = draws.numpy("split", client=client)
    if options.protocol == "global":
        fraction = options.test_fraction or GLOBAL_HELD_FRACTION
        if options.split == "random":
            kept, held = split_random(index, fraction, rng)
            return Parts(kept, held[: len(held) // 2], held[len(held) // 2 :])
        return split_halved(index, labels, fraction, addressed)
    test_fraction = options.test_fraction or LOCAL_TEST_FRACTION
    validation_draw = draws.numpy("validation", client=client)
    if options.split == "random":
        kept, test = split_random(index, test_fraction, rng)
        train, validation = split_random(kept, options.validation_fraction, validation_draw)
    else:
        kept, test = split_per_class(index, labels, test_fraction, addressed)
        train, validation = split_per_class(kept, labels, options.validation_fraction, validation_draw)
    return Parts(train, validation, test)


def _note_empty_tests(parts: Sequence[Parts], notes: Notes) -> None:
    empty = [str(client) for client, part in enumerate(parts) if not len(part.test)]
    if empty:
        notes.warn(
            f"no test data at {len(empty)} of {len(parts)} clients ({listed(empty)}); they train and are left out of "
            "means"
        )


def _samples(pool: Split, index: np.ndarray) -> Samples:
    positions = torch.from_numpy(index)
    return Samples(pool.x[positions], pool.y[positions])


def _shard(pool: Split, parts: Parts, num_classes: int, normalization: Normalization) -> Shard:
    train, validation = _samples(pool, parts.train), _samples(pool, parts.validation)
    return Shard(
        train,
        validation,
        _samples(pool, parts.test),
        torch.bincount(train.y, minlength=num_classes),
        torch.bincount(validation.y, minlength=num_classes),
        normalization,
    )
