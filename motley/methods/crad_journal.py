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
        supported: Which of them count for which class, (M, C) bool.
    """

    peers: tuple[int, ...]
    counts: Tensor
    supported: Tensor
    samples: int = 0
    kept: Tensor = field(default_factory=lambda: torch.zeros(()))
    share: Tensor = field(default_factory=lambda: torch.zeros(()))
    mass: Tensor = field(default_factory=lambda: torch.zeros(2))

    def add(self, kept: Tensor, weight: Tensor, mass: Tensor) -> None:
        """Add a chunk: `kept` (M, B, C) bool, `weight` (M, C), `mass` (B,) of the target before normalisation."""
        used = kept * weight[:, None, :].to(torch.float32)
        self.samples += kept.shape[1]
        self.kept = self.kept + kept.sum(dim=1)
        self.share = self.share + (used / used.sum(dim=0).clamp(min=1e-12)).sum(dim=1)
        self.mass = self.mass + torch.stack([mass.sum(), mass.square().sum()]).cpu()

    def summary(self) -> dict[str, Value]:
        """Return plain numbers; of each teacher and class the mean over the round's samples.

        `kept` is the share of samples for which the agreement filter kept a teacher, None where it has no support;
        `weight` is its share of the target. `largest_weight` is the largest single share of the round (case G7).
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
            "largest_weight": share.max().item(),
            "classes_without_teacher": int((~self.supported.any(dim=0)).sum()),
            "mass_mean": mean,
            "mass_sd": spread,
        }
