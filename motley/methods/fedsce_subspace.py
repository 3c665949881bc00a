"""FedSCE's constraint of a client's head to the subspace of its latest raw updates, and the memory of these."""

import torch
from torch import Tensor

from motley.federation import Client
from motley.functional.subspace import project, trajectory_basis
from motley.training.optimizers import learning_rate

UPDATES = "head_updates"  # in a client's memory: (columns, D) float32, the latest last


class ConfinedHead:
    """The head of a client in one round.

    Args:
        client: Whose head it is; all its parameters, in their order, make one vector of D numbers.
        round: The round, from 1.
        window: Updates that are remembered, at most.
        directions: Dimensions of the subspace, at most.
        warmup: Updates that must be remembered before the head is confined.
    """

    def __init__(self, client: Client, round: int, *, window: int, directions: int, warmup: int) -> None:
        self._client, self._window = client, window
        self._rate = learning_rate(client.training, round)
        self._parameters = [one for one in client.model.head.parameters() if one.requires_grad]
        held = client.memory.get(UPDATES)
        columns = 0 if held is None else len(held)
        self._basis: Tensor | None = None
        if held is not None and columns >= warmup:
            self._basis = trajectory_basis(held, directions).float().to(client.shard.counts.device)
        self._sum: Tensor | None = None
        client.journal["subspace"] = {
            "updates": columns,
            "directions": None if self._basis is None else self._basis.shape[1],
        }

    def adjust(self) -> None:
        """Add the raw gradient up, and confine it if there is a subspace (V V^T g)."""
        gradients = [one.grad for one in self._parameters if one.grad is not None]
        raw = torch.cat([one.flatten() for one in gradients])
        self._sum = raw if self._sum is None else self._sum + raw
        if self._basis is None:
            return
        confined, start = project(self._basis, raw), 0
        for gradient in gradients:
            gradient.copy_(confined[start : start + gradient.numel()].view_as(gradient))
            start += gradient.numel()

    def remember(self) -> None:
        """Keep the raw update of the round, u = -lr sum of g; what is not finite would spoil the subspace."""
        if self._sum is None or not bool(torch.isfinite(self._sum).all()):
            return
        update = -self._rate * self._sum.unsqueeze(0)
        held = self._client.memory.get(UPDATES)
        kept = update if held is None else torch.cat([held.to(update.device), update])
        self._client.memory[UPDATES] = kept[-self._window :].clone()
