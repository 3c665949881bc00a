"""FedGen's generator: features for a label, and how the server trains it on the heads of a round.

G(y, noise)   one-hot(y) and noise -> Linear(C + nu, H) -> BatchNorm1d -> ReLU -> Linear(H, d)
L_G = T + eta D, see functional/generation.py
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from motley.draws import Draws
from motley.functional.averaging import State, shares
from motley.functional.generation import (
    diversity_penalty,
    holder_shares,
    label_frequencies,
    teaching_by_label,
    teaching_by_logit,
)
from motley.methods.fedgen_options import FedGenOptions
from motley.training.modes import training_mode
from motley.training.optimizers import recall_optimizer, remember_optimizer


@dataclass(frozen=True)
class Lesson:
    """What the server teaches its generator in a round.

    Attributes:
        heads: State of the head of each client of the round, by ascending id.
        counts: Their class counts, (K, C).
        reported: Class counts over all clients that ever reported, (C,).
    """

    heads: Sequence[State]
    counts: Tensor
    reported: Tensor


def new_generator(num_classes: int, width: int, options: FedGenOptions) -> nn.Sequential:
    """Return a generator of features of this width, drawn from torch's global generator."""
    return nn.Sequential(
        nn.Linear(options.noise_size + num_classes, options.hidden_size),
        nn.BatchNorm1d(options.hidden_size),
        nn.ReLU(),
        nn.Linear(options.hidden_size, width),
    )


def received_generator(state: State, num_classes: int, options: FedGenOptions, device: torch.device) -> nn.Sequential:
    """Return a generator with a copy of these weights, in evaluation mode."""
    with torch.device("meta"):  # neither memory nor draws for weights that are replaced at once
        made = new_generator(num_classes, len(state["3.bias"]), options)
    made.to_empty(device=device).load_state_dict(state)
    return made.eval()


def generate(generator: nn.Module, labels: Tensor, noise: Tensor, num_classes: int) -> Tensor:
    """Return features (B, d) for labels (B,) and noise (B, nu)."""
    features: Tensor = generator(torch.cat([one_hot(labels, num_classes).to(noise.dtype), noise], dim=1))
    return features


class Sampler:
    """Draws labels and noise at one address, on the CPU, so that they are the same on every device."""

    def __init__(self, draws: Draws, frequencies: Tensor, noise_size: int, *, round: int, client: int = -1) -> None:
        self._frequencies, self._size = frequencies, noise_size
        self._labels = draws.generator("generator-labels", round=round, client=client)
        self._noise = draws.generator("generator-noise", round=round, client=client)

    def labels(self, number: int) -> Tensor:
        """Return labels (B,) in their frequencies."""
        return torch.multinomial(self._frequencies, number, replacement=True, generator=self._labels)

    def noise(self, number: int) -> Tensor:
        """Return noise (B, nu), uniform in [0, 1)."""
        return torch.rand(number, self._size, generator=self._noise)


def train_generator(
    state: State, memory: Mapping[str, Tensor], lesson: Lesson, options: FedGenOptions, draws: Draws, round: int
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return the generator after the steps of a round, and the state of its Adam; neither input is changed.

    Args:
        state: The generator's weights.
        memory: The state of its Adam; empty before the first step.
        lesson: Heads and counts of the round; somebody holds a sample.
        options: The method's.
        draws: The run's generators.
        round: The round, from 1.
    """
    device, num_classes = lesson.heads[0]["weight"].device, lesson.counts.shape[1]
    generator = received_generator(state, num_classes, options, device)
    rate = options.gen_lr * options.gen_lr_decay ** (round - 1)
    adam = torch.optim.Adam(generator.parameters(), lr=rate, weight_decay=options.gen_weight_decay)
    recall_optimizer(adam, dict(memory))
    weight = torch.stack([head["weight"] for head in lesson.heads])
    bias = torch.stack([head["bias"] for head in lesson.heads]) if "bias" in lesson.heads[0] else weight.new_zeros(())
    alpha = holder_shares(lesson.counts).to(device)
    by_samples = torch.tensor(shares(lesson.counts.sum(dim=1).tolist()), device=device)
    frequencies = label_frequencies(lesson.reported, lesson.counts.sum(dim=0) > 0)
    sampler = Sampler(draws, frequencies, options.noise_size, round=round)
    with training_mode(generator):
        for _ in range(options.gen_steps):
            labels, noise = sampler.labels(options.gen_batch).to(device), sampler.noise(options.gen_batch).to(device)
            features = generate(generator, labels, noise, num_classes)
            logits = torch.einsum("bd,kcd->kbc", features, weight) + (bias[:, None] if bias.dim() else bias)
            taught = (
                teaching_by_label(logits, labels, alpha)
                if options.teacher == "label"
                else teaching_by_logit(logits, labels, by_samples)
            )
            loss = taught + options.diversity_weight * diversity_penalty(features, noise)
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
    after: dict[str, Tensor] = {}
    remember_optimizer(adam, after)
    return {name: tensor.detach() for name, tensor in generator.state_dict().items()}, after
