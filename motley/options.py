"""The options of a run, one class a section of the configuration file; defaults and help texts stand here alone.

The command line, the configuration file, the run header and the reference page are made from these classes. Unknown
names, values of another type, nan and infinity are refused.
"""

from collections.abc import Iterable
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from motley.errors import InvalidConfig

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

Protocol = Literal["local", "global"]


@dataclass(frozen=True, config=STRICT)
class DataOptions:
    """Where the samples come from and how they are read."""

    source: Annotated[
        str, Field(description="digits, parquet:PATH, npz:PATH or folder:PATH; 'motley list sources' explains them")
    ] = "digits"
    image_column: Annotated[str | None, Field(description="parquet: column of the inputs; guessed if not given")] = None
    label_column: Annotated[str | None, Field(description="parquet: column of the labels; guessed if not given")] = None
    class_names: Annotated[
        tuple[str, ...], Field(description="names of the classes in label order; taken from the source if not given")
    ] = ()
    keep_classes: Annotated[
        tuple[str, ...], Field(description="names of the classes to keep, numbered in this order; default: all")
    ] = ()
    size: Annotated[int | None, Field(ge=1, description="resize every picture to this height and width, in pixels")] = (
        None
    )
    skip_damaged: Annotated[bool, Field(description="leave out pictures that cannot be decoded, and list them")] = False
    skip_unknown_classes: Annotated[
        bool, Field(description="leave out test samples of classes that the training set does not have")
    ] = False
    normalize: Annotated[
        Literal["half", "channel", "none"],
        Field(description="half: (x - 0.5) / 0.5; channel: by mean and deviation of the training pool; none"),
    ] = "half"
    limit: Annotated[
        int | None,
        Field(ge=1, description="use at most this many samples of each split, drawn by class in equal shares"),
    ] = None
    proxy: Annotated[
        int | None,
        Field(
            ge=1,
            description="samples taken out of the pool before the partition, for methods that learn on common data; "
            "default: 500 where the method needs them, else none",
        ),
    ] = None


@dataclass(frozen=True, config=STRICT)
class PartitionOptions:
    """How the samples are given to the clients and split there."""

    scheme: Annotated[
        str,
        Field(
            description="iid, dirichlet:ALPHA, dirichlet-capped:ALPHA, pathological:K, pathological-random:K, shared "
            "(all samples to all clients) or column:NAME; a smaller ALPHA is more skewed"
        ),
    ] = "dirichlet:0.1"
    clients: Annotated[int, Field(ge=1, description="number of clients; column:NAME takes the column's number")] = 20
    protocol: Annotated[
        Protocol,
        Field(
            description="local: pool and partition all samples, test on each client's own part; global: partition the "
            "training set, test on each client's part and on the common test set"
        ),
    ] = "local"
    min_samples: Annotated[
        int | None,
        Field(
            ge=1,
            description="smallest number of samples of a client; none: min(40, samples / clients / 2), at most 10 "
            "below 400 samples a client",
        ),
    ] = None
    seed: Annotated[
        int | Literal["run"], Field(description="seed of the partition; run: it follows the seed of the run")
    ] = 1
    split: Annotated[
        Literal["per-class", "random"],
        Field(description="how a client's test part is drawn: the same share of every class, or of all samples"),
    ] = "per-class"
    test_fraction: Annotated[
        float | None,
        Field(
            gt=0, lt=1, description="held-out share of each client; 0.25 (local) or 0.2 (global: half of it validates)"
        ),
    ] = None
    validation_fraction: Annotated[
        float, Field(ge=0, lt=1, description="protocol local: share of the training part that validates")
    ] = 0.0
    balance: Annotated[bool, Field(description="pathological: parts of a class differ by at most one sample")] = False


@dataclass(frozen=True, config=STRICT)
class ModelOptions:
    """Which client has which architecture."""

    pool: Annotated[
        str,
        Field(
            description="a pool, an architecture, a list a,b,c or package.module:factory, one for each client in turn; "
            "'motley list models' shows all"
        ),
    ] = "small4"
    width: Annotated[
        int | Literal["own"] | None,
        Field(description="feature width d before the head; own: each architecture's own; default: the pool's"),
    ] = None
    init_seed: Annotated[
        Annotated[int, Field(ge=0)] | Literal["run"],
        Field(description="seed of the initial weights; run: that of the run; a number: all runs start alike"),
    ] = "run"
    same_start: Annotated[
        bool, Field(description="clients of one architecture start from the same weights, as in much public code")
    ] = False


@dataclass(frozen=True, config=STRICT)
class TrainOptions:
    """Local training, the same for every method of a comparison."""

    local_epochs: Annotated[int, Field(ge=1, description="passes over the training part in a round")] = 1
    batch_size: Annotated[int, Field(ge=1, description="samples in a batch")] = 64
    shuffle: Annotated[
        bool, Field(description="a new order of the training part in every epoch; no: always that of the split")
    ] = True
    last_batch: Annotated[
        Literal["keep", "drop"],
        Field(description="drop: a last batch that is not full is left out; a client without a full one never trains"),
    ] = "keep"
    class_means: Annotated[
        Literal["all", "batches"],
        Field(
            description="prototypes and mean outputs: of all training samples, or of as many from the front of the "
            "split as fill whole batches (with last_batch = drop)"
        ),
    ] = "all"
    optimizer: Annotated[Literal["sgd", "adam", "adamw"], Field(description="local optimizer")] = "sgd"
    lr: Annotated[float, Field(gt=0, description="learning rate of round 1")] = 0.05
    lr_decay: Annotated[float, Field(gt=0, le=1, description="the rate of round r is lr * lr_decay^(r - 1)")] = 1.0
    momentum: Annotated[float, Field(ge=0, lt=1, description="momentum of sgd")] = 0.0
    weight_decay: Annotated[float, Field(ge=0, description="weight decay")] = 0.0
    clip_norm: Annotated[float | None, Field(gt=0, description="largest global norm of a gradient; none: no limit")] = (
        None
    )
    keep_optimizer: Annotated[bool, Field(description="keep the optimizer's state of a client over rounds")] = False
    augment: Annotated[
        Literal["none", "flip", "crop-flip"], Field(description="random flips, or padded crops and flips, of pictures")
    ] = "none"


