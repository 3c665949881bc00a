"""DFML: participants in turn train all models that were sent to them, on their own data, each model a teacher of all.

    to an aggregator    theta_m, the weights of a model        back    theta_m after the mutual epochs
    inference           the current model; recorded beside it, the peak model, kept when alpha was highest

    model i of those at aggregator a, on a's samples
        L_i = (1 - alpha) WSM(z_i, y) + alpha sum over m != i of lam_im KL(softmax(z_m) || softmax(z_i))
        lam_im = size_m / sum over m' != i of size_m', size the number of parameters
        WSM    cross-entropy of z_i + log(share of each class at a); classes that a does not hold leave the softmax
    alpha(t) = a_min + (a_max - a_min) (1 - cos(2 pi t / period)) / 2 in round t

Our readings: teachers carry no gradient; all forward passes of a step come before all updates; every model gets an
optimizer of its own, fresh in every turn, and its own clipping. A client first does `start_epochs` with its labels
alone when it first takes part. With an aggregator alone L = WSM. A model that is not finite leaves the others. The
clients that were trained in a round in which alpha has just reached its highest value keep a copy as their peak model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal

import pydantic.dataclasses
import torch
from pydantic import Field
from torch import Tensor

from motley.draws import Draws
from motley.errors import InvalidConfig
from motley.federation import Client, Task
from motley.functional.mutual import cyclic_balance
from motley.methods.contracts import AggregatorMethod, Returned, Turn
from motley.methods.dfml_group import MutualGroup
from motley.methods.distillation import Model
from motley.methods.proxy import train_on_labels
from motley.methods.registry import register
from motley.methods.teachers import copy_weights
from motley.options import STRICT
from motley.training.auxiliary import received_model
from motley.training.evaluation import check_snapshot, score_snapshot
from motley.training.memory import recall_state, remember_state


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class DFMLOptions:
    """Options of dfml."""

    senders: Annotated[
        int, Field(ge=0, description="clients that send their models to an aggregator, drawn from the others")
    ] = 9
    aggregators: Annotated[
        Annotated[int, Field(ge=1)] | Literal["all"],
        Field(description="aggregators of a round, drawn from its clients, one after the other; all: every client"),
    ] = 1
    mutual_epochs: Annotated[int, Field(ge=1, description="passes over an aggregator's training part in a turn")] = 1
    start_epochs: Annotated[
        int, Field(ge=0, description="passes over its own training part before a client first takes part")
    ] = 1
    alpha_min: Annotated[float, Field(ge=0, le=1, description="lowest share of the mutual term")] = 0.0
    alpha_max: Annotated[float, Field(ge=0, le=1, description="highest share of the mutual term")] = 1.0
    period: Annotated[int, Field(ge=2, description="rounds of a cycle of alpha")] = 10
    evaluate: Annotated[
        Literal["current", "peak"], Field(description="which model gives the headline; the other one stands beside it")
    ] = "current"

    def __post_init__(self) -> None:
        """Refuse a cycle that is none.

        Raises:
            InvalidConfig: The lowest share is above the highest.
        """
        if self.alpha_min > self.alpha_max:
            raise InvalidConfig(
                f"dfml.alpha_min is {self.alpha_min:g}, above dfml.alpha_max = {self.alpha_max:g}; exchange the two"
            )


@register("dfml", options=DFMLOptions)
class DFML(AggregatorMethod[Model]):
    """Mutual learning of all models at aggregators that change."""

    def __init__(self, options: DFMLOptions) -> None:
        self.options = options

    def start(self, client: Client, draws: Draws) -> None:
        pass

    def plan(self, participants: Sequence[int], round: int, draws: Draws) -> list[Turn]:
        """Draw the aggregators, and for each the senders anew."""
        order = draws.numpy("aggregators", round=round).permutation(participants).tolist()
        number = len(order) if self.options.aggregators == "all" else self.options.aggregators
        return [Turn(one, self._senders(one, participants, round, draws)) for one in order[:number]]

    def _senders(self, aggregator: int, participants: Sequence[int], round: int, draws: Draws) -> tuple[int, ...]:
        others = [one for one in participants if one != aggregator]
        number = min(self.options.senders, len(others))
        drawn = draws.numpy("senders", round=round, client=aggregator).choice(others, number, replace=False)
        return tuple(sorted(drawn.tolist()))

    def snapshot(self, client: Client, round: int, draws: Draws) -> Model:
        self._learn_alone_first(client, round, draws)
        return Model(copy_weights(client))

    def aggregate(
        self, client: Client, inbox: Mapping[int, Model], round: int, draws: Draws
    ) -> dict[int, Returned[Model]]:
        """Train all models on this client's samples."""
        self._learn_alone_first(client, round, draws)
        received = {peer: received_model(client.task, peer, message.weights) for peer, message in inbox.items()}
        before = copy_weights(client)
        group = MutualGroup(client, received, self._alpha(round))
        group.train(draws, round=round, epochs=self.options.mutual_epochs)
        if group.is_lost(client.id):
            client.model.load_state_dict(before)  # as the other owners, it goes on with what it had
            own: Returned[Model] = Returned(None, group.reason)
        else:
            own = Returned(None, journal=group.journal(client.id))
            self._keep_peak(client, round)
        back = {
            peer: Returned(None, group.reason)
            if group.is_lost(peer)
            else Returned(Model(_copied(model.state_dict())), journal=group.journal(peer))
            for peer, model in received.items()
        }
        return {client.id: own, **back}

    def receive(self, client: Client, message: Model, round: int) -> None:
        client.model.load_state_dict(message.weights)
        self._keep_peak(client, round)

    def check(self, message: Model, peer: int, task: Task) -> None:
        """Refuse weights of another architecture."""
        check_snapshot(task, peer, message.weights)

    def predict(self, client: Client, x: Tensor) -> Tensor:
        return self._scores(client, self.options.evaluate, x)

    def other_predictions(self, client: Client, x: Tensor) -> dict[str, Tensor]:
        other = "peak" if self.options.evaluate == "current" else "current"
        return {other: self._scores(client, other, x)}

    def _scores(self, client: Client, which: str, x: Tensor) -> Tensor:
        """Return what the current or the peak model says; before the first peak both are the current one."""
        peak = recall_state(client, "peak") if which == "peak" else {}
        if peak:
            return score_snapshot(client.task.template(client.id), peak, x)
        scores: Tensor = client.model(x)
        return scores

    def _alpha(self, round: int) -> float:
        options = self.options
        return cyclic_balance(round, period=options.period, lowest=options.alpha_min, highest=options.alpha_max)

    def _keep_peak(self, client: Client, round: int) -> None:
        """Keep a copy if alpha has just reached its highest value: in the middle of its cycle."""
        if round % self.options.period == self.options.period // 2:
            remember_state(client, "peak", client.model.state_dict())

    def _learn_alone_first(self, client: Client, round: int, draws: Draws) -> None:
        """Train on labels alone before a client first takes part."""
        if "started" in client.memory:
            return
        client.memory["started"] = torch.ones(1, dtype=torch.uint8)
        if self.options.start_epochs:
            training = replace(client.training, local_epochs=self.options.start_epochs, keep_optimizer=False)
            train_on_labels(replace(client, training=training), draws, round=round)


def _copied(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in state.items()}
