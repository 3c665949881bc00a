"""How close a round comes to the time that the arithmetic needs: our loops against bare PyTorch loops, in one process.

Both sides of a ratio run in turn on the same model, batches and tensors, and the ratio is that of the medians of this
process's processor time, so that other work on the machine disturbs it little; on an accelerator, of the time until it
has finished. The pictures are random: speed does not look at them.
"""

import copy
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from motley.data.dataset import DataReport, Dataset, Split
from motley.draws import Draws
from motley.engine.config import ConfigFile, resolve
from motley.engine.setup import Federation, build_federation
from motley.federation import Client
from motley.functional.topology import relations
from motley.methods.contracts import ServerMethod, Upload
from motley.methods.fedtopo import FedTopo
from motley.methods.fedtopo_options import FedTopoOptions
from motley.methods.fedtopo_wire import Relations, pack_relations, start_state
from motley.methods.registry import find_method
from motley.models.assign import plan_models
from motley.models.inference import InferenceCopies
from motley.training.layout import place
from motley.training.precision import DTYPES, Precision, measure_precision
from motley.training.statistics import own_score

DRAWS = Draws(0)
WARM_UP = 2
MOST_MODELS = 64  # of a pool; clients take its members in turn


@dataclass(frozen=True)
class Work:
    """What is measured.

    Attributes:
        models: Pool, architecture or list of them.
        size, channels, classes: Of the pictures.
        samples: Training samples of a client.
        batch_size: Of training.
        repeats: Passes of which the median is taken.
        device: Where.
    """

    models: str = "small4"
    size: int = 32
    channels: int = 3
    classes: int = 10
    samples: int = 512
    batch_size: int = 64
    repeats: int = 5
    device: str = "cpu"


@dataclass(frozen=True)
class Throughput:
    """Images per second of one architecture.

    Attributes:
        train, infer: "plain" is a bare loop, float32, contiguous, nothing folded; the others are ours.
        auto: What a measurement chose.
    """

    architecture: str
    train: dict[str, float]
    infer: dict[str, float]
    auto: str


@dataclass(frozen=True)
class Overhead:
    """Ratios of one architecture: `local` and `evaluate` to bare loops, `fedtopo` and `running` to our `local`."""

    architecture: str
    local: float
    fedtopo: float
    running: float
    evaluate: float


@dataclass(frozen=True)
class ServerStep:
    """FedTopo's server step with all classes held: elapsed seconds of a round, and bytes of one upload."""

    classes: int
    uploads: int
    seconds: float
    upload_bytes: int


def bench_federation(work: Work) -> Federation:
    """Return one client an architecture, each with `samples` random pictures."""
    plan = plan_models(
        resolve("local", ConfigFile(), {"models": work.models}, {}).settings.models,
        clients=MOST_MODELS,
        input_shape=(work.channels, work.size, work.size),
        num_classes=work.classes,
    )
    return _build(work, len(dict.fromkeys(plan.names)))


def measure_throughput(client: Client, name: str, work: Work) -> Throughput:
    """Return images per second of `local` training and of inference copies in every precision, and of bare loops."""
    count, shape = len(client.shard.train), client.task.input_shape
    sizes = client.training.batch_size, client.evaluation.batch_size
    auto = measure_precision(client.model, shape, train_batch=sizes[0], infer_batch=sizes[1])
    forms = {word: Precision(dtype, dtype) for word, dtype in DTYPES.items()} | {"auto": auto}
    plain = replace(client, model=copy.deepcopy(client.model).to(memory_format=torch.contiguous_format))
    ours = {word: _in_form(client, form) for word, form in forms.items()}
    sides = [bare_training(plain), bare_evaluation(plain, lambda: plain.model)]
    for one in ours.values():
        sides += [our_round(one, "local"), our_evaluation(one)]
    speeds = [count / seconds for seconds in medians(work.repeats, *sides)]
    words = ["plain", *ours]
    return Throughput(
        name, dict(zip(words, speeds[::2], strict=True)), dict(zip(words, speeds[1::2], strict=True)), str(auto)
    )


def _in_form(client: Client, form: Precision) -> Client:
    """Return a client with a copy of the model that computes in a precision and layout."""
    device = next(client.model.parameters()).device
    model = place(copy.deepcopy(client.model), client.task.input_shape, device, form.layout)
    task = replace(client.task, inference=InferenceCopies({client.task.architecture(client.id): form.infer}))
    return replace(client, model=model, task=task, train_dtype=form.train, memory={}, journal={})


