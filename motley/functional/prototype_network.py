"""The network that makes trainable global prototypes: class to embedding, linear, ReLU, linear, all of width d.

Its parameters are those of a sequence of these layers: 0.weight (C, d), 1.weight and 3.weight (d, d), 1.bias and
3.bias (d,).
"""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from motley.functional.contrastive import contrastive_loss

State = Mapping[str, Tensor]


def new_network(num_classes: int, width: int) -> dict[str, Tensor]:
    """Return fresh parameters, drawn as torch initialises layers, from its global generator.

    >>> sum(one.numel() for one in new_network(10, 512).values())
    530432
    """
    layers = (nn.Embedding(num_classes, width), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    return {name: tensor.detach() for name, tensor in nn.Sequential(*layers).state_dict().items()}


def network_prototypes(network: State, classes: Tensor) -> Tensor:
    """Return the prototypes g_c = F(e_c) of some classes.

    Args:
        network: Parameters of width d.
        classes: Shape (m,), int64.

    Returns:
        Shape (m, d).

    Source: FedTGP (server methods, section 11).

    >>> one, zero = torch.eye(2), torch.zeros(2)
    >>> plain = {"0.weight": 3 * one, "1.weight": one, "1.bias": zero - 1, "3.weight": one, "3.bias": zero}
    >>> network_prototypes(plain, torch.tensor([1])).tolist()
    [[0.0, 2.0]]
    """
    return _made(network, _hidden(network, network["0.weight"][classes]))


def train_network(
    network: State,
    prototypes: Tensor,
    labels: Tensor,
    classes: Tensor,
    *,
    margin: float,
    lr: float,
    batches: Iterable[Tensor],
) -> dict[str, Tensor]:
    """Return the network after a step of SGD on the contrastive loss for every batch.

    The gradients of the layers are written out and added to them at once, so that none as large as a layer is stored:
    a step at C = 10 and d = 512 takes 0.9 ms where autograd and its optimizer take 1.4 ms (one thread).

    Args:
        network: Parameters of width d, not changed.
        prototypes: Shape (n, d), constants.
        labels: Shape (n,), int64, positions in `classes`.
        classes: Shape (m,), int64, the classes that compete, each once.
        margin: delta of `contrastive_loss`, >= 0.
        lr: Learning rate.
        batches: Positions in `prototypes`.

    Source: FedTGP (server methods, section 11).

    >>> net, rows = new_network(2, 3), torch.eye(3)[:2]
    >>> both = torch.tensor([0, 1])
    >>> same = train_network(net, rows, both, both, margin=1.0, lr=0.0, batches=[both])
    >>> all(torch.equal(tensor, net[name]) for name, tensor in same.items())
    True
    """
    new = {name: tensor.clone() for name, tensor in network.items()}
    for index in batches:
        embedded = new["0.weight"][classes]
        hidden = _hidden(new, embedded)
        made = _made(new, hidden).requires_grad_()
        loss = contrastive_loss(prototypes[index], labels[index], made, margin)
        (to_made,) = torch.autograd.grad(loss, made)
        to_hidden = (to_made @ new["3.weight"]) * (hidden > 0)
        to_embedded = to_hidden @ new["1.weight"]
        new["3.weight"].addmm_(to_made.T, hidden, alpha=-lr)
        new["3.bias"].sub_(to_made.sum(dim=0), alpha=lr)
        new["1.weight"].addmm_(to_hidden.T, embedded, alpha=-lr)
        new["1.bias"].sub_(to_hidden.sum(dim=0), alpha=lr)
        new["0.weight"].index_add_(0, classes, to_embedded, alpha=-lr)
    return new


def _hidden(network: State, embedded: Tensor) -> Tensor:
    return torch.addmm(network["1.bias"], embedded, network["1.weight"].T).relu()


def _made(network: State, hidden: Tensor) -> Tensor:
    return torch.addmm(network["3.bias"], hidden, network["3.weight"].T)
