"""The federation of a run folder as its newest checkpoint has it, for commands that look at models after a run."""

from collections.abc import Iterator
from contextlib import contextmanager

from motley.data.dataset import Dataset
from motley.engine.config import RunConfig
from motley.engine.executor import LocalExecutor
from motley.engine.runs import check_partition
from motley.engine.setup import Federation, build_federation
from motley.engine.threads import choose_threads, threads
from motley.errors import InvalidRunFolder
from motley.models.assign import ModelFactory
from motley.record.checkpoints import Checkpoint
from motley.record.folder import RunFolder


@contextmanager
def rebuilt(
    folder: RunFolder,
    config: RunConfig,
    verb: str,
    *,
    dataset: Dataset | None = None,
    factory: ModelFactory | None = None,
) -> Iterator[tuple[Federation, Checkpoint]]:
    """Rebuild a federation and give its clients their weights and memories; the block has the run's number of threads.

    Args:
        folder: Of the run.
        config: As it is stored there.
        verb: What is to be done with the models, for messages.
        dataset: Data in memory, if the run had such.
        factory: Makes the models, if the run had such.

    Raises:
        InvalidRunFolder: There is no checkpoint, or the partition is not that of the data as they are now.
        MotleyError: The data or models of the run cannot be had any more.
    """
    checkpoint = folder.latest()
    if checkpoint is None:
        raise InvalidRunFolder(
            f"{folder.path} has no checkpoint, and so no models to {verb}; run it again without --checkpoint-every 0"
        )
    federation = build_federation(config, dataset=dataset, factory=factory)
    check_partition(folder, federation, verb)
    method = config.entry.method(config.options)
    LocalExecutor(federation.clients, method, None).restore(checkpoint.tensors)
    with threads(choose_threads(config.settings.run.threads, federation.clients)):
        yield federation, checkpoint
