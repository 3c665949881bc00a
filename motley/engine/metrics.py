"""From the scores of single clients to the figures of a round."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from motley.functional.statistics import accuracy_summary
from motley.training.evaluation import Score

NAMES = {"test_local": "local_accuracy", "validation": "validation_accuracy", "test_global": "global_accuracy"}


def round_metrics(scores: Mapping[int, Mapping[str, Score]], bad: Collection[int] = ()) -> dict[str, Any]:
    """Return the accuracies of a round over all evaluated clients, as fractions.

    For each set: the mean over clients that have data (the headline), the same over samples (`_pooled`), the deviation
    over clients with divisor n (`_sd_clients`), the worst client (`_worst`) and how many clients have no data. Further
    predictors of a method have figures of their own, `local_accuracy:NAME` and so on. With faulty peers `bad`, the
    same figures over all others are there as `local_accuracy:honest` and so on.
    """
    metrics = _figures(scores)
    if bad:
        honest = {client: one for client, one in scores.items() if client not in bad}
        plain = {client: {name: one[name] for name in NAMES if name in one} for client, one in honest.items()}
        for name, value in _figures(plain).items():
            label = next(label for label in NAMES.values() if name.startswith(label))
            metrics[f"{label}:honest{name.removeprefix(label)}"] = value
    return metrics


def _figures(scores: Mapping[int, Mapping[str, Score]]) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    others = sorted({other for one in scores.values() for other in one if ":" in other})
    labels = {other: f"{NAMES[other.partition(':')[0]]}:{other.partition(':')[2]}" for other in others}
    for name, label in {**NAMES, **labels}.items():
        held = [one[name] for one in scores.values() if name in one]
        if not held:
            continue
        correct, count = [sum(score.correct) for score in held], [sum(score.count) for score in held]
        summary = accuracy_summary(correct, count)
        metrics[label] = summary.mean
        metrics[f"{label}_pooled"] = summary.pooled
        metrics[f"{label}_sd_clients"] = summary.deviation
        metrics[f"{label}_worst"] = min(_accuracies(held), default=None)
        metrics[f"{label}_clients_without_data"] = len(scores) - len(held)
    return metrics


def _accuracies(scores: Iterable[Score]) -> list[float]:
    return [score.accuracy for score in scores if score.accuracy is not None]
