"""The one loop of local training. A method adds a loss and, if it distils, targets; everything else stands here."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from motley.draws import Draws
from motley.errors import MotleyWarning, NonFiniteLoss
from motley.federation import Client
from motley.training.batches import batches, epoch_order, num_used, order_digest
from motley.training.inputs import Augmentation, Normalizer
from motley.training.modes import freeze_batch_norm, has_batch_norm, training_mode
from motley.training.optimizers import learning_rate, make_optimizer, recall_optimizer, remember_optimizer


@dataclass(frozen=True)
class Step:
    """What a loss sees of one batch.

    Attributes:
        x: Inputs as the model saw them, (B, ...).
        y: Labels, (B,) int64.
        index: Positions in the client's training part, (B,) int64.
        features: Output of the backbone, (B, d); None for a module of which only the scores are known.
        logits: (B, C).
        targets: What `teach` said of these samples, (B, C); None without `teach`.
    """

    x: Tensor
    y: Tensor
    index: Tensor
    features: Tensor | None
    logits: Tensor
    targets: Tensor | None


TAUGHT_AT_ONCE = 16_000_000  # numbers in the inputs that `teach` is given at once: 64 MB, 5,200 pictures of 3 x 32 x 32

Terms = Mapping[str, Tensor]
Loss = Callable[[Step], Terms]
Teach = Callable[[Tensor], Tensor]
Observe = Callable[[int, Step], None]


def train_local(
    client: Client,
    loss: Loss,
    draws: Draws,
    *,
    round: int,
    teach: Teach | None = None,
    observe: Observe | None = None,
    modules: Iterable[nn.Module] = (),
    adjust: Callable[[], None] | None = None,
) -> None:
    """Train a client's model for the run's number of local epochs and write what happened into its journal.

    Every training sample is used once per epoch in a drawn order, unless the run's `shuffle` and `last_batch` say
    otherwise. `teach` is called once per epoch on large chunks of the very inputs of that epoch, and only its result is
    kept, so that its cost does not depend on the batch size.

    Args:
        client: Whose model, data and options are used.
        loss: Named scalar terms of a batch, whose sum is minimised; constant factors belong into the terms.
        draws: The run's generators.
        round: The round, from 1.
        teach: Inputs (n, ...) to targets (n, C); without gradient.
        observe: Called with the epoch (from 0) and the step before the weights change.
        modules: Further modules that are trained in the same backward pass.
        adjust: Called between every backward pass and the step, before the run's clipping; it may change gradients.

    Raises:
        NonFiniteLoss: A term was not finite; it is named.
    """
    shard, options = client.shard, client.training
    num_samples = len(shard.train)
    if num_samples == 0:
        warnings.warn(f"client {client.id} has no training samples and does not train", MotleyWarning, stacklevel=2)
        return
    used = num_used(num_samples, options.batch_size, options.last_batch)
    if not used:
        text = f"client {client.id} never trains: its {num_samples} samples fill no batch of {options.batch_size}"
        warnings.warn(f"{text} (train.last_batch = drop)", MotleyWarning, stacklevel=2)
    if used == num_samples == 1 and has_batch_norm(client.model):
        text = (
            f"client {client.id} has a single training sample; its BatchNorm layers stay in evaluation mode (case A3)"
        )
        warnings.warn(text, MotleyWarning, stacklevel=2)
    parameters = [p for module in (client.model, *modules) for p in module.parameters() if p.requires_grad]
    optimizer = make_optimizer(parameters, options, round)
    if options.keep_optimizer:
        recall_optimizer(optimizer, client.memory)
    shuffle = draws.generator("shuffle", round=round, client=client.id)
    change = draws.generator("augment", round=round, client=client.id)
    normalize = Normalizer.of(shard.normalization, shard.train.x)
    sums: dict[str, Tensor] = {}
    orders, steps = [], 0
    with (
        client.part("training"),
        draws.scope("dropout", round=round, client=client.id),
        training_mode(client.model, *modules),
        freeze_batch_norm(client.model, when=num_samples == 1),
    ):
        for number in range(options.local_epochs):
            order = epoch_order(num_samples, shuffle, shuffle=options.shuffle)[:used]
            orders.append(order)
            augmentation = Augmentation.draw(options.augment, num_samples, shard.train.x.shape[2], change)
            epoch = _Epoch(client, normalize, augmentation)
            targets = epoch.targets(order, teach) if teach and used else None
            for index in batches(order, options.batch_size, options.last_batch):
                step = epoch.step(index, targets)
                terms = loss(step)
                if observe:
                    observe(number, step)
                _descend(client, optimizer, parameters, terms, adjust)
                steps += 1
                for name, value in terms.items():
                    part = value.detach() * index.numel()
                    sums[name] = sums[name] + part if name in sums else part
            _check_finite(sums)
    if options.keep_optimizer:
        remember_optimizer(optimizer, client.memory)
    seen = used * options.local_epochs
    client.journal["train"] = {
        "steps": steps,
        "samples": seen,
        "lr": learning_rate(options, round),
        "order": order_digest(orders),
        "terms": {name: value.item() / seen for name, value in sums.items()},
    }


@dataclass(frozen=True)
class _Epoch:
    """The training part of a client as its model sees it in one epoch."""

    client: Client
    normalize: Normalizer
    augmentation: Augmentation | None

    def inputs(self, index: Tensor) -> Tensor:
        x = self.normalize(self.client.shard.train.x[index])
        return self.augmentation.apply(x, index) if self.augmentation else x

    def step(self, index: Tensor, targets: Tensor | None) -> Step:
        x, model, dtype = self.inputs(index), self.client.model, self.client.train_dtype
        with torch.autocast(x.device.type, dtype) if dtype != torch.float32 else nullcontext():
            features = model.features(x) if model.has_features else None
            logits = model(x) if features is None else model.classify(features)
        features = None if features is None else features.float()
        y = self.client.shard.train.y[index]
        return Step(x, y, index, features, logits.float(), None if targets is None else targets[index])

    def targets(self, order: Tensor, teach: Teach) -> Tensor:
        """Return the targets of the samples of an order, (n, C), by position in the training part."""
        targets: Tensor | None = None
        for index in torch.split(order, max(1, TAUGHT_AT_ONCE // self.client.shard.train.x[0].numel())):
            with self.client.part("teachers"), torch.inference_mode():
                said = teach(self.inputs(index))
            if targets is None:
                shape = (len(self.client.shard.train), *said.shape[1:])
                targets = torch.empty(shape, dtype=said.dtype, device=said.device)
            targets[index] = said
        assert targets is not None
        return targets


def _descend(
    client: Client,
    optimizer: torch.optim.Optimizer,
    parameters: list[nn.Parameter],
    terms: Terms,
    adjust: Callable[[], None] | None,
) -> None:
    first, *others = terms.values()
    total = sum(others, start=first)
    with client.part("backward"):
        total.backward()  # type: ignore[no-untyped-call]
    if adjust:
        adjust()
    if client.training.clip_norm is not None:
        nn.utils.clip_grad_norm_(parameters, client.training.clip_norm)
    optimizer.step()
    for parameter in parameters:  # as the optimizer's own function, which costs more than a small step
        parameter.grad = None  # an idle client holds no gradients


def _check_finite(sums: Terms) -> None:
    for name, value in sums.items():
        if not bool(torch.isfinite(value)):
            raise NonFiniteLoss(name)
