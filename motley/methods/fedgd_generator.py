"""FedGD's generator: samples out of noise, both trained against the ensemble of the teachers.

    noise (256) -> Linear to 128 x (h / 4) x (w / 4) -> BatchNorm -> x 2 -> conv 128 -> BatchNorm -> LeakyReLU 0.2
    -> x 2 -> conv 64 -> BatchNorm -> LeakyReLU 0.2 -> conv to the channels -> sigmoid, a pixel in 0..1
    label term        CE(e, y), e the mean of the teachers' logits and y drawn
    statistics term   sum over the batch norms of the teachers of ||mean - running|| + ||var - running||
    disagreement      -KL(softmax(e) || softmax(s)) where both name one class, s the trainer's own model

Our readings: the teachers are the peers, without the trainer, which is the probe s; sides that 4 does not divide are
made larger and cropped; the P samples are ceil(P / batch) batches of about equal size, each with noise and labels of
its own, that are worked off in turn for `gen_steps` steps in all. A signal has one side, which its layers go along;
data that are no bytes have no bounds, so there is no sigmoid, and what is made is what models see.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

from motley.draws import Draws
from motley.federation import Client
from motley.functional.synthesis import disagreement_term, statistics_distance
from motley.methods.fedgd_options import FedGDOptions
from motley.training.inputs import Normalizer
from motley.training.modes import evaluation_mode, training_mode

NOISE = 256
BETAS = (0.5, 0.999)
State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Synthetic:
    """What a training of the generator gave.

    Attributes:
        samples: (P, channels, ...), uint8 as the data, or float32 and normalised.
        generator: The state of the generator.
        terms: Its loss terms in the last step, with their weights.
    """

    samples: Tensor
    generator: dict[str, Tensor]
    terms: dict[str, float]


def new_generator(shape: tuple[int, ...], *, bounded: bool = True) -> nn.Sequential:
    """Return a generator, drawn from torch's global generator.

    Args:
        shape: Of a sample, (channels, height, width) or (channels, length).
        bounded: Whether its values end in a sigmoid.
    """
    channels, *sides = shape
    small = [-(-side // 4) for side in sides]
    conv: type[nn.Conv1d | nn.Conv2d] = nn.Conv2d if len(sides) == 2 else nn.Conv1d
    norm: type[nn.BatchNorm1d | nn.BatchNorm2d] = nn.BatchNorm2d if len(sides) == 2 else nn.BatchNorm1d
    return nn.Sequential(
        nn.Linear(NOISE, 128 * prod(small)),
        nn.Unflatten(1, (128, *small)),
        norm(128),
        nn.Upsample(scale_factor=2),
        conv(128, 128, 3, padding=1, bias=False),
        norm(128),
        nn.LeakyReLU(0.2),
        nn.Upsample(scale_factor=2),
        conv(128, 64, 3, padding=1, bias=False),
        norm(64),
        nn.LeakyReLU(0.2),
        conv(64, channels, 3, padding=1),
        nn.Sigmoid() if bounded else nn.Identity(),
    )


def synthesise(
    client: Client, teachers: Mapping[int, State], start: State | None, options: FedGDOptions, draws: Draws, round: int
) -> Synthetic | None:
    """Train generator and noise against the teachers, with the client's model as probe; no model is changed.

    Args:
        client: The trainer.
        teachers: Weights of its peers, M >= 1.
        start: State of the generator to go on with; None: a new one.
        options: FedGD's.
        draws: The run's generators.
        round: The round.

    Returns:
        None if the loss was not finite.
    """
    shape, device = client.task.input_shape, client.shard.counts.device
    as_bytes = client.shard.train.x.dtype == torch.uint8
    with draws.scope("generator initial"):
        generator = new_generator(shape, bounded=as_bytes).to(device)
    if start is not None:
        generator.load_state_dict(start)
    lot = draws.generator("synthetic", round=round, client=client.id)
    sizes = [len(part) for part in torch.arange(options.synthetic).tensor_split(_number_of_batches(options))]
    noise = [torch.randn(size, NOISE, generator=lot).to(device).requires_grad_() for size in sizes]
    labels = [torch.randint(client.num_classes, (size,), generator=lot).to(device) for size in sizes]
    groups = [{"params": generator.parameters(), "lr": options.gen_lr}, {"params": noise, "lr": options.noise_lr}]
    adam = torch.optim.Adam(groups, betas=BETAS)
    normalize = Normalizer.of(client.shard.normalization, client.shard.train.x)
    probe = {name: tensor.detach() for name, tensor in client.model.state_dict().items()}
    # One memory layout, whatever the way of a model here: a message and a file keep none, and sums depend on it.
    teachers = {
        peer: {name: tensor.contiguous() for name, tensor in weights.items()} for peer, weights in teachers.items()
    }
    terms: dict[str, Tensor] = {}
    with training_mode(generator), evaluation_mode(client.model):
        for step in range(options.gen_steps):
            turn = step % len(noise)
            made = _make(generator, noise[turn], shape)
            x = normalize(255 * made) if as_bytes else made
            said, distance = _ask(client, teachers, x)
            own = _logits(client.model, probe, x)
            terms = {
                "labels": options.label_weight * cross_entropy(said, labels[turn]),
                "statistics": options.statistics_weight * distance,
                "disagreement": options.disagreement_weight * disagreement_term(said, own),
            }
            loss = torch.stack(list(terms.values())).sum()
            if not bool(torch.isfinite(loss)):
                return None
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
            adam.zero_grad(set_to_none=True)
        with torch.no_grad():
            made = torch.cat([_make(generator, one, shape) for one in noise])
    state = {name: tensor.detach().clone() for name, tensor in generator.state_dict().items()}
    samples = (255 * made).round().to(torch.uint8) if as_bytes else made
    return Synthetic(samples, state, {name: value.item() for name, value in terms.items()})


def _number_of_batches(options: FedGDOptions) -> int:
    """Return ceil(P / batch), or fewer where a batch would hold one sample, of which batch norm has no variance."""
    return min(-(-options.synthetic // options.gen_batch), options.synthetic // 2)


def _make(generator: nn.Module, noise: Tensor, shape: tuple[int, ...]) -> Tensor:
    made: Tensor = generator(noise)
    for axis, side in enumerate(shape[1:], start=2):
        made = made.narrow(axis, 0, side)
    return made


def _ask(client: Client, teachers: Mapping[int, State], x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the mean logits (B, C) of the teachers, and the sum of the distances in all of their batch norms."""
    said, distances = [], [x.new_zeros(())]
    for peer, weights in teachers.items():
        model = client.task.template(peer)
        with evaluation_mode(model), _listening(model, distances):
            said.append(_logits(model, weights, x))
    return torch.stack(said).mean(dim=0), torch.stack(distances).sum()


def _logits(model: nn.Module, weights: State, x: Tensor) -> Tensor:
    """Return logits (B, C) of a model in evaluation mode, in which cuDNN's recurrent layers let no gradient through."""
    recurrent = any(isinstance(part, nn.RNNBase) for part in model.modules())
    with torch.backends.cudnn.flags(enabled=False) if recurrent else nullcontext():
        said: Tensor = functional_call(model, dict(weights), (x,)).float()
    return said


@contextmanager
def _listening(model: nn.Module, distances: list[Tensor]) -> Iterator[None]:
    """Measure what enters every batch norm of a model in a block."""

    def measure(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        mean, variance = layer.running_mean, layer.running_var  # those of the call, not of the template
        if isinstance(mean, Tensor) and isinstance(variance, Tensor):
            distances.append(statistics_distance(inputs[0].float(), mean, variance))

    with ExitStack() as stack:
        for part in model.modules():
            if isinstance(part, _BatchNorm):
                stack.callback(part.register_forward_pre_hook(measure).remove)
        yield
