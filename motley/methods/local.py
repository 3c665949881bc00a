"""Local: every client trains alone; the reference that sharing must beat.

    upload      nothing        broadcast   nothing        inference   unchanged

    FedTopo, Eq. 1   F_k = mean over D_k of cross-entropy(h_k(f_k(x)), y)
    local-scaled     L_k = (1 + lambda) F_k from round warm-up + 1 on

FedTopo's auxiliary term has nearly the gradient of the cross-entropy, so with plain SGD it acts as a larger learning
rate (FedTopo sheet, F7). `local-scaled` is the control that its paper lacks: what FedTopo gains over it is what the
topology gives.
"""

from collections.abc import Iterable
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic.dataclasses import dataclass
from torch.nn.functional import cross_entropy

from motley.draws import Draws
from motley.federation import Client, Task
from motley.methods.contracts import Nothing, ServerMethod, Upload
from motley.methods.registry import register
from motley.options import STRICT
from motley.training.local import Step, Terms, train_local


@dataclass(frozen=True, config=STRICT)
class LocalOptions:
    """Local has no options: its loss is never scaled."""

    loss_weight: ClassVar[float] = 0.0
    warmup_rounds: ClassVar[int] = 0


@dataclass(frozen=True, config=STRICT)
class LocalScaledOptions:
    """Options of local-scaled; the defaults are FedTopo's."""

    loss_weight: Annotated[float, Field(ge=0, description="lambda: the loss is multiplied by 1 + lambda")] = 1.0
    warmup_rounds: Annotated[int, Field(ge=0, description="rounds at the start with the plain loss")] = 3


@register("local", options=LocalOptions)
@register(
    "local-scaled",
    options=LocalScaledOptions,
    about="Local-scaled: training alone with the loss times 1 + lambda, the control for FedTopo's auxiliary term.",
)
class Local(ServerMethod[Nothing, Nothing, Nothing]):
    """No sharing: the server has nothing to say."""

    def __init__(self, options: LocalOptions | LocalScaledOptions) -> None:
        self.options = options

    def start(self, task: Task, draws: Draws) -> Nothing:
        return Nothing()

    def broadcast(self, state: Nothing, client_id: int) -> Nothing:
        return state

    def client_round(self, client: Client, received: Nothing, round: int, draws: Draws) -> Nothing:
        """Train on the cross-entropy (Eq. 1), scaled after the warm-up."""
        scale = 1.0 + (self.options.loss_weight if round > self.options.warmup_rounds else 0.0)

        def loss(step: Step) -> Terms:
            return {"cross_entropy": scale * cross_entropy(step.logits, step.y)}

        train_local(client, loss, draws, round=round)
        return Nothing()

    def server_round(self, state: Nothing, uploads: Iterable[Upload[Nothing]], round: int, draws: Draws) -> Nothing:
        return state
