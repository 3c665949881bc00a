"""MSFKD-style (our reading of Wang et al. 2023): a client answers for proxy samples that it is competent for alone.

    upload      which proxy samples a client answers for, and its probabilities there, at most P x C numbers
    broadcast   which samples are kept, and the ensemble there          inference   unchanged

    client's selector   H(x) <= 75 % quantile of H on its validation samples (entropy), or r(x) > 25 % quantile of r
                        there, r the density ratio of its own features to the proxy's (kulsif)
    ensemble            e(x) = mean of the probabilities of those who answer
    server's selector   |e - onehot(argmax e)|_1 = 2 (1 - max e) <= ambiguity
    digest              cross-entropy with e over the kept samples, then the private epoch

Our readings: T = 1; the order within a round is FedMD's, digest before private training, prediction at its end, so
that round 1 has no ensemble; a client without validation samples measures its competence on its training samples, and
the record says so. No kept sample: the round is local training, and the record shows `kept` 0.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

import pydantic.dataclasses
import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import softmax

from motley.draws import Draws
from motley.federation import Client, Task
from motley.functional.proxy_targets import selected_mean, unambiguous
from motley.messages import Message, entry
from motley.methods.contracts import ServerMethod, Upload
from motley.methods.msfkd_selector import Kulsif, answered_by
from motley.methods.proxy import against_labels, train_on_labels
from motley.methods.registry import register
from motley.options import STRICT, refuse_unused
from motley.training.digest import digest, outputs_of, proxy_of

ABOUT = "MSFKD-style (our reading): clients answer for proxy samples they are competent for; unclear ones are left out."


@pydantic.dataclasses.dataclass(frozen=True, config=STRICT)
class MsfkdOptions:
    """Options of msfkd."""

    selector: Annotated[
        Literal["entropy", "kulsif", "all"],
        Field(description="what a client answers for: by entropy, by density ratio of features, or everything"),
    ] = "entropy"
    quantile: Annotated[
        float,
        Field(ge=0, le=1, description="share of the own samples that a proxy sample must be as sure, or near, as"),
    ] = 0.75
    ambiguity: Annotated[
        float, Field(ge=0, le=2, description="largest L1 distance of the ensemble to its one-hot argmax; 2: keep all")
    ] = 1.0
    digest_epochs: Annotated[int, Field(ge=0, description="passes over the kept samples in a round")] = 1
    kulsif_penalty: Annotated[float, Field(gt=0, description="lambda of selector = kulsif")] = 0.1
    kulsif_width: Annotated[
        Annotated[float, Field(gt=0)] | Literal["median"],
        Field(description="width of the Gaussian of kulsif; median: the median distance of the proxy's features"),
    ] = "median"

    def __post_init__(self) -> None:
        """Refuse what the selector would not use.

        Raises:
            InvalidConfig: An option of another selector is given.
        """
        unused = {"all": ("quantile", "kulsif_penalty", "kulsif_width"), "entropy": ("kulsif_penalty", "kulsif_width")}
        names = unused.get(self.selector, ())
        refuse_unused("msfkd", self, names, f"msfkd.selector = {self.selector}", "another selector")


@dataclass(frozen=True)
class Answers(Message):
    """What one client says of the samples it answers for."""

    probabilities: Tensor = entry("*", "C", low=0, high=1, about="softmax outputs on the answered samples, in order")
    answered: Tensor = entry("P", dtype=torch.bool, counted=False, about="which samples these are")

    def fault(self) -> str:
        """Say when there are more or fewer answers than samples."""
        return _rows_fault(self.probabilities, self.answered)


@dataclass(frozen=True)
class Ensemble(Message):
    """What those who answered say together, where it is clear."""

    probabilities: Tensor = entry("*", "C", low=0, high=1, about="mean softmax outputs on the kept samples, in order")
    kept: Tensor = entry("P", dtype=torch.bool, counted=False, about="which samples these are")

    def fault(self) -> str:
        """Say when there are more or fewer means than samples."""
        return _rows_fault(self.probabilities, self.kept)


def _rows_fault(probabilities: Tensor, chosen: Tensor) -> str:
    number = int(chosen.sum())
    return "" if len(probabilities) == number else f"{len(probabilities)} rows stand for {number} samples"


@register("msfkd", options=MsfkdOptions, needs=("proxy",), replicated=True, about=ABOUT)
class Msfkd(ServerMethod[Ensemble, Ensemble, Answers]):
    """Selective distillation on common samples."""

    def __init__(self, options: MsfkdOptions) -> None:
        self.options = options

    def start(self, task: Task, draws: Draws) -> Ensemble:
        size = len(task.proxy.x) if task.proxy else 0
        return Ensemble(torch.zeros(0, task.num_classes), torch.zeros(size, dtype=torch.bool))

    def broadcast(self, state: Ensemble, client_id: int) -> Ensemble:
        return state

    def client_round(self, client: Client, received: Ensemble, round: int, draws: Draws) -> Answers:
        """Digest the ensemble, train on the own samples, answer for what the client knows."""
        x = proxy_of(client).x
        kept = x[received.kept.to(x.device)]
        epochs = self.options.digest_epochs
        digest(client, kept, received.probabilities, against_labels, draws, round=round, epochs=epochs)
        train_on_labels(client, draws, round=round)
        probabilities = softmax(outputs_of(client, x), dim=1)
        options = self.options
        kulsif = Kulsif(options.kulsif_penalty, options.kulsif_width) if options.selector == "kulsif" else None
        share = None if options.selector == "all" else options.quantile
        answered, how = answered_by(client, probabilities, share, kulsif)
        client.journal["proxy"] = {"kept": len(kept), "answered": int(answered.sum()), **how}
        return Answers(probabilities[answered], answered)

    def server_round(self, state: Ensemble, uploads: Iterable[Upload[Answers]], round: int, draws: Draws) -> Ensemble:
        """Average the answers to every sample and keep what is clear."""
        answers = [upload.message for upload in uploads]
        if not answers:
            return state
        said = torch.zeros(len(answers), *state.kept.shape, answers[0].probabilities.shape[1])
        for row, one in zip(said, answers, strict=True):
            row[one.answered] = one.probabilities
        mean, _ = selected_mean(said, torch.stack([one.answered for one in answers]))
        kept = unambiguous(mean, self.options.ambiguity)
        return Ensemble(mean[kept].float(), kept)
