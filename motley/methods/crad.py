"""CRAD: peers exchange models and 2C statistics; per class, teachers that disagree are dropped and the rest weighted.

    between peers   theta_j, the weights of a model, and n_j, a_j: validation count and accuracy of every class
    inference       unchanged

    Eqs. 1-2   q_j = softmax(z_j / T), teachers in evaluation mode on the student's own inputs
    support    teacher j counts for class c if n_j^c >= min_support
    Eqs. 4-5   kept^c: teachers whose |q_j^c - mean| is at most the median of these deviations
    Eqs. 6-7   w = 1 / (a~ (1 - a~) / (n + 4) + eps), a~ = (a n + 2) / (n + 4)
    Eq. 8      qbar^c = sum over kept of w q / sum of w, then normalised over the classes
    Eq. 9      L = (1 - lambda) CE(z, y) + lambda T^2 KL(qbar || softmax(z / T))

Our readings: T = 3; a class without any supported teacher takes the mean of all teachers (`unsupported`), since 0 would
push down the classes that the student may be alone in holding; without teachers the loss is CE alone. Noised counts
(`count_epsilon`) are drawn once a run and serve filter and weight; accuracies are then rounded to 1/32, since
correct / n would betray n, which is no guarantee. `crad_options.py` lists every switch, `crad_target.py` holds what
they change between the teachers' logits and the target, `crad_audit.py` the audit, `crad_wire.py` how weights travel,
`crad_guidance.py` the term of FedTopo that `guidance_weight` adds.
"""

from collections.abc import Mapping

import torch

from motley.draws import Draws
from motley.errors import InvalidConfig
from motley.federation import Client, Task, Value
from motley.functional.count_noise import coarse_accuracies, laplace_counts
from motley.methods.contracts import PeerMethod
from motley.methods.crad_audit import audit_claims
from motley.methods.crad_guidance import guided, measure_relations, own_part, update_topology
from motley.methods.crad_options import CradOptions
from motley.methods.crad_target import TeacherTargets
from motley.methods.crad_wire import Snapshot, check_claims, pack_weights, unpack_weights
from motley.methods.distillation import distil, no_teachers
from motley.methods.registry import register
from motley.methods.teachers import copy_weights, learn_from_finite
from motley.training.evaluation import check_snapshot
from motley.training.statistics import validation_cross_entropies, validation_score

UNKNOWN_ACCURACY = 0.5  # of a class without validation samples: it cancels in Eq. 6, and says nothing with noisy counts
COARSE = 32  # steps of the accuracies that are sent with noised counts


@register("crad", options=CradOptions, needs=("validation",))
class Crad(PeerMethod[Snapshot]):
    """Class-reliability-aware distillation among peers."""

    def __init__(self, options: CradOptions) -> None:
        self.options = options

    def start(self, client: Client, draws: Draws) -> None:
        """Draw the noise of the counts, once: what is drawn anew each round would average out.

        Raises:
            InvalidConfig: Guidance is asked for, and the client's model gives no features.
        """
        if self.options.guidance_weight and not client.model.has_features:
            raise InvalidConfig(
                f"crad.guidance_weight needs features, but of the model of client {client.id} only the scores are "
                "known; name its head (SplitModel.from_module(..., head=...)), or set guidance_weight to 0"
            )
        if self.options.count_epsilon:
            generator = draws.generator("count-noise", client=client.id)
            noisy = laplace_counts(client.shard.validation_counts.cpu(), self.options.count_epsilon, generator)
            client.memory["noisy_counts"] = noisy.float()

    def snapshot(self, client: Client, round: int) -> Snapshot:
        """Copy the model and measure it on the validation part: the state after round - 1 (Algorithm 1)."""
        options = self.options
        score = validation_score(client)
        counts, correct = torch.tensor(score.count), torch.tensor(score.correct)
        accuracies = torch.where(counts > 0, correct / counts.clamp(min=1), UNKNOWN_ACCURACY)
        sent = counts.to(torch.int32)
        if options.count_epsilon:
            sent, accuracies = client.memory["noisy_counts"].cpu().clone(), coarse_accuracies(accuracies, COARSE)
        weights, scales = pack_weights(copy_weights(client), options.snapshot)
        third = validation_cross_entropies(client).float().cpu() if options.weighting == "cross-entropy" else None
        part = own_part(client) if options.guidance_weight else {}
        return Snapshot(weights, sent, accuracies.float(), torch.zeros(0) if third is None else third, scales, part)

    def peer_round(self, client: Client, inbox: Mapping[int, Snapshot], round: int, draws: Draws) -> None:
        """Aggregate the teachers class by class and distil (Eqs. 1-9), under guidance if it is asked for."""
        learn_from_finite(client, inbox, lambda held: self._learn(client, held, round, draws))
        if self.options.guidance_weight:
            measure_relations(client)
        if self.options.count_epsilon:
            client.journal["privacy"] = _privacy(self.options.count_epsilon)

    def check(self, message: Snapshot, peer: int, task: Task) -> None:
        """Refuse weights of another architecture, and claims that are not those of these options."""
        check_claims(message, noisy=self.options.count_epsilon is not None, weighting=self.options.weighting)
        check_snapshot(task, peer, unpack_weights(message))

    def _learn(self, client: Client, inbox: Mapping[int, Snapshot], round: int, draws: Draws) -> None:
        options, added = self.options, None
        warm = round <= options.warmup_rounds
        if options.guidance_weight:
            chosen = update_topology(client, {peer: message.topology for peer, message in inbox.items()})
            added = None if warm else guided(chosen, options.guidance_weight)
        if warm:
            inbox = {}
        teachers = {peer: unpack_weights(message) for peer, message in inbox.items()}
        verdict = audit_claims(client, inbox, teachers) if inbox and options.audit else None
        targets = TeacherTargets(inbox, options, client.shard.counts.device, verdict) if inbox else None
        distil(
            client,
            teachers,
            targets,
            draws,
            round=round,
            temperature=options.temperature,
            loss_weight=options.loss_weight,
            added=added,
        )
        client.journal["teachers"] = targets.journal.summary() if targets else no_teachers(warm)
        if verdict:
            client.journal["audit"] = (verdict.verified.int() - verdict.refuted.int()).tolist()


def _privacy(epsilon: float) -> dict[str, Value]:
    """Return what a row says of the noise; later rounds send the same counts again, and spend nothing more."""
    return {
        "counts": "Laplace noise of scale 1 / epsilon, drawn once a run, clipped at 0",
        "epsilon_spent": epsilon,
        "adjacency": "one validation sample of the peer more or less",
        "l1_sensitivity": 1,
        "accuracies": f"not covered, rounded to 1/{COARSE}",
        "weights": "not covered",
    }
