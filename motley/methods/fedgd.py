"""FedGD: FedMD without public data; a generator, trained against the models of all, makes what they agree on.

    rounds 2, 2 + k, ...   theta_j, models; the generator from who trained it last; one peer trains it
    the round after        the P samples it made, once, from that peer; uint8 if the data are, else float32
    all rounds but those   logits on the synthetic set, P x C            inference   unchanged

    consensus   f = mean over the peers of z_j, the own logits among them
    digest      T^2 KL(softmax(f / T) || softmax(h_k(x) / T)) over the synthetic set
    revisit     cross-entropy on the client's own samples

Our readings: a message goes out at the start of a round, so the samples of round r arrive in r + 1 and are learned on
from r + 2 on; until they arrive the peers go on with the set before. The trainer of round r is the peer at place r mod
M of the M that are active, ascending: client r mod N if all are. A peer that missed the samples trains alone until the
next ones. A message among peers has no address, so the generator reaches all of them, and is counted so often. Who has
another set than oneself is not in one's consensus. `fedgd_generator.py` holds the generator and its loss.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from motley.draws import Draws
from motley.errors import MotleyWarning
from motley.federation import Client
from motley.functional.proxy_targets import consensus
from motley.functional.synthesis import constant_samples
from motley.messages import Message, entry, weights
from motley.methods.contracts import PeerMethod
from motley.methods.fedgd_generator import new_generator, synthesise
from motley.methods.fedgd_options import FedGDOptions
from motley.methods.proxy import divergence, train_on_labels
from motley.methods.registry import register
from motley.methods.teachers import copy_weights
from motley.training.digest import digest, outputs_of
from motley.training.inputs import Normalizer

FIRST = 2  # round of the first set: untrained teachers have batch norm statistics 0 and 1, which guide nothing
GENERATOR = "generator/"  # before the names of the generator's tensors in a client's memory


@dataclass(frozen=True)
class Shared(Message):
    """What a peer sends; most of it is empty in most rounds."""

    model: Mapping[str, Tensor] = weights("theta_j, in rounds in which the generator is trained")
    generator: Mapping[str, Tensor] = weights("the generator, in such a round, from who trained it last")
    samples: Tensor = entry(
        ..., dtype=torch.uint8, other_dtype=torch.float32, about="the synthetic set, once, from who made it"
    )
    logits: Tensor = entry("*", "C", about="on the synthetic set, in all other rounds")
    made: Tensor = entry(dtype=torch.int64, low=0, counted=False, about="which set: round * N + maker; 0: none")


@register("fedgd", options=FedGDOptions, needs=("synthetic", "complete-graph"))
class FedGD(PeerMethod[Shared]):
    """Consensus of logits on synthetic samples."""

    def __init__(self, options: FedGDOptions) -> None:
        self.options = options

    def start(self, client: Client, draws: Draws) -> None:
        pass

    def snapshot(self, client: Client, round: int) -> Shared:
        """Return the model if the generator is trained in this round, else what it says of the synthetic set."""
        held, made = client.memory, client.memory.get("made", torch.zeros((), dtype=torch.int64)).cpu().clone()
        nothing, silence = torch.zeros(0, dtype=torch.uint8), torch.zeros(0, client.num_classes)
        if self._trains(round):
            return Shared(copy_weights(client), _generator(client), nothing, silence, made)
        said = outputs_of(client, _inputs(client)) if "samples" in held else silence
        return Shared({}, {}, held["samples"].cpu().clone() if "unsent" in held else nothing, said, made)

    def peer_round(self, client: Client, inbox: Mapping[int, Shared], round: int, draws: Draws) -> None:
        """Train the generator if it is this client's turn, or digest what all say; then revisit the own samples."""
        if self._trains(round):
            active = sorted({*inbox, client.id})
            if inbox and active[round % len(active)] == client.id:
                self._synthesise(client, inbox, round, draws)
            train_on_labels(client, draws, round=round)
            return
        self._digest(client, inbox, round, draws)
        train_on_labels(client, draws, round=round)
        client.memory.pop("unsent", None)
        _adopt(client, inbox, round)

    def _trains(self, round: int) -> bool:
        return round >= FIRST and (round - FIRST) % self.options.refresh == 0

    def _synthesise(self, client: Client, inbox: Mapping[int, Shared], round: int, draws: Draws) -> None:
        """Make a new synthetic set; with a loss that is not finite everybody goes on with the last one."""
        with torch.device("meta"):
            like = new_generator(client.task.input_shape).state_dict()
        # Of several generators the newest, and of equally new ones that of the lowest id.
        held = [(-int(one.made), peer, one.generator) for peer, one in inbox.items() if _fits(one.generator, like)]
        if own := _generator(client):
            held.append((-int(client.memory["made"]), client.id, own))
        start = min(held, key=lambda one: one[:2])[2] if held else None
        template = client.task.template
        teachers = {peer: one.model for peer, one in inbox.items() if _fits(one.model, template(peer).state_dict())}
        if not teachers:
            return
        made = synthesise(client, teachers, start, self.options, draws, round)
        if made is None:
            client.journal["synthetic"] = "not made: the loss of the generator is not finite"
            text = f"fedgd: the loss of the generator is not finite at client {client.id}; the last synthetic set stays"
            warnings.warn(text, MotleyWarning, stacklevel=2)
            return
        flat, number = int(constant_samples(made.samples).sum()), len(made.samples)
        client.journal["synthetic"] = {"samples": number, "constant": flat, "terms": made.terms}
        if flat:
            text = f"fedgd: {flat} of {number} samples of the generator of client {client.id} are constant"
            warnings.warn(f"{text}; they can teach nothing", MotleyWarning, stacklevel=2)
        _forget(client)
        client.memory |= {f"{GENERATOR}{name}": tensor for name, tensor in made.generator.items()}
        client.memory["samples"] = made.samples
        client.memory["made"] = torch.tensor(round * client.task.num_clients + client.id)
        client.memory["unsent"] = torch.ones((), dtype=torch.int32)

    def _digest(self, client: Client, inbox: Mapping[int, Shared], round: int, draws: Draws) -> None:
        if "samples" not in client.memory:
            return
        own, x = int(client.memory["made"]), _inputs(client)
        said = {peer: one.logits for peer, one in inbox.items() if int(one.made) == own and len(one.logits) == len(x)}
        if not said:
            return
        said[client.id] = outputs_of(client, x)
        targets = consensus(torch.stack([said[peer] for peer in sorted(said)])).float()  # the same bits at every peer
        loss, epochs = divergence(self.options.temperature), self.options.digest_epochs
        digest(client, x, targets, loss, draws, round=round, epochs=epochs)
        client.journal["consensus_of"] = len(said)


