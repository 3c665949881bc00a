"""Which samples belong to which client: drawn from labels alone, checked, and kept with the run."""

import hashlib
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from motley.data.dirichlet import MAX_TRIES, draw_dirichlet
from motley.data.pathological import draw_pathological, draw_pathological_random
from motley.data.schemes import Scheme, parse_scheme
from motley.draws import Draws
from motley.errors import InvalidInput, InvalidPartition


@dataclass(frozen=True)
class Partition:
    """Positions of the samples in the pool, one array a client; every position occurs at most once, unless `shared`."""

    scheme: str
    seed: int
    indices: tuple[np.ndarray, ...]  # int64 (n_k,)
    tries: int = 1  # draws until every client had enough samples
    acceptance_rate: float = 1.0  # accepted draws per draw

    def counts(self, labels: np.ndarray, num_classes: int) -> np.ndarray:
        """Return the samples of each client and class, (N, C), int64."""
        return np.stack([np.bincount(labels[index], minlength=num_classes) for index in self.indices])

    def digest(self) -> str:
        """Return the SHA-256 of all indices in hexadecimal; equal partitions have equal digests."""
        state = hashlib.sha256()
        for index in self.indices:
            state.update(len(index).to_bytes(8, "little"))
            state.update(np.ascontiguousarray(index, dtype="<i8").tobytes())
        return state.hexdigest()

    def arrays(self) -> dict[str, np.ndarray]:
        """Return what `save` writes: plain arrays, the clients' indices one after the other."""
        return {
            "scheme": np.array(self.scheme),
            "seed": np.array(self.seed, np.int64),
            "tries": np.array(self.tries, np.int64),
            **pack("indices", self.indices),
        }

    def save(self, path: Path | str) -> None:
        """Write the partition as npz, without pickled objects."""
        with Path(path).open("wb") as file:
            np.savez_compressed(file, **self.arrays())  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path | str) -> "Partition":
        """Read a partition; nothing in the file can run code.

        Raises:
            InvalidPartition: The file cannot be read or lacks a part.
        """
        try:
            with Path(path).open("rb") as file:
                arrays = np.load(file, allow_pickle=False)
                tries = int(arrays["tries"])
                indices = unpack("indices", arrays)
                return cls(str(arrays["scheme"]), int(arrays["seed"]), indices, tries, 1 / tries)
        except (OSError, ValueError, LookupError, TypeError, EOFError, ArithmeticError, zipfile.BadZipFile) as error:
            raise InvalidPartition(f"{path} is not a partition file that motley can read: {error}") from error


def pack(name: str, indices: tuple[np.ndarray, ...]) -> dict[str, np.ndarray]:
    """Return arrays of different lengths as one array and the lengths, for an npz file."""
    return {
        name: np.concatenate(indices) if indices else np.zeros(0, np.int64),
        f"{name}_sizes": np.array([len(index) for index in indices], np.int64),
    }


