"""What CRAD records of a student's round: how its teachers were filtered and weighted."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from motley.federation import Value


@dataclass
class TeacherJournal:
    """Running sums over the samples of a round.

    Attributes:
        peers: Ids of the M teachers.
        counts: Their validation counts, (M, C).
        accuracies: Their validation accuracies, (M, C).
        supported: Which of them count for which class, (M, C) bool.
    """

    peers: tuple[int, ...]
    counts: Tensor
    accuracies: Tensor
    supported: Tensor
    samples: int = 0
    kept: Tensor = field(default_factory=lambda: torch.zeros(()))
    share: Tensor = field(default_factory=lambda: torch.zeros(()))
    mass: Tensor = field(default_factory=lambda: torch.zeros(2))
    largest: float = 0.0

    def add(self, kept: Tensor, weight: Tensor, mass: Tensor, joined: Tensor | None = None) -> None:
        """Add a chunk.

        Args:
            kept: Whom the agreement filter kept, (M, B, C) bool.
            weight: Weights before they are normalised, (M, C).
            mass: Of the target before it is normalised, (B,).
            joined: Shares of outliers that an audit let join, (M, B, C), of what those and the kept ones have together.
        """
        used = kept * weight[:, None, :].to(torch.float32)
        share = used / used.sum(dim=0).clamp(min=1e-12)
        if joined is not None:
            share = share * (1 - joined.sum(dim=0)) + joined
        self.samples += kept.shape[1]
        self.kept = self.kept + kept.sum(dim=1)
        self.share = self.share + share.sum(dim=1)
        self.largest = max(self.largest, share.max().item())
        self.mass = self.mass + torch.stack([mass.sum(), mass.square().sum()]).cpu()

    def summary(self) -> dict[str, Value]:
        """Return plain numbers; of each teacher and class the mean over the round's samples.

        `kept` is the share of samples for which the agreement filter kept a teacher, None where it has no support;
        `weight` is its share of the target. Of case G7: `largest_weight`, the largest share of one teacher in any class
        of any sample, and `below_chance`, the share of teachers that claim to be right less often than one time in C.
        """
        if self.samples == 0:
            return {"peers": list(self.peers)}
        kept, share = self.kept / self.samples, self.share / self.samples
        mean = self.mass[0].item() / self.samples
        spread = max(0.0, self.mass[1].item() / self.samples - mean**2) ** 0.5
        backed = self.supported.tolist()
        rows = [
            [round(value, 4) if has else None for value, has in zip(row, flags, strict=True)]
            for row, flags in zip(kept.tolist(), backed, strict=True)
        ]
        return {
            "peers": list(self.peers),
            "support": [[round(value, 4) for value in row] for row in self.counts.tolist()],
            "kept": rows,
            "weight": [[round(value, 4) for value in row] for row in share.tolist()],
            "largest_weight": self.largest,
            "below_chance": self._below_chance(),
            "classes_without_teacher": int((~self.supported.any(dim=0)).sum()),
            "mass_mean": mean,
            "mass_sd": spread,
        }

    def _below_chance(self) -> float:
        counts = self.counts.double()
        right, all_samples = (counts * self.accuracies).sum(dim=1), counts.sum(dim=1)
        return ((right * counts.shape[1] < all_samples).sum() / len(counts)).item()
