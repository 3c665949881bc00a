"""Whether the models of a federation are what a method asks for (rule R11)."""

import warnings
from collections.abc import Callable, Hashable

from torch import nn

from motley.data.wording import listed
from motley.errors import InvalidConfig, MotleyWarning
from motley.federation import Client
from motley.methods.registry import MethodEntry
from motley.models.assign import ModelPlan


def check_needs(entry: MethodEntry, clients: list[Client], plan: ModelPlan) -> None:
    """Compare what all clients must have in common, and warn where nobody has what a method measures by.

    Raises:
        InvalidConfig: Some clients differ from client 0; they are named, with what they have and what would help.
    """
    if "equal-width" in entry.needs:
        _check_alike(entry, clients, "features of one width", _width, "set --feature-width")
    if "equal-head" in entry.needs:
        remedy = "set --feature-width, and let every head be one linear layer"
        _check_alike(entry, clients, "heads of one shape", _head, remedy)
    if "one-architecture" in entry.needs:
        _check_alike(
            entry, clients, "one architecture", lambda client: _architecture(client, plan), "take one --models NAME"
        )
    if "validation" in entry.needs and not any(len(client.shard.validation) for client in clients):
        text = (
            f"{entry.name} measures its peers on validation samples, of which no client has any, so all peers count "
            "alike; take --protocol global, or --validation-fraction 0.2 with protocol local"
        )
        warnings.warn(text, MotleyWarning, stacklevel=2)


def _width(client: Client) -> Hashable:
    return client.model.feature_width


def _head(client: Client) -> Hashable:
    head = client.model.head
    if not isinstance(head, nn.Linear):
        return f"{type(head).__name__} of client {client.id}"  # what another kind of head computes cannot be compared
    return f"Linear({head.in_features}, {head.out_features}{'' if head.bias is not None else ', bias=False'})"


def _architecture(client: Client, plan: ModelPlan) -> Hashable:
    """Return the name of an architecture; of a factory's module the tensors, since it has no name of its own."""
    if plan.factory is None:
        return plan.architecture(client.id)
    shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in client.model.state_dict().items())
    return f"{client.model.class_name} ({shapes})"


def _check_alike(
    entry: MethodEntry, clients: list[Client], what: str, of: Callable[[Client], Hashable], remedy: str
) -> None:
    first = of(clients[0])
    others = [client for client in clients if of(client) != first]
    if others:
        names = listed([str(client.id) for client in others])
        raise InvalidConfig(
            f"{entry.name} needs {what} at all clients, but client 0 has {first} and client {others[0].id} has "
            f"{of(others[0])} (different from client 0: {names}); {remedy}"
        )