def unpack(name: str, arrays: Mapping[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    """Return what `pack` joined; a ValueError says that the arrays do not belong together."""
    joined, sizes = arrays[name], arrays[f"{name}_sizes"]
    if joined.dtype != np.int64 or sizes.dtype != np.int64 or (sizes < 0).any() or sizes.sum() != len(joined):
        raise ValueError(f"the arrays {name} and {name}_sizes do not belong together")
    return tuple(np.split(joined, np.cumsum(sizes)[:-1]))


def make_partition(
    labels: np.ndarray,
    scheme: str,
    *,
    clients: int,
    num_classes: int,
    seed: int,
    min_samples: int | None = None,
    balance: bool = False,
    columns: Mapping[str, np.ndarray] | None = None,
) -> Partition:
    """Give every sample of a pool to one client, or with `shared` to every client.

    Args:
        labels: Classes of the pool, (n,), integer in 0..num_classes - 1.
        scheme: `iid`, `dirichlet:A`, `dirichlet-capped:A`, `pathological:K`, `pathological-random:K`, `shared`,
            `column:NAME`.
        clients: Number of clients; `column:NAME` has as many as the column has values, and does not read this.
        num_classes: C.
        seed: Same seed and labels, same partition or same error.
        min_samples: Smallest number of samples of a client; None: `default_min_samples`.
        balance: `pathological`: pieces of a class differ by at most one sample.
        columns: Other values of the samples, each (n,), for `column:NAME`.

    Raises:
        InvalidInput: There is no client, or a label is outside of 0..C-1.
        InvalidPartition: The scheme is unknown, or the samples cannot be given so that every client has enough.
    """
    return draw_partition(
        labels,
        scheme,
        clients=clients,
        num_classes=num_classes,
        seed=seed,
        min_samples=min_samples,
        balance=balance,
        columns=columns,
    )[0]


def draw_partition(
    labels: np.ndarray,
    scheme: str,
    *,
    clients: int,
    num_classes: int,
    seed: int,
    min_samples: int | None = None,
    balance: bool = False,
    columns: Mapping[str, np.ndarray] | None = None,
) -> tuple[Partition, np.random.RandomState]:
    """Do as `make_partition`, and return also the legacy generator, from which PFLlib's random split reads on."""
    parsed = parse_scheme(scheme)
    if clients < 1 or (len(labels) and not 0 <= labels.min() <= labels.max() < num_classes):
        raise InvalidInput(
            f"a partition needs a client and labels in 0..{num_classes - 1}; there are {clients} clients"
        )
    rng = np.random.RandomState(seed % 2**32)  # the published tables come from this generator
    if parsed.kind == "column":
        partition = Partition(scheme, seed, tuple(_by_value(parsed.column, columns or {}, len(labels))))
    elif parsed.kind == "shared":
        partition = Partition(scheme, seed, (np.arange(len(labels)),) * clients)
    else:
        least = default_min_samples(len(labels), clients) if min_samples is None else min_samples
        if clients * least > len(labels):
            raise InvalidPartition(
                f"{clients} clients with at least {least} samples each need {clients * least}, but there are "
                f"{len(labels)}; take at most {len(labels) // least} clients or a smaller min_samples"
            )
        by_class = [np.flatnonzero(labels == label) for label in range(num_classes)]
        indices, tries = _draw(
            parsed, by_class, rng, clients=clients, least=least, seed=seed, balance=balance, strict=min_samples
        )
        partition = Partition(scheme, seed, tuple(indices), tries, 1 / tries)
    _check_smallest(partition, min_samples)
    return partition, rng


def default_min_samples(samples: int, clients: int) -> int:
    """Return the smallest number of samples of a client that is asked for when nobody says otherwise.

    int(min(40, n / N / 2)) as in PFLlib (a batch of 10 in a test part of 25 %). Our reading: where the mean n / N is
    below 400, at most 10 instead of 40, since 40 is then out of reach at alpha 0.1 (digits: over 400 draws).
    """
    mean = samples / clients
    return max(1, int(min(40 if mean >= 400 else 10, mean / 2)))


def _draw(
    scheme: Scheme,
    by_class: list[np.ndarray],
    rng: np.random.RandomState,
    *,
    clients: int,
    least: int,
    seed: int,
    balance: bool,
    strict: int | None,
) -> tuple[list[np.ndarray], int]:
    """Return the indices of each client and the number of draws."""
    if scheme.kind.startswith("dirichlet"):
        capped = scheme.kind == "dirichlet-capped"
        accepted = draw_dirichlet(by_class, clients, scheme.alpha, least, rng, capped=capped)
        return accepted.indices, accepted.tries
    addressed = Draws(seed).numpy("partition")
    if scheme.kind == "iid":
        return np.array_split(addressed.permutation(sum(len(members) for members in by_class)), clients), 1
    held = [members for members in by_class if len(members)]
    if scheme.kind == "pathological-random":
        return draw_pathological_random(held, clients, scheme.classes_per_client, addressed), 1
    best: list[np.ndarray] = []
    for tries in range(1, (1 if balance else MAX_TRIES) + 1):
        indices = draw_pathological(held, scheme.classes_per_client, rng, clients=clients, least=least, balance=balance)
        best = max(best, indices, key=_smallest)
        # The procedure of the sheet does not look at the smallest client, so only a minimum of the user is kept up.
        if strict is None or _smallest(indices) >= strict:
            return indices, tries
    return best, 1 if balance else MAX_TRIES


def _smallest(indices: Sequence[np.ndarray]) -> int:
    return min((len(index) for index in indices), default=-1)


def _by_value(name: str, columns: Mapping[str, np.ndarray], samples: int) -> list[np.ndarray]:
    """Return the positions of each value of a column, values ascending."""
    if name not in columns:
        known = f"its columns are {', '.join(sorted(columns))}" if columns else "it has no other columns"
        raise InvalidPartition(f"partition.scheme is 'column:{name}', but the data have no such column; {known}")
    assert len(columns[name]) == samples
    values, inverse = np.unique(columns[name], return_inverse=True)
    return [np.flatnonzero(inverse == position) for position in range(len(values))]


def _check_smallest(partition: Partition, min_samples: int | None) -> None:
    smallest = _smallest(partition.indices)
    if min_samples is not None and smallest < min_samples:
        raise InvalidPartition(
            f"{partition.scheme} gives the smallest client {smallest} samples (draws: {partition.tries}), and "
            f"partition.min_samples asks for {min_samples}; take fewer clients or a smaller min_samples"
        )
