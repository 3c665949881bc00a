"""What a comparison would be refused for, found out before its folder is made and its first run has taken hours."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from motley.data.dataset import Dataset
from motley.engine.config import RunConfig
from motley.engine.exchange import check_exchange
from motley.engine.faults import make_method
from motley.engine.notices import told_warnings
from motley.engine.setup import build_federation
from motley.models.assign import ModelFactory
from motley.options import DataOptions


class Trial:
    """Builds the federations of comparisons, each once for all rows that differ in nothing that could be refused.

    Args:
        load: Gives the samples of a row.
        factory: Makes the models instead of the pool that a configuration names.
    """

    def __init__(self, load: Callable[[DataOptions], Dataset], factory: ModelFactory | None = None) -> None:
        self._load, self._factory = load, factory
        self._tried: set[str] = set()

    def check(self, configs: Iterable[RunConfig]) -> None:
        """Build the federations of runs; nothing is trained or written.

        Raises:
            InvalidData, InvalidPartition, InvalidModel, InvalidConfig: What the user asked for cannot be done.
        """
        for config in map(_without_measurement, configs):
            own, run, entry = config.settings, config.settings.run, config.entry
            check_exchange(run, entry)
            asked = (own.data, own.partition, own.models, own.faults, own.train.augment, run.participation, run.device)
            key = repr((entry.exchange, entry.is_silent, entry.has_aggregators, sorted(entry.needs), *asked))
            if key in self._tried:
                continue
            self._tried.add(key)
            with told_warnings(lambda _: None):
                make_method(config, build_federation(config, dataset=self._load(own.data), factory=self._factory))


def _without_measurement(config: RunConfig) -> RunConfig:
    if config.settings.run.precision != "auto":
        return config
    run = replace(config.settings.run, precision="fp32")
    return replace(config, settings=replace(config.settings, run=run))
