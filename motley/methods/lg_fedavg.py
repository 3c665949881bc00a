"""LG-FedAvg: backbones stay with their clients, the common head is averaged.

    upload      h_k, a head of C d + C numbers; once: n_k        broadcast   h, as many
    inference   the client's backbone with the server's head

    step        h_k := h, then L_k = CE(h_k(f_k(x)), y) trains backbone and head together
    average     W = sum_k w_k W_k, b = sum_k w_k b_k, w_k = n_k / sum of n over the clients of the round

Our readings: the head starts from the server's own draw, equal for all, not from a trained model or from client 0. Rows
of classes that a client lacks are averaged with full weight; that is the method. n_k travels with every upload, so that
the server need not remember it, and is counted nowhere. A round without any upload leaves the head as it was.
"""

from torch import Tensor

from motley.draws import Draws
from motley.federation import Client, Task
from motley.methods.averaging import Averaging, AveragingOptions, Common, Trained, plain_loss, trained
from motley.methods.common_head import apply_head, initial_head
from motley.methods.registry import register
from motley.training.local import train_local


@register("lg-fedavg", options=AveragingOptions, needs=("features", "equal-head"))
class LGFedAvg(Averaging):
    """A common head over private backbones."""

    def start(self, task: Task, draws: Draws) -> Common:
        return Common(initial_head(task, draws))

    def client_round(self, client: Client, received: Common, round: int, draws: Draws) -> Trained:
        """Install the common head and train the whole model."""
        client.model.head.load_state_dict(received.weights)
        train_local(client, plain_loss, draws, round=round)
        return trained(client, client.model.head)

    def predict(self, client: Client, view: Common | None, x: Tensor) -> Tensor:
        """Classify with the common head as it is now."""
        return apply_head(client, None if view is None else view.weights, client.model.features(x))
