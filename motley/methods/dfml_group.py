"""The models that meet at an aggregator of DFML: trained together on its samples, each a teacher of the others."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from motley.draws import Draws
from motley.errors import NonFiniteLoss
from motley.federation import Client, Value
from motley.functional.balanced import balanced_cross_entropy
from motley.functional.mutual import mutual_divergences, mutual_shares
from motley.training.auxiliary import Auxiliary
from motley.training.local import Step, Terms, train_local
from motley.training.modes import freeze_batch_norm

LABELS, MUTUAL = "cross_entropy", "distillation"


class MutualGroup:
    """An aggregator's model and those it received.

    Args:
        client: The aggregator.
        received: Models of the senders by id; they are trained in place.
        alpha: Share of the mutual term.
    """

    def __init__(self, client: Client, received: Mapping[int, Auxiliary], alpha: float) -> None:
        self._client, self._received, self._alpha = client, received, alpha
        self._models: dict[int, nn.Module] = dict(sorted({client.id: client.model, **received}.items()))
        self._sizes = {one: sum(p.numel() for p in model.parameters()) for one, model in self._models.items()}
        self._lost: set[int] = set()
        self._journal: dict[str, Value] = {}

    @property
    def reason(self) -> str:
        """Return why a model was lost."""
        return str(NonFiniteLoss(LABELS))

    def is_lost(self, owner: int) -> bool:
        """Tell whether a model was not finite, and so is to be left out."""
        return owner in self._lost

    def train(self, draws: Draws, *, round: int, epochs: int) -> None:
        """Train all models for some epochs; one backward pass serves all, as teachers carry no gradient."""
        client = self._client
        training = replace(client.training, local_epochs=epochs, keep_optimizer=False, clip_norm=None)
        own = Draws(draws.address("mutual", round=round, client=client.id))  # not the draws of the start
        try:
            train_local(
                replace(client, training=training, journal=self._journal),
                self._loss,
                own,
                round=round,
                modules=tuple(self._received.values()),
                adjust=self._clip if client.training.clip_norm is not None else None,
            )
        except NonFiniteLoss:  # the last model has left the group
            self._lost.update(self._models)

    def journal(self, owner: int) -> dict[str, Value]:
        """Return what the row of a model's owner says of this turn."""
        told: dict[str, Value] = {"aggregator": self._client.id, "alpha": self._alpha}
        train = self._journal.get("train")
        if not isinstance(train, Mapping):  # the aggregator has no samples
            return told
        every = train["terms"]
        assert isinstance(every, Mapping)
        terms = {name: every[f"{name}/{owner}"] for name in (LABELS, MUTUAL) if f"{name}/{owner}" in every}
        return {"train": {**train, "terms": terms}, **told}

    def _loss(self, step: Step) -> Terms:
        """Return the terms of all models that are finite; the others leave the group for the rest of the turn."""
        logits = {
            one: step.logits if one == self._client.id else self._said(one, step.x)
            for one in self._models
            if one not in self._lost
        }
        self._lose([one for one, z in logits.items() if not bool(torch.isfinite(z.detach()).all())])
        left = [one for one in logits if one not in self._lost]
        terms = self._terms(torch.stack([logits[one] for one in left]), left, step.y)
        totals = torch.stack([torch.stack(list(own.values())).sum() for own in terms.values()])
        self._lose([one for one, fine in zip(terms, torch.isfinite(totals.detach()).tolist(), strict=True) if not fine])
        return {
            f"{name}/{one}": term for one, own in terms.items() if one not in self._lost for name, term in own.items()
        }

    def _terms(self, logits: Tensor, owners: list[int], y: Tensor) -> dict[int, dict[str, Tensor]]:
        """Return L_i of every model, as named terms; logits (K, B, C)."""
        alpha = self._alpha if len(owners) > 1 else 0.0
        counts = self._client.shard.counts
        terms = {
            one: {LABELS: (1 - alpha) * balanced_cross_entropy(z, y, counts)}
            for one, z in zip(owners, logits, strict=True)
        }
        if alpha:
            shares = mutual_shares([self._sizes[one] for one in owners])
            for own, taught in zip(terms.values(), mutual_divergences(logits, shares), strict=True):
                own[MUTUAL] = alpha * taught
        return terms

    def _said(self, owner: int, x: Tensor) -> Tensor:
        model = self._models[owner]
        with freeze_batch_norm(model, when=len(x) == 1):
            scores: Tensor = model(x)
        return scores.float()

    def _lose(self, owners: list[int]) -> None:
        self._lost.update(owners)
        if len(self._lost) == len(self._models):
            raise NonFiniteLoss(LABELS)

    def _clip(self) -> None:
        """Clip every model's gradient for itself."""
        limit = self._client.training.clip_norm
        assert limit is not None
        for one, model in self._models.items():
            if one not in self._lost:
                nn.utils.clip_grad_norm_(model.parameters(), limit)
