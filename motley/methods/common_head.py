"""The head that the clients of several methods have in common: its first weights, and scores by a received one."""

from torch import Tensor, nn
from torch.func import functional_call

from motley.draws import Draws
from motley.errors import InvalidConfig
from motley.federation import Client, Task
from motley.functional.averaging import State
from motley.methods.averaging import copy_state


def new_head(task: Task) -> nn.Linear:
    """Return a head like those of all clients, drawn from torch's global generator.

    Raises:
        InvalidConfig: The heads are no linear layers (rule R11).
    """
    head = task.template(0).head
    if not isinstance(head, nn.Linear):
        raise InvalidConfig(
            f"a head that clients share must be one linear layer, but that of client 0 is {type(head).__name__}; give "
            "all models a last linear layer of one width"
        )
    return nn.Linear(head.in_features, head.out_features, bias=head.bias is not None)


def initial_head(task: Task, draws: Draws) -> dict[str, Tensor]:
    """Return the common head before round 1, of the server's address (rule R7); see `new_head`."""
    with draws.scope("init"):
        return copy_state(new_head(task))


def apply_head(client: Client, state: State | None, features: Tensor) -> Tensor:
    """Return the logits (B, C) of features (B, d) by a received head, by the client's own if None (rule R8)."""
    if state is None:
        return client.model.classify(features)
    held = {name: tensor.to(features.device) for name, tensor in state.items()}
    logits: Tensor = functional_call(client.model.head, held, (features,))
    return logits
