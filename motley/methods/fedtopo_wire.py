"""What FedTopo sends, dense as the paper counts it or sparse without loss, and the server's state.

dense    up C^2 relations and C counts                            down C^2 relations and C^2 reliabilities
sparse   up m (m - 1) / 2 relations of m held classes, C counts   down the same pairs of both, m (m - 1) numbers

Both give the same bits (FedTopo sheet, section 6). The server cannot know the pairs of a client that has not reported
yet, or reports noisy counts, and without the local mask all pairs are read; it then sends the upper triangles of all
classes, C (C - 1) numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from motley.errors import InvalidInput
from motley.functional import topology_wire
from motley.messages import Message, entry


@dataclass(frozen=True)
class TopologyState(Message):
    """The server's state; it never leaves the server."""

    relations: Tensor = entry("C", "C", dtype=torch.float64, low=0, high=1, about="R^g, smoothed")
    reliability: Tensor = entry("C", "C", dtype=torch.float64, low=0, high=1, about="S^g")
    support: Tensor = entry("C", "C", dtype=torch.float64, low=0, about="W, of the round or smoothed")
    times: Tensor = entry("C", "C", dtype=torch.int64, low=0, about="rounds in which a pair was observed")
    guide: Tensor = entry("C", "C", dtype=torch.float64, low=0, high=1, about="R^g as it is sent, after a control")
    reported: Tensor = entry("*", "C", dtype=torch.bool, about="classes each client ever reported; sparse wire only")


@dataclass(frozen=True)
class Relations(Message):
    """What a client sends."""

    relations: Tensor = entry("*", low=0, high=1, masked=True, about="R_k, all entries or the held upper triangle")
    counts: Tensor = entry("C", dtype=torch.int32, other_dtype=torch.float32, low=0, about="n_k, samples per class")

    def fault(self) -> str:
        """Return what is wrong between relations and counts, or nothing."""
        try:
            unpack_relations(self)
        except InvalidInput as error:
            return str(error)
        return ""


@dataclass(frozen=True)
class Topology(Message):
    """What a client receives."""

    values: Tensor = entry("*", low=0, high=1, about="R^g and S^g, all entries or upper triangles")


def start_state(num_classes: int, num_reporting: int) -> TopologyState:
    """Return R_0 = I and S_0 = 0 (Algorithm 1)."""
    eye, zero = torch.eye(num_classes, dtype=torch.float64), torch.zeros(num_classes, num_classes, dtype=torch.float64)
    return TopologyState(eye, zero, zero, zero.long(), eye, torch.zeros(num_reporting, num_classes, dtype=torch.bool))


def pack_relations(relations: Tensor, counts: Tensor, wire: topology_wire.Wire) -> Relations:
    """Return the upload; counts travel as int32, noisy ones as float32."""
    kind = torch.float32 if counts.is_floating_point() else torch.int32
    sent = counts.to(kind)
    return Relations(topology_wire.pack_upload(relations, sent, wire), sent)


def unpack_relations(message: Relations) -> tuple[Tensor, Tensor]:
    """Return relations (C, C), float64, NaN where masked, and counts (C,) of an upload.

    Raises:
        InvalidInput: No client can have these relations with these counts.
    """
    num_classes = message.counts.numel()
    wire: topology_wire.Wire = "dense" if message.relations.numel() == num_classes**2 else "sparse"
    return topology_wire.unpack_upload(message.relations, message.counts, wire), message.counts


def unpack_all(messages: Sequence[Relations]) -> tuple[list[Tensor], Tensor]:
    """Return the relations, K of (C, C), and counts (K, C) of uploads that were checked on receipt."""
    counts = torch.stack([message.counts for message in messages])
    num_classes = counts.shape[1]
    if all(message.relations.numel() == num_classes**2 for message in messages):
        return [message.relations.view(num_classes, num_classes) for message in messages], counts
    return [unpack_relations(message)[0] for message in messages], counts


def pack_topology(state: TopologyState, client_id: int, wire: topology_wire.Wire) -> Topology:
    """Return the broadcast for one client."""
    reported = state.reported[client_id] if len(state.reported) else torch.zeros(len(state.guide), dtype=torch.bool)
    if wire == "sparse" and not bool(reported.any()):
        wire = "half"
    return Topology(topology_wire.pack_download(state.guide, state.reliability, reported, wire))


def unpack_topology(message: Topology, reported: Tensor) -> tuple[Tensor, Tensor]:
    """Return R^g and S^g, (C, C) float64 each; `reported` are the classes (C,) that the client ever reported."""
    num_classes = reported.numel()
    size = message.values.numel()
    wire: topology_wire.Wire = "sparse"
    if size == topology_wire.download_size(num_classes, 0, "dense"):
        wire = "dense"
    elif size == topology_wire.download_size(num_classes, 0, "half"):
        wire = "half"
    return topology_wire.unpack_download(message.values, reported, wire)


def note_reported(state: TopologyState, client_ids: Sequence[int], counts: Tensor) -> TopologyState:
    """Return the state in which the reported classes of K clients, counts (K, C), are known; sparse wire only."""
    if not len(state.reported):
        return state
    reported = state.reported.clone()
    reported[list(client_ids)] |= counts > 0
    return replace(state, reported=reported)
