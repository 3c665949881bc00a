"""From a configuration to a federation that is ready for round 1."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch

from motley.data.dataset import Dataset
from motley.data.federated import FederatedData, build_federated_data
from motley.data.sources import load_dataset
from motley.draws import Draws
from motley.engine.config import RunConfig
from motley.engine.devices import find_device
from motley.engine.exchange import check_exchange
from motley.engine.needs import check_needs
from motley.engine.participation import participant_number
from motley.engine.precision import of_client, precision_text, resolve_precision
from motley.engine.threads import choose_threads, threads
from motley.errors import InvalidConfig
from motley.federation import Client, Proxy, Task
from motley.models.assign import ModelFactory, ModelPlan, auxiliary_model, check_models, initial_model, plan_models
from motley.models.inference import InferenceCopies
from motley.models.split import SplitModel
from motley.training.inputs import Normalizer
from motley.training.layout import BY_RULE, Layout, place


@dataclass(frozen=True)
class Federation:
    """All that a run works on.

    Attributes:
        task: What everybody knows.
        clients: In the order of their ids, on the device.
        data: Shards, partition and what was noted of them.
        plan: The architecture of every client.
        device: Where everything lives.
        participants_per_round: How many clients take part in a round.
        precision: The resolved option: what `auto` has become.
        starts: Draws of all initial weights, those of the server included.
    """

    task: Task
    clients: list[Client]
    data: FederatedData
    plan: ModelPlan
    device: torch.device
    participants_per_round: int
    precision: str
    starts: Draws

    def start_draws(self, config: RunConfig) -> Draws:
        """Return the draws of a method's start: for a server its weights; peers have theirs, and draw other things."""
        return self.starts if config.entry.has_server else Draws(config.settings.run.seed)


class Templates:
    """One model an architecture, into which the weights of snapshots are put; it is built when first asked for."""

    def __init__(
        self, plan: ModelPlan, draws: Draws, device: torch.device, layouts: Mapping[str, Layout] = MappingProxyType({})
    ) -> None:
        self._plan, self._draws, self._device, self._layouts = plan, draws, device, layouts
        self._built: dict[str, SplitModel] = {}

    def __call__(self, client_id: int) -> SplitModel:
        """Return the template of a client's architecture; a factory may give every client another one."""
        name = self._plan.kind(client_id)
        if name not in self._built:
            model = initial_model(self._plan, client_id, self._draws)
            layout = self._layouts.get(name, BY_RULE)
            self._built[name] = place(model, self._plan.input_shape, self._device, layout)
        return self._built[name]


class Auxiliaries:
    """Makes models that all clients have beside their own; see `Task.auxiliary`."""

    def __init__(self, plan: ModelPlan, draws: Draws, device: torch.device) -> None:
        self._plan, self._draws, self._device = plan, draws, device

    def __call__(self, name: str, width: int | None = None) -> SplitModel:
        """Return a new model of this architecture with the server's initial weights."""
        return place(auxiliary_model(self._plan, name, width, self._draws), self._plan.input_shape, self._device)


def build_federation(
    config: RunConfig,
    *,
    dataset: Dataset | None = None,
    factory: ModelFactory | None = None,
) -> Federation:
    """Load the data, partition them, build and try the models.

    Args:
        config: The resolved configuration.
        dataset: Data in memory instead of those that the configuration names.
        factory: Makes the models instead of the pool that the configuration names.

    Raises:
        InvalidData, InvalidPartition, InvalidModel, InvalidConfig: What the user asked for cannot be done.
    """
    settings = config.settings
    check_exchange(settings.run, config.entry)
    device = find_device(settings.run.device)
    seed = settings.models.init_seed
    draws = Draws(settings.run.seed if seed == "run" else seed)
    source = dataset if dataset is not None else load_dataset(settings.data)
    data = build_federated_data(source, settings.partition, settings.data, settings.run.seed)
    num_clients = len(data.shards)
    if settings.train.augment != "none" and len(data.input_shape) != 3:
        raise InvalidConfig(f"train.augment is '{settings.train.augment}', which is for pictures; signals take 'none'")
    number = participant_number(settings.run.participation, num_clients)
    plan = plan_models(
        settings.models,
        clients=num_clients,
        input_shape=data.input_shape,
        num_classes=data.num_classes,
        factory=factory,
    )
    check_models(plan, draws, needs_features="features" in config.entry.needs, device=device)
    task = Task(
        data.class_names,
        data.input_shape,
        num_clients,
        template=Templates(plan, draws, device),
        auxiliary=Auxiliaries(plan, draws, device),
        proxy=_proxy(data, device, labelled="proxy-labels" in config.entry.needs),
        architecture=plan.kind,
    )
    clients = [
        Client(
            id=client_id,
            task=task,
            model=place(initial_model(plan, client_id, draws), data.input_shape, device),
            shard=shard.to(device),
            training=settings.train,
            evaluation=settings.eval,
        )
        for client_id, shard in enumerate(data.shards)
    ]
    check_needs(config.entry, clients, plan)
    with threads(choose_threads(settings.run.threads, clients)):
        chosen = resolve_precision(settings.run.precision, plan, clients)
    by_kind = {plan.kind(client.id): of_client(chosen, plan, client.id) for client in clients}
    task = replace(
        task,
        template=Templates(plan, draws, device, {kind: precision.layout for kind, precision in by_kind.items()}),
        inference=InferenceCopies({kind: precision.infer for kind, precision in by_kind.items()}),
    )
    for client in clients:
        own = by_kind[plan.kind(client.id)]
        client.task, client.train_dtype = task, own.train
        if own.layout != BY_RULE:
            place(client.model, data.input_shape, device, own.layout)
    return Federation(task, clients, data, plan, device, number, precision_text(chosen), draws)


def _proxy(data: FederatedData, device: torch.device, *, labelled: bool) -> Proxy | None:
    """Return the proxy set as models see it, with labels for methods that are given them."""
    if data.proxy is None:
        return None
    held = data.proxy.to(device)
    return Proxy(Normalizer.of(data.normalization, held.x)(held.x), held.y if labelled else None)
