"""One round as an exchange leaves it, and what every exchange must offer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from motley.draws import Draws
from motley.engine.executor import Outcome
from motley.federation import Value
from motley.messages import Message


@dataclass
class Traffic:
    """Scalars and bytes that one client sent (up) and received (down) in a round."""

    up_scalars: int = 0
    up_bytes: int = 0
    down_scalars: int = 0
    down_bytes: int = 0

    def sent(self, message: Message, times: int = 1) -> None:
        """Count a message that left the client."""
        self.up_scalars += times * message.num_scalars
        self.up_bytes += times * message.num_bytes

    def received(self, message: Message) -> None:
        """Count a message that reached the client."""
        self.down_scalars += message.num_scalars
        self.down_bytes += message.num_bytes


@dataclass
class Played:
    """What came of one round.

    Attributes:
        participants: Ids of those who took part, ascending.
        missing: Reason by id of those whose upload is left out.
        refused: Those of them whose message was refused, while their own training went well.
        journals, seconds, traffic: By id.
    """

    participants: list[int]
    missing: dict[int, str] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)
    journals: dict[int, Mapping[str, Value]] = field(default_factory=dict)
    seconds: dict[int, float] = field(default_factory=dict)
    traffic: dict[int, Traffic] = field(default_factory=dict)

    def note(self, outcome: Outcome) -> None:
        """Take over what an executor says of one client, after what it said before in the same round."""
        client_id = outcome.client_id
        self.journals[client_id] = _merged(self.journals.get(client_id, {}), outcome.journal)
        self.seconds[client_id] = self.seconds.get(client_id, 0.0) + outcome.seconds
        if outcome.missing:
            self.missing[client_id] = outcome.missing
            self.refused.discard(client_id)

    def refuse(self, client_id: int, reason: str) -> None:
        """Note that what a client sent is not used."""
        self.missing[client_id] = reason
        self.refused.add(client_id)

    @property
    def failed(self) -> set[int]:
        """Return the ids of those whose own work came to nothing."""
        return self.missing.keys() - self.refused


class Exchange(Protocol):
    """One way for messages to go round."""

    def play(self, round: int, participants: list[int], draws: Draws) -> Played:
        """Play one round; afterwards the state is the new one."""

    def views(self) -> dict[int, Message | None]:
        """Return what each client's inference sees now."""

    def finish_round(self) -> None:
        """Forget what would be needed to undo the round."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the state by name, as after the last finished round."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the state from what `tensors` returned."""


def below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _merged(one: Mapping[str, Value], other: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return what two pieces of work of one client in a round wrote down: steps and samples are summed, terms averaged.

    The terms are means over the samples of both; of all else the later value stays.
    """
    first, second = one.get("train"), other.get("train")
    if not isinstance(first, Mapping) or not isinstance(second, Mapping):
        return {**one, **other}
    pair: list[Any] = [first, second]
    samples = sum(part["samples"] for part in pair)
    names = dict.fromkeys(name for part in pair for name in part["terms"])
    terms = {name: sum(part["terms"].get(name, 0.0) * part["samples"] for part in pair) / samples for name in names}
    train = {**second, "steps": sum(part["steps"] for part in pair), "samples": samples, "terms": terms}
    return {**one, **other, "train": train}
