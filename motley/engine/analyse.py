"""FedTopo's mechanism study of a run that was made: prototypes and relations of its final models (sheet, section 7)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from motley.data.dataset import Dataset
from motley.draws import Draws
from motley.engine.config import RunConfig
from motley.engine.rebuilt import rebuilt
from motley.engine.runs import stored_config
from motley.engine.setup import Federation
from motley.errors import InvalidInput, InvalidRunFolder
from motley.federation import Client
from motley.functional import topology
from motley.functional.mechanism import study_mechanism
from motley.functional.projection import principal_plane
from motley.functional.relation_consistency import (
    client_pairs,
    other_class_similarity,
    prototype_consistency,
    relation_consistency,
)
from motley.functional.topology_metrics import global_prototypes
from motley.methods.fedtopo_options import FedTopoOptions
from motley.models.assign import ModelFactory
from motley.record.analysis import DIFFERENT, SAME, Analysis, Projection
from motley.record.folder import RunFolder
from motley.training.statistics import counts_behind, local_prototypes

Feature = Literal["pooled", "raw"]


@dataclass(frozen=True)
class Measured:
    """What all clients have of one kind of features.

    Attributes:
        prototypes: By client, (C, d_k), NaN where absent.
        counts: Effective samples per class, (K, C).
        relations: R_k, (K, C, C), NaN where masked.
    """

    prototypes: Sequence[Tensor]
    counts: Tensor
    relations: Tensor

    @property
    def joined(self) -> Tensor | None:
        """Return the prototypes (K, C, d) if their widths are one."""
        return torch.stack(list(self.prototypes)) if len({p.shape[1] for p in self.prototypes}) == 1 else None


def analyse(path: Path, *, draws: int, dataset: Dataset | None = None, factory: ModelFactory | None = None) -> Analysis:
    """Study the models of a run folder's newest checkpoint.

    Args:
        path: The run folder; nothing in it is changed.
        draws: Permutations and rotations for chance, >= 1.
        dataset: Data in memory, if the run had such.
        factory: Makes the models, if the run had such.

    Raises:
        InvalidInput: `draws` is below 1.
        InvalidRunFolder: It is no run folder, has no checkpoint, its data have changed, or its models give no features.
        MotleyError: The data or models of the run cannot be had any more.
    """
    if draws < 1:
        raise InvalidInput(f"--permutations is {draws}; chance needs 1 or more, and 199 to tell p = 0.005")
    folder = RunFolder.open(path)
    config = stored_config(folder)
    with rebuilt(folder, config, "analyse", dataset=dataset, factory=factory) as (federation, checkpoint):
        for client in federation.clients:
            if not client.model.has_features:
                raise InvalidRunFolder(
                    f"the model of client {client.id} of {path} gives scores alone; prototypes need its features"
                )
        return _analysis(config, federation, checkpoint.tensors, checkpoint.round, path, draws)


def _analysis(
    config: RunConfig, federation: Federation, tensors: Mapping[str, Tensor], round: int, path: Path, draws: int
) -> Analysis:
    clients, addressed = federation.clients, Draws(config.settings.run.seed)
    measured = {"pooled": _measure(clients, "pooled")}
    if any(not isinstance(client.model.pool, nn.Identity) for client in clients):
        measured["raw"] = _measure(clients, "raw")
    options = config.options if isinstance(config.options, FedTopoOptions) else None
    feature: Feature = options.relation_feature if options else "pooled"
    studied = measured.get(feature, measured["pooled"])
    told = _server_topology(options, tensors) if options else None
    mechanism = study_mechanism(
        measured["pooled"].joined,
        studied.relations,
        studied.counts,
        relations=told[0] if told else None,
        reliability=told[1] if told else _reliability(studied),
        draws=draws,
        generator=addressed.generator("analyse-reliability"),
    )
    names = _architectures(federation)
    pairs = client_pairs(studied.counts > 0, addressed.generator("analyse-pairs"))
    groups = {
        DIFFERENT: [(one, other) for one, other in pairs if names[one] != names[other]],
        SAME: [(one, other) for one, other in pairs if names[one] == names[other]],
    }
    joined = measured["pooled"].joined
    return Analysis(
        path=path,
        method=config.method,
        seed=config.settings.run.seed,
        round=round,
        rounds=config.settings.run.rounds,
        class_names=federation.task.class_names,
        architectures=names,
        feature=feature,
        from_server=told is not None,
        mechanism=mechanism,
        projection=None if joined is None else _project(joined, measured["pooled"].counts),
        consistency={
            kind: relation_consistency(
                own.relations, pairs, groups, draws=draws, generator=addressed.generator("analyse-classes")
            )
            for kind, own in measured.items()
        },
        alignment=None
        if joined is None
        else prototype_consistency(
            joined, pairs, groups, draws=draws, generator=addressed.generator("analyse-rotations")
        ),
        other_class={}
        if joined is None
        else {name: other_class_similarity(joined, own) for name, own in groups.items()},
        draws=draws,
    )


def _measure(clients: Sequence[Client], feature: Feature) -> Measured:
    """Return prototypes and relations as FedTopo's clients would compute them now (Eqs. 2-3)."""
    prototypes, counts, relations = [], [], []
    for client in clients:
        if len(client.shard.train):
            own = local_prototypes(client, feature=feature).cpu()
        else:
            own = torch.full((client.num_classes, client.model.feature_width), torch.nan, dtype=torch.float64)
        behind = counts_behind(client).cpu()
        prototypes.append(own)
        counts.append(topology.effective_counts(own, behind))
        relations.append(topology.relations(own, behind))
    return Measured(prototypes, torch.stack(counts), torch.stack(relations))


def _reliability(measured: Measured) -> Tensor:
    """Return S (Eq. 7) of a federation in which all clients took part."""
    uploads = {k: (r, n) for k, (r, n) in enumerate(zip(measured.relations, measured.counts, strict=True))}
    return topology.reliability(topology.sum_relations(uploads, measured.counts.shape[1]).support)


def _server_topology(options: FedTopoOptions, tensors: Mapping[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Return R^g, before a control changes it, and S of the last round; among peers all have the same."""
    prefix = "state/" if "state/relations" in tensors else "replica/0/"
    relations, times = tensors[f"{prefix}relations"], tensors[f"{prefix}times"]
    if options.ema_init == "debias":
        relations = topology.debias(relations, times, options.smoothing)
    return relations, tensors[f"{prefix}reliability"]


def _architectures(federation: Federation) -> tuple[str, ...]:
    """Return a name for each client that is another one where the architecture is; factories name none themselves."""
    if federation.plan.factory is None:
        return federation.plan.names
    known: dict[str, list[list[tuple[str, torch.Size]]]] = {}
    names = []
    for client in federation.clients:
        name, shapes = client.model.class_name, [(key, one.shape) for key, one in client.model.state_dict().items()]
        seen = known.setdefault(name, [])
        if shapes not in seen:
            seen.append(shapes)
        number = 1 + seen.index(shapes)
        names.append(name if number == 1 else f"{name}-{number}")
    return tuple(names)


def _project(prototypes: Tensor, counts: Tensor) -> Projection | None:
    """Return the prototypes in a plane; all of length 1, as only their angles matter."""
    overall = global_prototypes(prototypes, counts)
    local, centres = (points / points.norm(dim=-1, keepdim=True) for points in (prototypes, overall))
    held = counts > 0
    if not bool(held.any()):
        return None
    plane = principal_plane(local[held])
    inside = torch.where(held.unsqueeze(2), plane.of(local), torch.nan)
    return Projection(inside, plane.of(centres), plane.explained)
