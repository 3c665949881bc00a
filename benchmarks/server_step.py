"""How long FedTopo's server step takes, and how much memory it needs beyond the uploads.

    python benchmarks/server_step.py

The uploads are a stream of one message that is handed over again and again, so that only the step itself is measured:
10,000 uploads with 10 classes, and 1,000 uploads with 1,000 classes, all of them held, on the dense wire.
"""

import resource
import time
from collections.abc import Iterator

import torch

from motley.draws import Draws
from motley.functional.topology import relations
from motley.methods.contracts import Upload
from motley.methods.fedtopo import FedTopo
from motley.methods.fedtopo_options import FedTopoOptions
from motley.methods.fedtopo_wire import Relations, pack_relations, start_state

REPEATS = 3


def message_of(num_classes: int) -> Relations:
    """Return the upload of a client that holds all classes."""
    generator = torch.Generator().manual_seed(0)
    prototypes = torch.rand(num_classes, 64, dtype=torch.float64, generator=generator)
    counts = torch.randint(1, 100, (num_classes,), generator=generator)
    return pack_relations(relations(prototypes, counts), counts, "dense")


def main() -> None:
    """Print seconds, uploads a second and memory for both sizes."""
    method = FedTopo(FedTopoOptions())
    for num_classes, num_uploads in ((10, 10_000), (1_000, 1_000)):
        message, state = message_of(num_classes), start_state(num_classes, 0)

        def stream(message: Relations = message, number: int = num_uploads) -> Iterator[Upload[Relations]]:
            yield from (Upload(client, message) for client in range(number))

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds = []
        for _ in range(REPEATS):
            began = time.perf_counter()
            method.server_round(state, stream(), 1, Draws(0))
            seconds.append(time.perf_counter() - began)
        more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        best = min(seconds)
        rate = num_uploads / best
        print(f"C = {num_classes:5}: {num_uploads} uploads in {best:.2f} s ({rate:,.0f} a second), {more:.0f} MiB more")


if __name__ == "__main__":
    main()
