"""Passes over the proxy set: what a model says of it, and training on it against given targets."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import count, islice

import torch
from torch import Tensor, nn

from motley.draws import Draws
from motley.errors import NonFiniteLoss
from motley.federation import Client, Proxy
from motley.options import TrainOptions
from motley.training.batches import batches, epoch_order
from motley.training.local import Terms
from motley.training.modes import evaluation_mode, freeze_batch_norm, training_mode
from motley.training.optimizers import learning_rate, make_optimizer
from motley.training.statistics import Measure

DigestLoss = Callable[[Tensor, Tensor], Terms]


def proxy_of(client: Client) -> Proxy:
    """Return the proxy set, on which a method with the need "proxy" may rely."""
    assert client.task.proxy is not None, "a method that uses the proxy set must register the need for it"
    return client.task.proxy


def outputs_of(client: Client, x: Tensor, measure: Measure = lambda model, x: model(x)) -> Tensor:
    """Return what a client's model says of inputs, in evaluation mode and without gradient.

    Args:
        client: Whose model is asked.
        x: Inputs (n, ...), n >= 1, for example those of the proxy set.
        measure: Model and inputs (B, ...) to values (B, k); by default its logits of normalised inputs.

    Returns:
        Shape (n, k), float32, on the CPU, made to be sent.
    """
    model = client.for_inference
    with torch.inference_mode(), evaluation_mode(model):
        said = torch.cat([measure(model, batch) for batch in torch.split(x, client.evaluation.batch_size)])
    return said.float().cpu().clone()


def digest(
    client: Client,
    x: Tensor,
    targets: Tensor,
    loss: DigestLoss,
    draws: Draws,
    *,
    round: int,
    epochs: int | None = None,
    steps: int | None = None,
    training: TrainOptions | None = None,
    purpose: str = "digest",
) -> None:
    """Train a client's model on inputs against targets; without inputs, passes or steps nothing happens.

    The optimizer is fresh, and the draws have addresses of their own: the private training of a round is the same
    with and without a digest before it. What happened is written into the journal under `purpose`.

    Args:
        client: Whose model is trained.
        x: Normalised inputs (n, ...), used as they are.
        targets: One a sample, (n, ...).
        loss: Logits (B, C) and targets (B, ...) to named terms, whose sum is minimised.
        draws: The run's generators.
        round: The round, from 1.
        epochs: Ends after so many passes; None: passes without end.
        steps: Ends after so many batches; None: no bound. One of the two must be given.
        training: Other options than the run's: optimizer, rate, batch size, clipping.
        purpose: Address of the draws and name in the journal.

    Raises:
        NonFiniteLoss: A term was not finite; it is named.
    """
    assert epochs is not None or steps is not None, "a digest needs an end"
    options, model, dtype = training or client.training, client.model, client.train_dtype
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = make_optimizer(parameters, options, round)
    shuffle = draws.generator(f"{purpose} shuffle", round=round, client=client.id)
    targets = targets.to(x.device)
    sums: dict[str, Tensor] = {}
    done, seen = 0, 0
    with (
        client.part("training"),
        draws.scope(f"{purpose} dropout", round=round, client=client.id),
        training_mode(model),
        freeze_batch_norm(model, when=len(x) == 1),
    ):
        for index in islice(_batches(len(x), options.batch_size, shuffle, epochs), steps):
            with torch.autocast(x.device.type, dtype) if dtype != torch.float32 else nullcontext():
                logits = model(x[index])
            terms = loss(logits.float(), targets[index])
            with client.part("backward"):
                torch.stack(list(terms.values())).sum().backward()  # type: ignore[no-untyped-call]
            if options.clip_norm is not None:
                nn.utils.clip_grad_norm_(parameters, options.clip_norm)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            done, seen = done + 1, seen + len(index)
            for name, value in terms.items():
                sums[name] = sums.get(name, 0) + value.detach() * len(index)
    means = {name: value.item() / seen for name, value in sums.items()}
    for name, value in sums.items():
        if not bool(torch.isfinite(value)):
            raise NonFiniteLoss(name)
    if done:
        client.journal[purpose] = {"steps": done, "samples": seen, "lr": learning_rate(options, round), "terms": means}


def _batches(num_samples: int, batch_size: int, shuffle: torch.Generator, epochs: int | None) -> Iterator[Tensor]:
    """Yield the positions of every batch of so many passes, each in a newly drawn order."""
    for _ in range(epochs) if epochs is not None else count():
        if not num_samples:
            return
        yield from batches(epoch_order(num_samples, shuffle), batch_size)
