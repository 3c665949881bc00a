"""FML: each client's model and a shared auxiliary model teach each other; only the auxiliary model is averaged.

    upload      theta_a,k, the state of the auxiliary model; once: n_k        broadcast   theta_a, as much
    inference   the client's own model, alone

    step        theta_a,k := theta_a, then
                L_loc = alpha CE(o, y) + (1 - alpha) T^2 KL(sg(o^a) || o)
                L_aux = beta CE(o^a, y) + (1 - beta) T^2 KL(sg(o) || o^a)
    average     theta_a = sum_k w_k theta_a,k, w_k = 1 / M, or n_k / sum of n over the clients of the round

Our readings: both teachers are detached and KL is a mean over samples, as in the authors' code; public library code
lets each KL drag its teacher and divides it by C as well (the latter is `kl = element-mean`). T is 1, and other values
multiply the divergence by T^2. Buffers of batch norm are averaged with the weights (rule R6).
"""

from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass

from motley.draws import Draws
from motley.federation import Client, Task
from motley.methods.auxiliary import KL, Alpha, Architecture, Beta, initial_auxiliary, learn_mutually
from motley.methods.averaging import Averaging, AveragingOptions, Common, Trained, Weighting, trained
from motley.methods.registry import register
from motley.options import STRICT
from motley.training.auxiliary import received_auxiliary


@dataclass(frozen=True, config=STRICT)
class FMLOptions(AveragingOptions):
    """Options of fml."""

    weighting: Annotated[
        Weighting, Field(description="uniform: clients count all alike; samples: by their training samples")
    ] = "uniform"
    auxiliary: Architecture = "cnn"
    alpha: Alpha = 0.5
    beta: Beta = 0.5
    temperature: Annotated[float, Field(gt=0, description="T, of both divergences")] = 1.0
    kl: KL = "batchmean"


@register("fml", options=FMLOptions)
class FML(Averaging):
    """Mutual learning with a shared auxiliary model."""

    options: FMLOptions

    def start(self, task: Task, draws: Draws) -> Common:
        return Common(initial_auxiliary(task, self.options.auxiliary))

    def client_round(self, client: Client, received: Common, round: int, draws: Draws) -> Trained:
        """Train both models on labels and on each other."""
        options = self.options
        auxiliary = received_auxiliary(client, options.auxiliary, received.weights)
        learn_mutually(client, auxiliary, options, draws, round=round, temperature=options.temperature)
        return trained(client, auxiliary)
