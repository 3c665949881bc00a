"""Training and evaluation mode, entered for a block and restored after it."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


@contextmanager
def _mode(modules: tuple[nn.Module, ...], train: bool) -> Iterator[None]:
    # To set an attribute of a module is slow: it is done only where it changes something.
    flags = [(part, part.training) for module in modules for part in module.modules()]
    if any(flag is not train for _, flag in flags):
        for module in modules:
            module.train(train)
    try:
        yield
    finally:
        for part, flag in flags:
            if part.training is not flag:
                part.training = flag


def training_mode(*modules: nn.Module) -> AbstractContextManager[None]:
    """Put modules into training mode for a block."""
    return _mode(modules, True)


def evaluation_mode(*modules: nn.Module) -> AbstractContextManager[None]:
    """Put modules into evaluation mode for a block; every flag is as before afterwards (case B5)."""
    return _mode(modules, False)


def has_batch_norm(model: nn.Module) -> bool:
    """Tell whether a model has BatchNorm layers."""
    return any(isinstance(part, _BatchNorm) for part in model.modules())


@contextmanager
def freeze_batch_norm(model: nn.Module, *, when: bool) -> Iterator[None]:
    """Keep BatchNorm layers in evaluation mode for a block: they cannot be trained on a single sample."""
    layers = [part for part in model.modules() if when and isinstance(part, _BatchNorm)]
    for layer in layers:
        layer.eval()
    yield
