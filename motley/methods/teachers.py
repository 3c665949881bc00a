"""Models as teachers: frozen copies of weights, what they say, and a round without those that are not finite."""

import warnings
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from motley.errors import MotleyWarning, NonFiniteLoss, NonFiniteTeacher
from motley.federation import Client
from motley.methods.contracts import Sent
from motley.training.evaluation import teacher_logits

Weights = Mapping[str, Tensor]


def copy_weights(client: Client) -> dict[str, Tensor]:
    """Return a frozen copy of a client's state dict; it does not change while the client trains (case C8)."""
    return {name: tensor.detach().clone() for name, tensor in client.model.state_dict().items()}


def finite_logits(client: Client, peer: int, weights: Weights, x: Tensor) -> Tensor:
    """Return the logits (n, C) that a peer's weights give on a client's inputs.

    Raises:
        NonFiniteTeacher: They are not finite.
    """
    logits = teacher_logits(client.task, peer, weights, x, batch_size=client.evaluation.batch_size)
    if not bool(torch.isfinite(logits).all()):
        raise NonFiniteTeacher(peer)
    return logits


def learn_from_finite(client: Client, inbox: Mapping[int, Sent], learn: Callable[[Mapping[int, Sent]], None]) -> None:
    """Let a client learn from its peers; one that says what is not finite, though its weights are, is left out.

    The round then begins again with the same draws: its bits are those of a round in which that peer sent nothing.

    Args:
        client: The student; `not_finite` in its journal names who was left out.
        inbox: What the peers sent.
        learn: Trains the client with those that it is given.

    Raises:
        NonFiniteLoss: The client's own model says what is not finite.
    """
    before, memory, held = copy_weights(client), dict(client.memory), dict(inbox)
    while True:
        try:
            learn(held)
            break
        except NonFiniteTeacher as error:
            if error.peer not in held:  # the client itself, its own teacher
                raise NonFiniteLoss("distillation") from error
            del held[error.peer]
            client.model.load_state_dict(before)
            client.memory.clear()
            client.memory.update(memory)
            text = f"peer {error.peer} answers with numbers that are not finite; it teaches nobody who gets them"
            warnings.warn(text, MotleyWarning, stacklevel=2)
    if len(held) < len(inbox):
        client.journal["not_finite"] = [peer for peer in inbox if peer not in held]