@dataclass(frozen=True, config=STRICT)
class EvalOptions:
    """When and how models are evaluated."""

    every: Annotated[
        int, Field(ge=1, description="evaluate every so many rounds, and before round 1 and at the end")
    ] = 1
    batch_size: Annotated[
        int, Field(ge=1, description="samples in an evaluation batch; 128 pictures of 32 x 32 stay in a core's cache")
    ] = 128
    state: Annotated[
        Literal["server", "local"],
        Field(description="what inference uses of a server: its state after the round, or what a client holds (R8)"),
    ] = "server"


@dataclass(frozen=True, config=STRICT)
class RunOptions:
    """The run itself."""

    rounds: Annotated[int, Field(ge=1, description="number of rounds")] = 20
    seed: Annotated[int, Field(ge=0, description="seed of initial weights, batches, participants and methods")] = 0
    participation: Annotated[
        float | int,
        Field(gt=0, description="clients in a round: a share (0.5; rounded down, at least one) or a number (10)"),
    ] = 1.0
    exchange: Annotated[
        Literal["auto", "server", "replicated", "peers"],
        Field(description="auto: what the method is made for; replicated: a server method among peers"),
    ] = "auto"
    graph: Annotated[
        str,
        Field(
            description="whom an active peer learns from: complete (all others that are active), ring (both neighbours "
            "by id) or random:K (K others, drawn anew each round)"
        ),
    ] = "complete"
    peers: Annotated[
        Literal["active", "stale"],
        Field(
            description="active: peers learn from those of the round; stale: also from the last snapshots of all others"
        ),
    ] = "active"
    device: Annotated[str, Field(description="auto, cpu, cuda, cuda:N or mps")] = "auto"
    threads: Annotated[
        Annotated[int, Field(ge=1)] | Literal["auto"],
        Field(description="threads of torch on the CPU; auto: 1 if all models are small, else torch's own number"),
    ] = "auto"
    workers: Annotated[
        Annotated[int, Field(ge=1)] | Literal["auto"],
        Field(description="processes that own the clients; auto: one for every core if the run is long, else one"),
    ] = "auto"
    precision: Annotated[
        str,
        Field(
            description="fp32, bf16, training/inference such as fp32/bf16 (then, if wanted, /channels-last or "
            "/contiguous, and /trimmed), NAME=... for each architecture, or auto: what a short measurement finds "
            "fastest for each on this machine"
        ),
    ] = "fp32"
    checkpoint_every: Annotated[
        int, Field(ge=0, description="rounds between checkpoints; 0: none, and a resume begins again")
    ] = 10


@dataclass(frozen=True, config=STRICT)
class FaultOptions:
    """Faulty peers, for studies of how a method stands them."""

    bad_peers: Annotated[
        int, Field(ge=0, description="how many clients, drawn by the seed of the run, send something faulty; 0: none")
    ] = 0
    bad_kind: Annotated[
        Literal["untrained", "constant", "lying", "failing"],
        Field(
            description="untrained: the model before round 1; constant: one class; lying: class c + 1 for c; failing: "
            "nothing in every third round"
        ),
    ] = "untrained"
    forged_samples: Annotated[
        int,
        Field(
            ge=0,
            le=1_000_000_000,
            description="validation samples of every class that a faulty peer claims, all right; 0: what it measures",
        ),
    ] = 0


@dataclass(frozen=True, config=STRICT)
class Settings:
    """All sections of one run except the method's own options."""

    data: DataOptions = field(default_factory=DataOptions)
    partition: PartitionOptions = field(default_factory=PartitionOptions)
    models: ModelOptions = field(default_factory=ModelOptions)
    train: TrainOptions = field(default_factory=TrainOptions)
    eval: EvalOptions = field(default_factory=EvalOptions)
    run: RunOptions = field(default_factory=RunOptions)
    faults: FaultOptions = field(default_factory=FaultOptions)


def refuse_unused(section: str, options: Any, names: Iterable[str], by: str, remedy: str) -> None:
    """Refuse options that differ from their defaults, though another choice leaves them without effect.

    Args:
        section: Where the options stand in a configuration file.
        options: An object of a class of options.
        names: What is not used.
        by: The choice that does not use it.
        remedy: What to take instead.

    Raises:
        InvalidConfig: One of them is given.
    """
    for name in names:
        value = getattr(options, name)
        if value != getattr(type(options), name):
            shown = f"{value:g}" if isinstance(value, float) else value
            raise InvalidConfig(f"{section}.{name} is {shown}, which {by} does not use; take {remedy}, or leave it out")
