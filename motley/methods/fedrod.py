"""FedRoD: a common head that is learned as if classes were balanced, and a personal one that adds what is the client's.

    upload      h_k, a head of C d + C numbers; once: n_k        broadcast   h, as many
    inference   h(z) + p_k(z), z = f_k(x)

    balanced    h_k := h; CE(h_k(z) + log n_k, y) over the classes that k holds trains backbone and common head
    personal    CE(sg(h_k(z)) + p_k(sg(z)), y) trains the personal head p_k alone
    average     h = sum_k w_k h_k, as LG-FedAvg

Our readings: backbones are private, as their architectures differ (public code shares them too). A class without
samples leaves the softmax, where public code adds log 0. Both terms are minimised in one step at one rate. Before its
first round a client has no personal head and is tested with the common one.
"""

from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from motley.draws import Draws
from motley.federation import Client, Task
from motley.functional.balanced import balanced_cross_entropy
from motley.methods.averaging import Averaging, AveragingOptions, Common, Trained, trained
from motley.methods.common_head import apply_head, initial_head, new_head
from motley.methods.registry import register
from motley.training.local import Step, Terms, train_local
from motley.training.memory import recall_module, recall_state, remember_state

PERSONAL = "personal-head"  # its name in the client's memory, and the purpose of its first draw


@register("fedrod", options=AveragingOptions, needs=("features", "equal-head"))
class FedRoD(Averaging):
    """A generic and a personal head."""

    def start(self, task: Task, draws: Draws) -> Common:
        return Common(initial_head(task, draws))

    def client_round(self, client: Client, received: Common, round: int, draws: Draws) -> Trained:
        """Train backbone and common head on balanced classes, and the personal head on the client's own."""
        client.model.head.load_state_dict(received.weights)
        personal, counts = _personal_head(client, draws), client.shard.counts

        def loss(step: Step) -> Terms:
            assert step.features is not None
            both = step.logits.detach() + personal(step.features.detach())
            balanced = balanced_cross_entropy(step.logits, step.y, counts)
            return {"cross_entropy": cross_entropy(both, step.y), "balanced": balanced}

        train_local(client, loss, draws, round=round, modules=(personal,))
        remember_state(client, PERSONAL, personal.state_dict())
        return trained(client, client.model.head)

    def predict(self, client: Client, view: Common | None, x: Tensor) -> Tensor:
        """Add the scores of both heads."""
        features = client.model.features(x)
        generic = apply_head(client, None if view is None else view.weights, features)
        personal = recall_state(client, PERSONAL)
        return generic + apply_head(client, personal, features) if personal else generic


def _personal_head(client: Client, draws: Draws) -> nn.Linear:
    """Return the client's personal head, of its own address when it first takes part (rules R7, R13)."""
    with draws.scope(PERSONAL, client=client.id):
        head = new_head(client.task).to(client.shard.counts.device)
    recall_module(client, PERSONAL, head)
    return head