def _adopt(client: Client, inbox: Mapping[int, Shared], round: int) -> None:
    """Take the newest samples that arrived, if they are newer than the own ones; nobody can have made later ones."""
    own, latest = client.shard.train.x, round * client.task.num_clients
    fitting = [
        one for one in inbox.values() if one.samples.shape[1:] == own.shape[1:] and one.samples.dtype == own.dtype
    ]
    sets = {int(one.made): one.samples for one in fitting}
    newest = max((made for made in sets if made < latest), default=0)
    if newest > int(client.memory.get("made", 0)):
        _forget(client)
        client.memory["samples"] = sets[newest].to(client.shard.counts.device).clone()
        client.memory["made"] = torch.tensor(newest)


def _inputs(client: Client) -> Tensor:
    samples = client.memory["samples"].to(client.shard.counts.device)
    return Normalizer.of(client.shard.normalization, samples)(samples) if samples.dtype == torch.uint8 else samples


def _generator(client: Client) -> dict[str, Tensor]:
    """Return the state of the generator that a client trained, if it was the last to do so."""
    named = {name.removeprefix(GENERATOR): held for name, held in client.memory.items() if name.startswith(GENERATOR)}
    return {name: tensor.clone() for name, tensor in named.items()}


def _forget(client: Client) -> None:
    """Remove generator and samples of an older set."""
    for name in [name for name in client.memory if name.startswith(GENERATOR) or name in {"samples", "unsent"}]:
        del client.memory[name]


def _fits(state: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> bool:
    return state.keys() == like.keys() and all(state[name].shape == tensor.shape for name, tensor in like.items())
