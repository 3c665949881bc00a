"""FedAvg: all clients train one model, which is averaged whole; the reference for clients of one architecture.

    upload      theta_k, the state of a model; once: n_k        broadcast   theta, as much
    inference   the averaged model

    step        theta_k := theta, then L_k = CE(o, y)
    average     theta = sum_k w_k theta_k, w_k = n_k / sum of n over the clients of the round

Our readings: batch-norm statistics are averaged like weights and counters take the maximum (rule R6); public code that
averages parameters alone leaves the statistics at 0 and 1. With `eval.state = local` a client is tested with the model
that it trained itself. Evaluation never touches the client's own model, so that a later round is the same without it.
"""

from torch import Tensor

from motley.draws import Draws
from motley.errors import InvalidModel
from motley.federation import Client, Task
from motley.methods.averaging import Averaging, AveragingOptions, Common, Trained, copy_state, plain_loss, trained
from motley.methods.registry import register
from motley.training.evaluation import score_snapshot
from motley.training.local import train_local


@register("fedavg", options=AveragingOptions, needs=("one-architecture",))
class FedAvg(Averaging):
    """One model for all."""

    def start(self, task: Task, draws: Draws) -> Common:
        return Common(_first_weights(task))

    def client_round(self, client: Client, received: Common, round: int, draws: Draws) -> Trained:
        """Install the common model and train it."""
        client.model.load_state_dict(received.weights)
        train_local(client, plain_loss, draws, round=round)
        return trained(client, client.model)

    def predict(self, client: Client, view: Common | None, x: Tensor) -> Tensor:
        """Score with the averaged model, whatever the client itself holds."""
        if view is None:
            return super().predict(client, view, x)
        held = {name: tensor.to(x.device) for name, tensor in view.weights.items()}
        return score_snapshot(client.task.template(client.id), held, x)


def _first_weights(task: Task) -> dict[str, Tensor]:
    """Return the server's initial weights of the clients' architecture (rule R7).

    A factory makes models for clients only; then the run starts from the initial model of client 0.
    """
    own = task.template(0)
    try:
        return copy_state(task.auxiliary(task.architecture(0), own.feature_width))
    except InvalidModel:
        return copy_state(own)
