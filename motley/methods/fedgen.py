"""FedGen: the server trains a generator of features on which the clients' heads agree; clients train their heads on it.

    upload      h_k, a head of C d + C numbers; once: n_kc, C counts
    broadcast   h, and the generator G: (nu + C) H + H + 2H + 2H + H d + d numbers; p^ is not counted
    inference   the client's backbone with the server's head

    client   h_k := h; L = CE(h_k(f_k(x)), y) + w_gen CE(h_k(sg(G(y~, noise))), y~)
                           + w_lat KL(sg(h_k(G(y, noise))) || h_k(f_k(x))), y~ drawn from p^, G in evaluation mode
    p^(c)    proportional to sum of n_kc over all clients that ever reported
    server   L_G = T + eta D on labels from p^, restricted to what clients of the round hold; then h as LG-FedAvg
    T label  sum_k mean_i alpha_k(y_i) CE(h_k(z_i), y_i), alpha_k(c) = n_kc / sum_j n_jc, z = G(y, noise)
    T logit  CE(sum_k (n_k / sum n) h_k(z), y)
    D        exp(-mean_ij e_ij g_ij)

Our readings: counts travel with every upload, as integers that are not counted, and the server keeps the last of each
client. Until the server has trained its generator, in round 1, clients train on CE alone. The generator is kept and
sent, its Adam's state kept (HtFLlib trains one and sends its first weights for ever). It is in `fedgen_generator.py`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from motley.draws import Draws
from motley.federation import Client, Task
from motley.functional.distillation import kl
from motley.functional.generation import label_frequencies
from motley.messages import Message, entry, weights
from motley.methods.averaging import copy_state, mean_state, plain_loss
from motley.methods.common_head import apply_head, initial_head
from motley.methods.contracts import ServerMethod, Upload
from motley.methods.fedgen_generator import (
    Lesson,
    Sampler,
    generate,
    new_generator,
    received_generator,
    train_generator,
)
from motley.methods.fedgen_options import FedGenOptions
from motley.methods.registry import register
from motley.training.local import Loss, Step, Terms, train_local


@dataclass(frozen=True)
class HeadAndCounts(Message):
    """What a client sends."""

    head: Mapping[str, Tensor] = weights("state dict of the head after local training")
    counts: Tensor = entry("C", dtype=torch.int64, low=0, counted=False, about="training samples per class, once a run")


@dataclass(frozen=True)
class HeadAndGenerator(Message):
    """What a client receives."""

    head: Mapping[str, Tensor] = weights("state dict of the common head")
    generator: Mapping[str, Tensor] = weights("state dict of the generator")
    labels: Tensor = entry(
        "C", low=0, high=1, counted=False, about="p^, how often each label is drawn; zeros before it is trained"
    )


@dataclass(frozen=True)
class GenState(Message):
    """What the server holds."""

    head: Mapping[str, Tensor] = weights("state dict of the common head")
    generator: Mapping[str, Tensor] = weights("state dict of the generator")
    adam: Mapping[str, Tensor] = weights("state of the generator's optimizer")
    counts: Mapping[str, Tensor] = weights("class counts (C,) by id of the client that reported them")
    reported: Tensor = entry("C", dtype=torch.int64, low=0, about="sum of all reported class counts")


@register("fedgen", options=FedGenOptions, needs=("features", "equal-head"))
class FedGen(ServerMethod[GenState, HeadAndGenerator, HeadAndCounts]):
    """A common head, and generated features for it."""

    def __init__(self, options: FedGenOptions) -> None:
        self.options = options

    def start(self, task: Task, draws: Draws) -> GenState:
        head = initial_head(task, draws)
        with draws.scope("generator"):
            generator = copy_state(new_generator(task.num_classes, head["weight"].shape[1], self.options))
        return GenState(head, generator, {}, {}, torch.zeros(task.num_classes, dtype=torch.int64))

    def broadcast(self, state: GenState, client_id: int) -> HeadAndGenerator:
        labels = label_frequencies(state.reported, state.reported > 0)
        return HeadAndGenerator(state.head, state.generator, labels.float())

    def client_round(self, client: Client, received: HeadAndGenerator, round: int, draws: Draws) -> HeadAndCounts:
        """Install the head; train on the client's own samples, and the head on generated features besides."""
        options, head = self.options, client.model.head
        head.load_state_dict(received.head)
        wanted = options.generated_weight or options.latent_weight
        used = wanted and bool(received.labels.any())
        loss = _loss_with_generator(client, received, options, round, draws) if used else plain_loss
        train_local(client, loss, draws, round=round)
        return HeadAndCounts(copy_state(head), client.shard.counts.cpu())

    def server_round(
        self, state: GenState, uploads: Iterable[Upload[HeadAndCounts]], round: int, draws: Draws
    ) -> GenState:
        """Note the counts, train the generator on the heads of the round, average the heads."""
        sent = list(uploads)
        counts = dict(state.counts) | {str(one.client_id): one.message.counts for one in sent}
        if not any(bool(one.message.counts.any()) for one in sent):
            return state
        lesson = Lesson(
            heads=[one.message.head for one in sent],
            counts=torch.stack([one.message.counts for one in sent]).cpu(),
            reported=torch.stack(list(counts.values())).cpu().sum(dim=0),
        )
        generator, adam = train_generator(state.generator, state.adam, lesson, self.options, draws, round)
        head = mean_state(lesson.heads, lesson.counts.sum(dim=1).tolist(), otherwise=state.head)
        return GenState(head, generator, adam, counts, lesson.reported)

    def predict(self, client: Client, view: HeadAndGenerator | None, x: Tensor) -> Tensor:
        """Classify with the common head as it is now."""
        return apply_head(client, None if view is None else view.head, client.model.features(x))


def _loss_with_generator(
    client: Client, received: HeadAndGenerator, options: FedGenOptions, round: int, draws: Draws
) -> Loss:
    """Return L: the cross-entropy, and the terms on generated features."""
    head, device = client.model.head, client.shard.counts.device
    generator = received_generator(received.generator, client.num_classes, options, device)
    sampler = Sampler(draws, received.labels.cpu(), options.noise_size, round=round, client=client.id)

    @torch.no_grad()
    def made(y: Tensor) -> Tensor:
        return generate(generator, y, sampler.noise(len(y)).to(device), client.num_classes)

    def loss(step: Step) -> Terms:
        terms = dict(plain_loss(step))
        if options.generated_weight:
            drawn = sampler.labels(len(step.y)).to(device)
            terms["generated"] = options.generated_weight * cross_entropy(head(made(drawn)), drawn)
        if options.latent_weight:
            terms["latent"] = options.latent_weight * kl(head(made(step.y)), step.logits)
        return terms

    return loss
