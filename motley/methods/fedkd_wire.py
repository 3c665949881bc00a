"""FedKD on the wire: the mentee whole or as an update, and which version of it a client has."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from motley.errors import InvalidMessage
from motley.federation import Client
from motley.functional.averaging import State
from motley.functional.low_rank import expand
from motley.messages import Message, entry, weights
from motley.training.memory import recall_state, remember_state


@dataclass(frozen=True)
class Mentee(Message):
    """What the server holds: the mentee, how it came from the version before, and which version each client has."""

    mentee: Mapping[str, Tensor] = weights("state dict of the mentee")
    update: Mapping[str, Tensor] = weights("the last update, compressed")
    version: Tensor = entry(dtype=torch.int64, low=0, counted=False, about="number of updates")
    known: Tensor = entry("N", dtype=torch.int64, low=-1, counted=False, about="each client's version, -1: none")


@dataclass(frozen=True)
class News(Message):
    """Either the whole mentee or the update to it from the version before; the other is empty."""

    mentee: Mapping[str, Tensor] = weights("state dict of the mentee")
    update: Mapping[str, Tensor] = weights("update of the version before, compressed")
    version: Tensor = entry(dtype=torch.int64, low=0, counted=False, about="version that this makes")


@dataclass(frozen=True)
class Update(Message):
    """What a client's training changed in the mentee."""

    update: Mapping[str, Tensor] = weights("trained minus received mentee, compressed")


def received_mentee(client: Client, received: News) -> State:
    """Return the mentee as the server has it, and keep it as the reference of the next update.

    Raises:
        InvalidMessage: An update came for a version that the client does not have.
    """
    state: State = {name: tensor.cpu() for name, tensor in received.mentee.items()}
    if not state:
        held = int(client.memory.get("version", torch.tensor(-1)))
        if held != int(received.version) - 1:
            raise InvalidMessage(
                f"client {client.id} has version {held} of the mentee and got the update to {int(received.version)}; "
                "the server must send the whole mentee"
            )
        state = moved(recall_state(client, "mentee"), received.update)
    remember_state(client, "mentee", state)
    client.memory["version"] = received.version.clone()
    return state


def difference(new: State, old: State) -> State:
    """Return new - old of floating entries; counters as they are."""
    return {
        name: tensor - old[name].to(tensor.device) if tensor.is_floating_point() else tensor
        for name, tensor in new.items()
    }


def moved(old: State, update: State) -> State:
    """Return a state after a compressed update, on the CPU, where all find the same bits."""
    held = {name: tensor.cpu() for name, tensor in old.items()}
    changes = expand(update, held)
    return {
        name: tensor + changes[name] if tensor.is_floating_point() else changes[name] for name, tensor in held.items()
    }
