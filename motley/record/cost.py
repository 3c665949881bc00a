"""A cost study as plain numbers: what a round of each method sends and computes beyond Local."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Flops:
    """Floating-point operations, counted in two ways that add up.

    Attributes:
        products: Convolutions and matrix products, 2 for a multiply-add: what torch's own counter counts.
        elementwise: By the convention of FedTopo's Table III: see `motley.engine.flops`.
    """

    products: float = 0.0
    elementwise: float = 0.0

    @property
    def total(self) -> float:
        """Return both."""
        return self.products + self.elementwise

    def __add__(self, other: "Flops") -> "Flops":
        return Flops(self.products + other.products, self.elementwise + other.elementwise)

    def __sub__(self, other: "Flops") -> "Flops":
        return Flops(self.products - other.products, self.elementwise - other.elementwise)

    def __mul__(self, factor: float) -> "Flops":
        return Flops(self.products * factor, self.elementwise * factor)


@dataclass(frozen=True)
class Sent:
    """Scalars and bytes that each participant of the measured round sent and received, by ascending id."""

    up_scalars: tuple[int, ...] = ()
    down_scalars: tuple[int, ...] = ()
    up_bytes: tuple[int, ...] = ()
    down_bytes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Work:
    """What one method computes; all but the server's are means over the participants, for a batch.

    Attributes:
        forward, backward: Of the loop of local training, and of training on a proxy set.
        teachers: What is asked of teachers for the samples of an epoch.
        passes: All else on the client: prototypes, statistics, predictions of a proxy set.
        inference: Of the predictor that the headline reports.
        server: Of a whole round; among peers and with `replicated`, of all of them together.
    """

    forward: Flops = Flops()
    backward: Flops = Flops()
    teachers: Flops = Flops()
    passes: Flops = Flops()
    inference: Flops = Flops()
    server: Flops = Flops()

    def __sub__(self, other: "Work") -> "Work":
        return Work(**{name: getattr(self, name) - getattr(other, name) for name in self.__dataclass_fields__})


@dataclass(frozen=True)
class Footprint:
    """What the last round of a method needed in a process of its own.

    Attributes:
        seconds: Of the round, clients one after the other.
        memory_bytes: How far the resident memory of the process rose above what it was before round 1; None where the
            system does not tell.
    """

    seconds: float
    memory_bytes: int | None


@dataclass(frozen=True)
class MethodCost:
    """One row.

    Attributes:
        name: Of the method or the variant.
        method: The method.
        sent: From the real messages.
        extra: Beyond Local.
        footprint: If it was asked for.
    """

    name: str
    method: str
    sent: Sent
    extra: Work
    footprint: Footprint | None = None


@dataclass(frozen=True)
class CostStudy:
    """The costs of several methods in one federation.

    Attributes:
        models: As asked for.
        classes: C.
        feature_width: Common width of the features; None if they differ.
        clients, participants: N, and how many take part in a round.
        batch_size: For how many samples the work is given.
        round: Which was measured.
        local: The work of Local itself.
        local_footprint: The same for seconds and memory, if they were asked for.
        methods: The rows.
        notes: What was warned of, and what is special in this study.
    """

    models: str
    classes: int
    feature_width: int | None
    clients: int
    participants: int
    batch_size: int
    round: int
    local: Work
    local_footprint: Footprint | None = None
    methods: tuple[MethodCost, ...] = field(default=())
    notes: tuple[str, ...] = ()
