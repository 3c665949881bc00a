"""CRAD guided by relations (topology meets distillation): FedTopo's term beside CRAD's, without a server.

    beside a snapshot   R_j, how the classes of a peer relate, and its training counts n_j: C^2 + C numbers

    FedTopo, Eqs. 2-3    measured by a peer after its round:  R_j(c, c') = (1 + cos(p_jc, p_jc')) / 2
    FedTopo, Eqs. 4-8    R^g and S^g, by every peer for itself, of what it received and its own
    FedTopo, Eqs. 9-11   B_y = the q largest of R^g(y, c) S^g(y, c) over held classes c != y
    added to CRAD's L    weight CE(z + gamma B_y, y)

Our readings: rho, gamma and q are FedTopo's defaults, so that one weight is all that is added; whose relations did not
arrive is not in the sums; a peer sends none before it has trained once, so guidance begins in round 2; in CRAD's
warm-up the relations are gathered and do not guide, as in FedTopo's.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from motley.errors import InvalidInput
from motley.federation import Client
from motley.functional import topology
from motley.functional.topology_guidance import guidance, modulate
from motley.functional.topology_wire import unpack_upload
from motley.methods.fedtopo_options import FedTopoOptions
from motley.training.local import Step, Terms
from motley.training.statistics import local_prototypes

DEFAULTS = FedTopoOptions()
Part = Mapping[str, Tensor]  # "relations" (C, C), 0 where a class is not held, and "counts" (C,); or nothing


def measure_relations(client: Client) -> None:
    """Remember what the client will send beside its next snapshot (Eqs. 2-3); one pass over its training part."""
    prototypes, counts = local_prototypes(client).cpu(), client.shard.counts.cpu()
    sent = topology.effective_counts(prototypes, counts)
    # float32 counts, exact below 2^24, since integers beside weights are taken for counters and not counted.
    client.memory["relations"] = topology.relations(prototypes, sent).nan_to_num(0.0).float()
    client.memory["relation_counts"] = sent.float()


def own_part(client: Client) -> dict[str, Tensor]:
    """Return what the client sends beside its snapshot; nothing before its first round."""
    if "relations" not in client.memory:
        return {}
    return {
        "relations": client.memory["relations"].cpu().clone(),
        "counts": client.memory["relation_counts"].cpu().clone(),
    }


def unpack_part(part: Part) -> tuple[Tensor, Tensor]:
    """Return relations (C, C), float64, NaN where masked, and counts (C,) of a received part.

    Raises:
        InvalidInput: An entry is missing or unknown, or no client can have these relations with these counts.
    """
    if set(part) != {"relations", "counts"}:
        raise InvalidInput(f"relations come with the entries 'relations' and 'counts', not {sorted(part)}")
    relations, counts = part["relations"], part["counts"]
    topology.check_counts(counts)
    held = topology.pair_mask(counts)
    if relations.shape != held.shape:
        raise InvalidInput(f"relations have shape {tuple(relations.shape)}, but {len(counts)} classes have counts")
    masked = torch.where(held, relations, torch.where(relations == 0, torch.nan, relations))
    return unpack_upload(masked.flatten(), counts, "dense"), counts


def update_topology(client: Client, received: Mapping[int, Part]) -> Tensor:
    """Bring a client's R^g up to date (Eqs. 4-8) and return its guidance B, (C, C) float32, on its device (Eqs. 9-11).

    Args:
        client: Whose `memory` holds R^g from round to round.
        received: The parts of its peers, by their ids; its own is added.
    """
    parts = {peer: unpack_part(part) for peer, part in {**received, client.id: own_part(client)}.items() if part}
    sums = topology.sum_relations(parts, client.num_classes)
    before = client.memory.get("topology", torch.eye(client.num_classes, dtype=torch.float64)).cpu()
    smoothed = topology.smooth(before, topology.aggregate(sums), topology.observed(sums), rho=DEFAULTS.smoothing)
    client.memory["topology"] = smoothed
    held = client.shard.counts.cpu() > 0
    chosen = guidance(smoothed, topology.reliability(sums.support), held, q=DEFAULTS.negatives)
    client.journal["guidance_max"] = chosen[held].max().item() if bool(held.any()) else None
    return chosen.float().to(client.shard.counts.device)


def guided(chosen: Tensor, weight: float) -> Callable[[Step], Terms]:
    """Return the term that guidance B adds to a loss (Eqs. 12-13)."""

    def terms(step: Step) -> Terms:
        raised = modulate(step.logits, step.y, chosen, strength=DEFAULTS.strength)
        return {"topology": weight * cross_entropy(raised, step.y)}

    return terms
