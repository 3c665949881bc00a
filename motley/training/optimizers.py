"""Local optimizers: made anew each round, or kept per client as plain tensors in its memory."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from motley.options import TrainOptions

PREFIX = "optimizer."


def learning_rate(options: TrainOptions, round: int) -> float:
    """Return the rate of a round: a function of the round alone, however often a client took part (case C7)."""
    return options.lr * options.lr_decay ** (round - 1)


def make_optimizer(parameters: Iterable[nn.Parameter], options: TrainOptions, round: int) -> torch.optim.Optimizer:
    """Return a fresh optimizer for a round."""
    lr, decay = learning_rate(options, round), options.weight_decay
    if options.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=lr, weight_decay=decay)
    if options.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=lr, weight_decay=decay)
    return torch.optim.SGD(parameters, lr=lr, momentum=options.momentum, weight_decay=decay)


def remember_optimizer(optimizer: torch.optim.Optimizer, memory: dict[str, Tensor]) -> None:
    """Write the optimizer's state into a client's memory, one tensor an entry."""
    for position, entries in optimizer.state_dict()["state"].items():
        for name, value in entries.items():
            if value is not None:
                memory[f"{PREFIX}{position}.{name}"] = torch.as_tensor(value)


def recall_optimizer(optimizer: torch.optim.Optimizer, memory: dict[str, Tensor]) -> None:
    """Give a fresh optimizer the state that `remember_optimizer` wrote, if there is one; the rate stays the new one."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, value in memory.items():
        if key.startswith(PREFIX):
            position, name = key.removeprefix(PREFIX).split(".", 1)
            state.setdefault(int(position), {})[name] = value.clone()  # steps change it in place
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
