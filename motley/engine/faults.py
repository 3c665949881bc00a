"""Faulty peers for studies: some clients send what a broken or a hostile participant would send (cases G5, G7).

    untrained   the model as it was before round 1          lying     class c + 1 wherever its own model says c
    constant    one class, drawn, whatever the input is     failing   nothing usable in rounds 3, 6, 9, ...

Only what they send is faulty: they train as the others do, except that `failing` misses its rounds. Their statistics
are those of the model that they send, which is honest, unless they claim `forged_samples`; relations (CRAD's guidance)
are measured while training, and so those of the honest model.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from motley.data.wording import listed
from motley.draws import Draws
from motley.engine.config import RunConfig
from motley.engine.setup import Federation
from motley.errors import InvalidConfig
from motley.federation import Client, Task
from motley.messages import Message
from motley.methods.contracts import PeerMethod
from motley.methods.registry import Method
from motley.models.assign import initial_model
from motley.models.split import SplitModel
from motley.options import FaultOptions
from motley.training.layout import place

FAILS_EVERY = 3  # rounds (issue D)
SURE = 10.0  # logit of the class that a constant model names; the others have 0


def bad_peers(config: RunConfig, num_clients: int) -> tuple[int, ...]:
    """Return the ids of the faulty peers, ascending; those of fewer are among those of more.

    Raises:
        InvalidConfig: Nobody would be honest.
    """
    number = config.settings.faults.bad_peers
    if number and number >= num_clients:
        raise InvalidConfig(
            f"faults.bad_peers is {number}, but there are {num_clients} clients, of which one must be honest; lower it"
        )
    order = torch.randperm(num_clients, generator=Draws(config.settings.run.seed).generator("bad-peers"))
    return tuple(sorted(order[:number].tolist()))


def faults_text(options: FaultOptions, bad: tuple[int, ...]) -> str:
    """Return what a record says of its faulty peers."""
    claims = f", and claim {options.forged_samples:,} validation samples of every class, all right"
    forged = claims if options.forged_samples else ""
    return f"faulty peers (simulated): {listed([str(one) for one in bad])}, {options.bad_kind}{forged}"


def make_method(config: RunConfig, federation: Federation) -> Method:
    """Return the method of a run, with its faulty peers if there are any.

    Raises:
        InvalidConfig: The method's peers send no models, or a model cannot be made faulty that way.
    """
    entry, options = config.entry, config.settings.faults
    method: Method = entry.method(config.options)
    bad = bad_peers(config, len(federation.clients))
    if not bad or entry.is_silent:
        return method
    if not isinstance(method, PeerMethod):
        raise InvalidConfig(
            f"faults.bad_peers is {options.bad_peers}, but faulty are peers that send models to each other, and "
            f"{entry.name} is not of that kind; take crad, uniform-kd, uncertainty-kd, fedmkd, feddf or fedgd, or "
            "leave it out"
        )
    for client in federation.clients:
        if client.id in bad and options.bad_kind in {"constant", "lying"}:
            layer = _last_layer(client.model, client.id)
            if options.bad_kind == "constant" and layer.bias is None:
                raise InvalidConfig(
                    "faults.bad_kind constant needs a bias in the last layer, which the model of client "
                    f"{client.id} does not have; take lying, untrained or failing"
                )

    def untrained(client_id: int) -> SplitModel:
        model = initial_model(federation.plan, client_id, federation.starts)
        return place(model, federation.data.input_shape, federation.device)

    return FaultyPeers(method, options, bad, untrained, Draws(config.settings.run.seed))


class FaultyPeers(PeerMethod[Message]):
    """A method of which some peers send something else.

    Args:
        method: What all peers do.
        options: What the faulty ones do.
        bad: Their ids.
        untrained: Makes the model that a client had before round 1.
        draws: The run's generators.
    """

    def __init__(
        self,
        method: PeerMethod[Any],
        options: FaultOptions,
        bad: tuple[int, ...],
        untrained: Callable[[int], SplitModel],
        draws: Draws,
    ) -> None:
        self._method, self._options, self._bad = method, options, bad
        self._untrained, self._draws = untrained, draws

    def start(self, client: Client, draws: Draws) -> None:
        """Prepare a client's memory, as the method does."""
        self._method.start(client, draws)

    def snapshot(self, client: Client, round: int) -> Message:
        """Return what a client sends; a faulty one measures and sends another model than its own."""
        bad = client.id in self._bad
        sender = replace(client, model=self._model(client), journal={}) if bad else client
        message: Message = self._method.snapshot(sender, round)
        if bad and self._options.forged_samples:
            message = _forged(message, self._options.forged_samples)
        return _unusable(message) if self._fails(client, round) else message

    def peer_round(self, client: Client, inbox: Mapping[int, Message], round: int, draws: Draws) -> None:
        """Train a client, unless it fails in this round."""
        if not self._fails(client, round):
            self._method.peer_round(client, inbox, round, draws)

    def check(self, message: Message, peer: int, task: Task) -> None:
        """Refuse what the method would."""
        self._method.check(message, peer, task)

    def predict(self, client: Client, x: Tensor) -> Tensor:
        """Return the scores of the method."""
        return self._method.predict(client, x)

    def other_predictions(self, client: Client, x: Tensor) -> Mapping[str, Tensor]:
        """Return those of its further predictors."""
        return self._method.other_predictions(client, x)

    def _fails(self, client: Client, round: int) -> bool:
        return self._options.bad_kind == "failing" and client.id in self._bad and round % FAILS_EVERY == 0

    def _model(self, client: Client) -> SplitModel:
        kind = self._options.bad_kind
        if kind == "failing":
            return client.model
        if kind == "untrained":
            return self._untrained(client.id)
        model = copy.deepcopy(client.model)
        layer = _last_layer(model, client.id)
        with torch.no_grad():
            if kind == "lying":
                for tensor in layer.parameters():
                    tensor.copy_(tensor.roll(1, dims=0))
            else:
                generator = self._draws.generator("constant-class", client=client.id)
                named = int(torch.randint(client.num_classes, (), generator=generator))
                layer.weight.zero_()
                layer.bias.zero_()
                layer.bias[named] = SURE
        return model


