"""A few clients without an engine around them, and rounds of a method with a server in which they take part."""

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import torch

from motley.federation import Client
from motley.methods.contracts import ServerMethod, Upload
from motley.methods.registry import find_method
from motley.models.split import SplitModel

C = 3
LABELS = ([0, 0, 0, 1, 1, 1, 1, 1, 0], [1, 2, 2, 2, 1, 2], [2, 0, 0, 0])


def made(name: str, **options: Any) -> Any:
    """Return a method with these options."""
    entry = find_method(name)
    return entry.method(entry.options(**options))


def clients_for(
    tiny: SimpleNamespace,
    name: str,
    labels: Sequence[Sequence[int]] = LABELS,
    *,
    as_bytes: bool = False,
    **training: Any,
) -> list[Client]:
    """Return clients of tiny networks that suit a method, each with labels of its own, C = 3; float32 or uint8 inputs."""
    factory = tiny.models_for(name)

    def split(client_id: int) -> SplitModel:
        with tiny.draws.scope("init", client=client_id):
            return SplitModel.from_module(factory(client_id, (1, 4, 4), C), num_classes=C)

    def inputs(client_id: int, size: int) -> torch.Tensor:
        x = torch.randn(size, 1, 4, 4, generator=torch.Generator().manual_seed(client_id))
        return (128 + 50 * x).clamp(0, 255).to(torch.uint8) if as_bytes else x

    templates = [split(number) for number in range(max(4, len(labels)))]  # tiny.client says that there are 4
    return [
        tiny.client(
            inputs(number, len(own)),
            own,
            split(number),
            num_classes=C,
            client_id=number,
            template=templates.__getitem__,
            **{"lr": 0.1, "batch_size": 4, "auxiliary": lambda name, width: split(-1)} | training,
        )
        for number, own in enumerate(labels)
    ]


def play_round(
    method: ServerMethod[Any, Any, Any], state: Any, clients: Iterable[Client], round: int, tiny: SimpleNamespace
) -> Any:
    """Return the server's state after a round of these clients."""
    uploads = [
        Upload(one.id, method.client_round(one, method.broadcast(state, one.id), round, tiny.draws)) for one in clients
    ]
    return method.server_round(state, iter(uploads), round, tiny.draws)  # a stream, which local never reads


def play(method: ServerMethod[Any, Any, Any], clients: list[Client], rounds: int, tiny: SimpleNamespace) -> Any:
    """Return the server's state after rounds in which all take part."""
    state = method.start(clients[0].task, tiny.draws)
    for round in range(1, rounds + 1):
        state = play_round(method, state, clients, round, tiny)
    return state


def states(clients: Iterable[Client]) -> dict[str, torch.Tensor]:
    """Return the tensors of all clients' models."""
    return {f"{one.id}/{key}": value.clone() for one in clients for key, value in one.model.state_dict().items()}
