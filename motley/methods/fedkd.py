"""FedKD: mentor and mentee teach each other the more the better both do; mentees travel as few singular directions.

    upload      compress(theta_a,k - theta_a)
    broadcast   compress(mean of the updates) to whom the last version is known, else theta_a, whole
    inference   the mentor, which is the client's own model

    D           sg(CE(o, y) + CE(o^a, y)), at least 1e-8
    L_mentor    CE(o, y) + [KL(sg(o^a) || o) + MSE(z, sg(z^a W^T))] / D
    L_mentee    CE(o^a, y) + [KL(sg(o) || o^a) + MSE(sg(z), z^a W^T)] / D, which alone trains W
    clipping    the gradients of mentor, mentee and W, each to its own norm
    rank        smallest r with sum over i <= r of sigma_i^2 >= E_t sum of all sigma_i^2
    energy      E_t = T_start + (t / T)(T_end - T_start)
    server      Delta = mean over k of decompress(Delta_k), theta_a := theta_a + decompress(compress(Delta))

Our readings: what is compressed is the update, as in the paper; teachers, the other's features and D are detached: with
D live the gradient on CE can turn negative. KL is a mean over samples, as in the paper; in public code it is one over
elements (`kl = element-mean`). A method does not know the length of its run, so T is the option `schedule_rounds`.
Floating buffers travel raw inside the update, of counters the server takes the maximum. What travels and how it is
applied stands in `fedkd_wire.py`.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

import pydantic.dataclasses
import torch
from pydantic import Field
from torch import nn

from motley.draws import Draws
from motley.federation import Client, Task
from motley.functional.adaptive_distillation import adaptive_losses
from motley.functional.averaging import average_states
from motley.functional.low_rank import compress, energy_at, expand
from motley.methods.auxiliary import KL, Architecture, initial_auxiliary, private_layer
from motley.methods.averaging import copy_state
from motley.methods.contracts import ServerMethod, Upload
from motley.methods.fedkd_wire import Mentee, News, Update, difference, moved, received_mentee
from motley.methods.registry import register
from motley.options import STRICT
from motley.training.auxiliary import features_and_logits, received_auxiliary
from motley.training.local import Step, Terms, train_local
from motley.training.memory import remember_state


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class FedKDOptions:
    """Options of fedkd."""

    auxiliary: Architecture = "cnn"
    loss_weight: Annotated[
        float, Field(ge=0, description="factor of what mentor and mentee learn of each other; 0: nothing")
    ] = 1.0
    kl: KL = "batchmean"
    clip: Annotated[
        Annotated[float, Field(gt=0)] | None, Field(description="largest norm of each model's gradient; none: no limit")
    ] = 10.0
    energy_start: Annotated[
        float, Field(gt=0, le=1, description="T_start, share of an update's energy that is kept at first")
    ] = 0.95
    energy_end: Annotated[
        float, Field(gt=0, le=1, description="T_end, share of an update's energy from round T on")
    ] = 0.98
    schedule_rounds: Annotated[int, Field(ge=1, description="T, over how many rounds the share moves")] = 500


@register("fedkd", options=FedKDOptions, needs=("features",))
class FedKD(ServerMethod[Mentee, News, Update]):
    """Adaptive mutual distillation with a shared mentee."""

    def __init__(self, options: FedKDOptions) -> None:
        self.options = options

    def start(self, task: Task, draws: Draws) -> Mentee:
        state = initial_auxiliary(task, self.options.auxiliary)
        return Mentee(state, {}, torch.tensor(0), torch.full((task.num_clients,), -1))

    def broadcast(self, state: Mentee, client_id: int) -> News:
        current = int(state.version) > 0 and int(state.known[client_id]) == int(state.version) - 1
        return News({}, state.update, state.version) if current else News(state.mentee, {}, state.version)

    def client_round(self, client: Client, received: News, round: int, draws: Draws) -> Update:
        """Train mentor, mentee and W together (L_mentor, L_mentee)."""
        options = self.options
        reference = received_mentee(client, received)
        mentee = received_auxiliary(client, options.auxiliary, reference)
        mapping = private_layer(client, "mapping", mentee.feature_width, client.model.feature_width, draws, bias=False)
        limit = options.clip

        def loss(step: Step) -> Terms:
            assert step.features is not None
            features, said = features_and_logits(mentee, step.x)
            made = adaptive_losses(step.logits, said, step.features, mapping(features), step.y, mean=options.kl)
            terms = {"cross_entropy": made.mentor, "auxiliary": made.mentee}
            if options.loss_weight:
                terms["distillation"] = options.loss_weight * made.mentor_learns
                terms["auxiliary_distillation"] = options.loss_weight * made.mentee_learns
            return terms

        def clip() -> None:
            for module in (client.model, mentee, mapping):
                nn.utils.clip_grad_norm_(module.parameters(), torch.inf if limit is None else limit)

        train_local(client, loss, draws, round=round, modules=(mentee, mapping), adjust=None if limit is None else clip)
        remember_state(client, "mapping", mapping.state_dict())
        return Update(compress(difference(copy_state(mentee), reference), self._energy(round)))

    def server_round(self, state: Mentee, uploads: Iterable[Upload[Update]], round: int, draws: Draws) -> Mentee:
        """Apply the mean update as the clients will: after its compression."""
        sent = list(uploads)
        if not sent:
            return state
        updates = [expand(upload.message.update, state.mentee) for upload in sent]
        packed = compress(average_states(updates, [1 / len(sent)] * len(sent)), self._energy(round))
        known = state.known.clone()
        known[[upload.client_id for upload in sent]] = state.version
        mentee = moved(state.mentee, packed)
        return replace(state, mentee=mentee, update=packed, version=state.version + 1, known=known)

    def _energy(self, round: int) -> float:
        options = self.options
        return energy_at(round, first=options.energy_start, last=options.energy_end, rounds=options.schedule_rounds)