def measure_overhead(client: Client, name: str, work: Work) -> Overhead:
    """Return what our loops need beyond bare ones, in float32."""
    bare, local, exact, running, bare_eval, ours_eval = medians(
        work.repeats,
        bare_training(client),
        our_round(client, "local"),
        our_round(client, "fedtopo"),
        our_round(client, "fedtopo", prototypes="running"),
        bare_evaluation(client, lambda: client.for_inference),
        our_evaluation(client),
    )
    return Overhead(name, local / bare, exact / local, running / local, ours_eval / bare_eval)


def measure_server(num_classes: int, num_uploads: int, repeats: int) -> ServerStep:
    """Return the time of a server step for a stream of uploads, one message handed over again and again."""
    generator = DRAWS.generator("uploads")
    prototypes = torch.rand(num_classes, 64, dtype=torch.float64, generator=generator)
    counts = torch.randint(1, 100, (num_classes,), generator=generator)
    message = pack_relations(relations(prototypes, counts), counts, "dense")
    method, state = FedTopo(FedTopoOptions()), start_state(num_classes, 0)

    def stream() -> Iterator[Upload[Relations]]:
        yield from (Upload(client, message) for client in range(num_uploads))

    def step(_: int) -> None:
        method.server_round(state, stream(), 1, DRAWS)

    seconds = medians(repeats, step, warm_up=1, clock=time.perf_counter)[0]  # it computes on all threads of torch
    return ServerStep(num_classes, num_uploads, seconds, message.num_bytes)


def medians(
    repeats: int,
    *sides: Callable[[int], object],
    warm_up: int = WARM_UP,
    clock: Callable[[], float] | None = None,
) -> list[float]:
    """Return the median seconds of each side by a clock (`_now`), run in turn after the warm-up passes."""
    now = clock or _now
    times: list[list[float]] = [[] for _ in sides]
    for repeat in range(repeats + warm_up):
        for own, side in zip(times, sides, strict=True):
            began = now()
            side(repeat + 10)
            own.append(now() - began)
    return [statistics.median(own[warm_up:]) for own in times]


def _now() -> float:
    """Return processor seconds; where an accelerator computes, seconds after it has finished what was begun."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def bare_training(client: Client) -> Callable[[int], None]:
    """Return one epoch as a user of PyTorch would write it."""
    x, y, model, size = client.shard.train.x, client.shard.train.y, client.model, client.training.batch_size

    def run(_: int) -> None:
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=client.training.lr)
        order = torch.randperm(len(y), device=y.device)  # the benchmark's own process: no run's draws are touched
        for start in range(0, len(y), size):
            index = order[start : start + size]
            optimizer.zero_grad(set_to_none=True)
            loss = cross_entropy(model((x[index].float() / 255 - 0.5) / 0.5), y[index])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return run


def bare_evaluation(client: Client, get_model: Callable[[], nn.Module]) -> Callable[[int], None]:
    """Return forward passes of a model over the training part, with the number of right answers."""
    x, y, size = client.shard.train.x, client.shard.train.y, client.evaluation.batch_size

    def run(_: int) -> None:
        model = get_model().eval()
        right = 0
        with torch.inference_mode():
            for start in range(0, len(y), size):
                scores = model((x[start : start + size].float() / 255 - 0.5) / 0.5)
                right += int((scores.argmax(1) == y[start : start + size]).sum())

    return run


def our_round(client: Client, name: str, **options: object) -> Callable[[int], None]:
    """Return what a client does in a round of a server method."""
    entry = find_method(name)
    method = entry.method(entry.options(**options))
    assert isinstance(method, ServerMethod)
    state = method.start(client.task, DRAWS)

    def run(number: int) -> None:
        method.client_round(client, method.broadcast(state, client.id), number, DRAWS)

    return run


def our_evaluation(client: Client) -> Callable[[int], None]:
    """Return our evaluation of the training part."""

    def run(_: int) -> None:
        own_score(client, client.shard.train)

    return run


def _build(work: Work, clients: int) -> Federation:
    flags = {
        "models": work.models,
        "batch_size": work.batch_size,
        "clients": clients,
        "partition": "iid",
        "device": work.device,
        "lr": 1e-5,  # labels are as random as pictures: a usual rate makes deep networks diverge
    }
    return build_federation(resolve("local", ConfigFile(), flags, {}), dataset=pictures(work, clients))


def pictures(work: Work, clients: int) -> Dataset:
    """Return random pictures, as many of each class, of which a client trains on `samples`."""
    generator = DRAWS.generator("pictures")
    of_class = -(-work.samples * clients * 4 // 3 // work.classes)
    shape = (of_class * work.classes, work.channels, work.size, work.size)
    x = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    names = tuple(str(label) for label in range(work.classes))
    report = DataReport("random pictures", shape[1:], names, {"train": (of_class,) * work.classes})
    return Dataset("random", names, Split(x, torch.arange(work.classes).repeat(of_class)), None, None, report)