def _last_layer(model: SplitModel, client_id: int) -> nn.Linear:
    """Return the linear layer that makes the logits.

    Raises:
        InvalidConfig: There is none that could be told.
    """
    linear = [part for part in model.modules() if isinstance(part, nn.Linear)]
    layer = model.head if isinstance(model.head, nn.Linear) else linear[-1] if linear else None
    if layer is None or layer.out_features != model.num_classes:
        raise InvalidConfig(
            f"faults.bad_kind constant and lying need a linear last layer, which the {model.class_name} of client "
            f"{client_id} does not have; take untrained or failing"
        )
    return layer


def _forged(message: Message, samples: int) -> Message:
    """Return a message that claims so many samples of every class, all of them answered right."""
    claims = {"counts": samples, "num_samples": samples, "accuracies": 1, "cross_entropies": 0}
    flat = message.tensors()
    return type(message).from_tensors(
        {name: torch.full_like(tensor, claims[name]) if name in claims else tensor for name, tensor in flat.items()}
    )


def _unusable(message: Message) -> Message:
    """Return a message that is refused on receipt: an infinity stands in it, or a number below its range."""
    flat = dict(message.tensors())
    name = next((name for name, tensor in flat.items() if tensor.is_floating_point() and tensor.numel()), None)
    if name is not None:
        flat[name] = torch.full_like(flat[name], torch.inf)
    else:
        bounded = [name for name, rule in message.schema().items() if rule.low is not None and flat[name].is_signed()]
        flat |= {name: torch.full_like(flat[name], -1) for name in bounded}
    return type(message).from_tensors(flat)
