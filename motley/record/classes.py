"""How well single classes are recognised at the end of a run, over the samples of all clients."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from motley.record.load import RunRecord

Floats = NDArray[np.float64]
LOCAL, GLOBAL = "test_local", "test_global"


def last_scores(run: RunRecord) -> dict[int, dict[str, Any]]:
    """Return the scores of every client in the last evaluated round."""
    rows = [row for row in run.rows if row["kind"] == "client" and row["scores"]]
    last = max((row["round"] for row in rows), default=None)
    return {row["client"]: row["scores"] for row in rows if row["round"] == last}


def right_shares(correct: ArrayLike, count: ArrayLike) -> Floats:
    """Return right answers / samples of every class (C,), NaN for a class without samples."""
    samples = np.asarray(count)
    return np.where(samples > 0, np.asarray(correct) / np.maximum(samples, 1), np.nan)


def class_shares(run: RunRecord, part: str = LOCAL) -> Floats | None:
    """Return right answers / samples of every class (C,) over all clients, NaN for a class without samples."""
    held = [scores[part] for scores in last_scores(run).values() if part in scores]
    if not held:
        return None
    correct = np.sum([score["correct"] for score in held], axis=0)
    count = np.sum([score["count"] for score in held], axis=0)
    return right_shares(correct, count)


def training_samples(run: RunRecord) -> Floats | None:
    """Return how many training samples all clients together have of every class (C,), or None if not told."""
    counts = run.summary.get("counts")
    return np.sum(counts, axis=0, dtype=np.float64) if counts else None


def rarest_class(run: RunRecord) -> int | None:
    """Return the class with the fewest training samples, the first of several; one without any sample is none."""
    shares, samples = class_shares(run), training_samples(run)
    if shares is None or samples is None:
        return None
    known = np.flatnonzero(np.isfinite(shares) & (samples > 0))
    return int(known[np.argmin(samples[known])]) if len(known) else None
