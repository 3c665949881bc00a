"""The parts of FedTopo's client that its ablations and controls change: the view of the topology, and the upload."""

import warnings
from functools import partial

import torch
from torch import Tensor

from motley.draws import Draws
from motley.errors import MotleyWarning
from motley.federation import Client
from motley.functional import topology, topology_controls
from motley.functional.count_noise import draw_hidden_relations, fill_hidden_relations, laplace_noise, noisy_counts
from motley.functional.topology_guidance import guidance
from motley.methods.fedtopo_options import FedTopoOptions
from motley.methods.fedtopo_wire import Relations, Topology, pack_relations, unpack_topology


def client_guidance(client: Client, received: Topology, options: FedTopoOptions) -> Tensor:
    """Return B for every true class, (C, C) float64 (Eqs. 9-11), after the ablations and controls."""
    counts = client.shard.counts.cpu()
    held = counts > 0
    relations, trust = unpack_topology(received, client.memory.get("reported", torch.zeros_like(held)).cpu())
    if options.topology == "local":
        relations = client.memory.get("relations", torch.eye(len(held), dtype=torch.float64)).cpu()
        own = topology.reliability(topology.pair_weights(counts), norm=options.s_norm)
        trust = {"ones": torch.ones_like(trust), "self": own, "global": trust}[options.local_s]
    if not options.use_s:
        trust = torch.ones_like(trust)
    select = partial(guidance, relations, trust, held, local_mask=options.local_mask)
    chosen = select(q=options.negatives)
    if options.relation_control == "margin":
        chosen = topology_controls.margin_guidance(held, options.margin)
    if options.relation_control == "match-norm":
        chosen = topology_controls.match_norm(select(q="all"), chosen)
    _note_guidance(client, relations, chosen, local_mask=options.local_mask)
    return chosen


def _note_guidance(client: Client, relations: Tensor, chosen: Tensor, *, local_mask: bool) -> None:
    """Record size, slots and change of a round's guidance B; the change is since the client last took part."""
    counts, journal = client.shard.counts.cpu(), client.journal
    held = counts > 0
    total, weight = topology_controls.positive_guidance(torch.where(held[:, None], chosen, 0.0), counts)
    journal["guidance_mean"] = total / weight if weight else None
    journal["guidance_max"] = chosen[held].max().item() if bool(held.any()) else None
    taken = chosen[held] > 0
    journal["guidance_absent"] = (taken & ~held).sum().item() / slots if (slots := taken.sum().item()) else None
    usable = held[:, None] & (held if local_mask else torch.ones_like(held)) & ~torch.eye(len(held), dtype=torch.bool)
    for name, now in (("relations", relations[usable]), ("guidance", chosen[usable])):
        before = client.memory.get(f"last_{name}")
        journal[f"{name}_change"] = None if before is None or not len(now) else (now - before.cpu()).abs().mean().item()
        client.memory[f"last_{name}"] = now


def upload(client: Client, prototypes: Tensor, counts: Tensor, options: FedTopoOptions, draws: Draws) -> Relations:
    """Return what the client sends of its prototypes (C, d) and of the samples behind each (C,) (Eqs. 2-3)."""
    prototypes, counts = prototypes.cpu(), counts.cpu()
    relations, sent = topology.relations(prototypes, counts), topology.effective_counts(prototypes, counts)
    for label in torch.nonzero((sent == 0) & (counts > 0)).flatten().tolist():
        text = (
            f"client {client.id}: the prototype of class {label} has length zero; the class takes part in no relation"
        )
        warnings.warn(text, MotleyWarning, stacklevel=2)
    if options.topology == "local":
        before = client.memory.get("relations", torch.eye(len(counts), dtype=torch.float64)).cpu()
        seen = topology.pair_mask(sent)
        client.memory["relations"] = topology.smooth(before, relations, seen, rho=options.smoothing)
    if options.count_noise:
        noise = laplace_noise(len(counts), options.count_noise, draws.generator("count-noise", client=client.id))
        sent = noisy_counts(sent, noise, hide_absent=options.hide_absent).float()
        if options.hide_absent:
            if "hidden" not in client.memory:
                generator = draws.generator("hidden-relations", client=client.id)
                client.memory["hidden"] = draw_hidden_relations(relations, generator)
            relations = fill_hidden_relations(relations, sent, client.memory["hidden"])
        relations = torch.where(topology.pair_mask(sent), relations, torch.nan)
    client.memory["reported"] = client.memory.get("reported", torch.zeros_like(counts, dtype=torch.bool)).cpu() | (
        sent > 0
    )
    return pack_relations(relations, sent, options.wire)
