"""What CRAD sends, and in how many bits the weights travel.

    float32   as they are          float16   half the bytes; a tensor beyond its range stays float32
    int8      tensors of two or more axes as codes with one scale each, the others as they are

Our reading of int8: vectors (biases, batch norm) are below 1 % of a model, and a running variance that is rounded to 0
would blow up its channel. Statistics always travel in full.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from motley.errors import InvalidInput, InvalidMessage
from motley.functional.quantisation import dequantise, halved, quantise
from motley.messages import Entry, Message, entry, weights
from motley.methods.crad_guidance import unpack_part

Wire = Literal["float32", "float16", "int8"]


@dataclass(frozen=True)
class Snapshot(Message):
    """A model and its statistics, frozen before the round."""

    weights: Mapping[str, Tensor] = weights("theta_j, state dict of the model")
    counts: Tensor = entry(
        "C", dtype=torch.int32, other_dtype=torch.float32, low=0, high=1e9, about="n_j, validation samples per class"
    )
    accuracies: Tensor = entry("C", low=0, high=1, about="a_j, validation accuracy per class")
    cross_entropies: Tensor = field(
        default_factory=lambda: torch.zeros(0),
        metadata={
            "entry": Entry(("*",), low=0, masked=True, about="C numbers with weighting = cross-entropy, else none")
        },
    )
    scales: Mapping[str, Tensor] = field(
        default_factory=dict, metadata={"entry": Entry(named=True, about="of each quantised tensor, with int8")}
    )
    topology: Mapping[str, Tensor] = field(
        default_factory=dict,
        metadata={"entry": Entry(named=True, about="relations and training counts, C^2 + C, with guidance_weight")},
    )

    def fault(self) -> str:
        """Return what is wrong between the entries, or nothing."""
        if self.cross_entropies.numel() not in (0, self.counts.numel()):
            return f"the entry 'cross_entropies' has {self.cross_entropies.numel()} numbers for {self.counts.numel()}"
        if self.topology:
            try:
                unpack_part(self.topology)
            except InvalidInput as error:
                return str(error)
            if len(self.topology["counts"]) != self.counts.numel():
                return f"relations are of {len(self.topology['counts'])} classes, not of {self.counts.numel()}"
        for name, scale in self.scales.items():
            if scale.numel() != 1 or not scale.is_floating_point():
                return f"the scale of '{name}' is not one number"
        coded = {name for name, tensor in self.weights.items() if tensor.dtype == torch.int8}
        wrong = next(iter(coded ^ set(self.scales)), None)
        return f"'{wrong}' has either codes or a scale, and needs both" if wrong else ""


def check_claims(message: Snapshot, *, noisy: bool, weighting: str) -> None:
    """Refuse statistics that are not those of the run's options.

    Raises:
        InvalidMessage: Counts are not whole though no noise is on, or the weighting's numbers are missing.
    """
    if message.counts.is_floating_point() and not noisy:
        raise InvalidMessage("counts that are not whole, though crad.count_epsilon is not set")
    if weighting == "cross-entropy" and message.cross_entropies.shape != message.counts.shape:
        raise InvalidMessage("no cross-entropies, which crad.weighting = cross-entropy needs")


def pack_weights(state: Mapping[str, Tensor], wire: Wire) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the weights as they travel, and the scales of those that are codes."""
    if wire == "float16":
        return {name: halved(tensor) for name, tensor in state.items()}, {}
    if wire == "float32":
        return dict(state), {}
    coded = {name: quantise(tensor) for name, tensor in state.items() if tensor.is_floating_point() and tensor.ndim > 1}
    sent = {name: coded[name][0] if name in coded else tensor for name, tensor in state.items()}
    return sent, {name: scale for name, (_, scale) in coded.items()}


def unpack_weights(message: Snapshot) -> dict[str, Tensor]:
    """Return the weights of a received snapshot, float32 where they travelled in fewer bits."""
    return {name: _unpacked(tensor, message.scales.get(name)) for name, tensor in message.weights.items()}


def _unpacked(tensor: Tensor, scale: Tensor | None) -> Tensor:
    if scale is not None:
        return dequantise(tensor, scale)
    return tensor.float() if tensor.dtype == torch.float16 else tensor


def stacked_claims(inbox: Mapping[int, Snapshot], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the counts and accuracies that peers claim, (M, C) each."""
    counts = torch.stack([message.counts for message in inbox.values()])
    return counts.to(device), torch.stack([message.accuracies for message in inbox.values()]).to(device)
