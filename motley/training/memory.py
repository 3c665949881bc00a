"""Modules and states that a method keeps on a client between rounds, as named tensors of the client's memory."""

from collections.abc import Mapping

from torch import Tensor, nn

from motley.federation import Client


def remember_state(client: Client, name: str, state: Mapping[str, Tensor]) -> None:
    """Keep a copy of named tensors, `name/key` each, in place of what was kept under this name."""
    forget_state(client, name)
    client.memory.update({f"{name}/{key}": tensor.detach().clone() for key, tensor in state.items()})


def recall_state(client: Client, name: str) -> dict[str, Tensor]:
    """Return what was kept under a name; empty if nothing was."""
    prefix = f"{name}/"
    return {key.removeprefix(prefix): value for key, value in client.memory.items() if key.startswith(prefix)}


def forget_state(client: Client, name: str) -> None:
    """Drop what was kept under a name."""
    for key in [key for key in client.memory if key.startswith(f"{name}/")]:
        del client.memory[key]


def recall_module(client: Client, name: str, module: nn.Module) -> bool:
    """Give a module the state that was kept under a name; False, and no change, if there is none."""
    held = recall_state(client, name)
    if held:
        module.load_state_dict(held)
    return bool(held)
