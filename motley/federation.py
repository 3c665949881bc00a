"""What a federation consists of: the task that all share, and the clients with their models and data."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from motley.data.shards import Shard
from motley.models.inference import InferenceCopies
from motley.models.split import SplitModel
from motley.options import EvalOptions, TrainOptions

# Plain numbers, as a journal and a row hold them.
Value = float | int | str | None | Sequence["Value"] | Mapping[str, "Value"]

Part = Callable[[str], AbstractContextManager[None]]


def unmeasured(name: str) -> AbstractContextManager[None]:  # noqa: ARG001
    """Enclose a part of a client's work that nobody measures."""
    return nullcontext()


@dataclass(frozen=True)
class Proxy:
    """Samples that everybody has and no client owns: taken out of the pool before it is partitioned.

    Attributes:
        x: Inputs as models see them, normalised, (P, channels, ...) float32, on the device.
        y: Their labels, (P,) int64, for methods with the need "proxy-labels"; None for all others.
    """

    x: Tensor
    y: Tensor | None = None


@dataclass(frozen=True)
class Task:
    """What every participant knows before round 1.

    Attributes:
        class_names: Names of the C classes, in label order.
        input_shape: Shape of one sample: (channels, height, width) or (channels, length).
        num_clients: Number of clients N.
        template: A model of a client's architecture by client id, with weights that mean nothing: what the weights of
            a received snapshot are put into. Shared between clients and never changed.
        auxiliary: A new model by the name of its architecture and its feature width (None: its own), always with the
            same initial weights, those of the run's server (rule R7). What all clients have beside their own model.
        proxy: The proxy set, if the run has one.
        architecture: A name by client id: clients of one name have models that differ in their weights alone.
        inference: Copies of models for evaluation, class means and teachers, by that name.
    """

    class_names: tuple[str, ...]
    input_shape: tuple[int, ...]
    num_clients: int
    template: Callable[[int], SplitModel]
    auxiliary: Callable[[str, int | None], SplitModel]
    proxy: Proxy | None = None
    architecture: Callable[[int], str] = str
    inference: InferenceCopies = field(default_factory=InferenceCopies)

    @property
    def num_classes(self) -> int:
        """Return C."""
        return len(self.class_names)


@dataclass
class Client:
    """One participant: the unit that an executor owns, moves and restores.

    Attributes:
        id: 0..N-1.
        task: What all participants know.
        model: Its own network, on the device.
        shard: Its own data, on the device.
        training: The run's options of local training.
        evaluation: The run's options of evaluation passes.
        memory: Named tensors that the method keeps on this client; part of every checkpoint.
        journal: What was measured on this client since the engine last asked; plain numbers.
        train_dtype: In which dtype its convolutions and products compute while training; all else is float32.
        part: Encloses the parts of its work by name: "training", "backward" and "teachers" inside of it; who measures
            what they cost puts something else here.
    """

    id: int
    task: Task
    model: SplitModel
    shard: Shard
    training: TrainOptions
    evaluation: EvalOptions
    memory: dict[str, Tensor] = field(default_factory=dict)
    journal: dict[str, Value] = field(default_factory=dict)
    train_dtype: torch.dtype = torch.float32
    part: Part = unmeasured

    @property
    def num_classes(self) -> int:
        """Return C."""
        return self.task.num_classes

    @property
    def for_inference(self) -> SplitModel:
        """Return the model for inference: a copy with its present weights, good until a client like it asks."""
        return self.task.inference.of(self.task.architecture(self.id), self.model)
