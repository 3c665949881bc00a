"""For which proxy samples a client of MSFKD answers: by the entropy of its predictions, or by how near they are."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import softmax

from motley.errors import InvalidConfig
from motley.federation import Client, Value
from motley.functional.density_ratio import fit_density_ratio, median_distance
from motley.functional.proxy_targets import above_quantile, entropies, within_quantile
from motley.training.digest import outputs_of, proxy_of
from motley.training.inputs import Normalizer


@dataclass(frozen=True)
class Kulsif:
    """How the density ratio is estimated; see `fit_density_ratio`."""

    penalty: float
    width: float | Literal["median"]


def answered_by(
    client: Client, probabilities: Tensor, share: float | None, kulsif: Kulsif | None
) -> tuple[Tensor, dict[str, Value]]:
    """Return which proxy samples a client answers for, (P,) bool, and what the record says of it.

    Args:
        client: Its competence is measured on its validation samples, without them on its training samples.
        probabilities: What its model says of the proxy, (P, C).
        share: Of its own samples: a proxy sample must be as sure, or near, as these are; None: it answers for all.
        kulsif: Decide by the density ratio of features instead of by the entropy.
    """
    shard = client.shard
    part, own = ("validation", shard.validation) if len(shard.validation) else ("train", shard.train)
    if share is None or not len(own):
        return torch.ones(len(probabilities), dtype=torch.bool), {}
    normalize = Normalizer.of(shard.normalization, own.x)
    if kulsif:
        answered, threshold = _near(client, own.x, share, kulsif, normalize)
    else:
        surprise = entropies(softmax(outputs_of(client, own.x, lambda model, x: model(normalize(x))), dim=1))
        answered, threshold = within_quantile(surprise, entropies(probabilities), share)
    return answered, {"threshold": threshold, "measured_on": part}


def _near(client: Client, own: Tensor, share: float, kulsif: Kulsif, normalize: Normalizer) -> tuple[Tensor, float]:
    """Answer where the density ratio of own to proxy features exceeds its (1 - share) quantile on own samples."""
    if not client.model.has_features:
        raise InvalidConfig("msfkd with selector = kulsif needs models with features; take selector = entropy")
    proxy = outputs_of(client, proxy_of(client).x, lambda model, x: model.features(x))
    known, held = (
        outputs_of(client, x, lambda model, batch: model.features(normalize(batch)))
        for x in (client.shard.train.x, own)
    )
    width = median_distance(proxy) if kulsif.width == "median" else kulsif.width
    ratio = fit_density_ratio(known, proxy, penalty=kulsif.penalty, width=width)
    return above_quantile(ratio(held), ratio(proxy), 1 - share)
