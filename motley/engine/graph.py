"""Who learns from whom: the graph of peers among those who take part in a round."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

from motley.draws import Draws
from motley.errors import InvalidConfig


@dataclass(frozen=True)
class Graph:
    """A rule that gives every active peer its teachers.

    Attributes:
        kind: complete: all others; ring: both neighbours in ascending id; random: some others, drawn anew each round.
        degree: K, how many a peer draws in a random graph; 0 otherwise.
    """

    kind: Literal["complete", "ring", "random"]
    degree: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the option `run.graph`.

        Raises:
            InvalidConfig: It is no graph.
        """
        word, colon, number = text.partition(":")
        if word in ("complete", "ring") and not colon:
            return cls("complete" if word == "complete" else "ring")
        if word == "random" and number.isascii() and number.isdigit() and int(number):
            return cls("random", int(number))
        raise InvalidConfig(
            f"run.graph is '{text}'; it can be complete, ring or random:K with a whole K >= 1, such as random:9"
        )

    def teachers(self, active: Sequence[int], round: int, draws: Draws) -> dict[int, list[int]]:
        """Return whose snapshots each active peer receives, in ascending order; for random:K in O(K) a peer.

        Args:
            active: Ids of those who take part, ascending.
            round: The round, from 1.
            draws: The run's generators; a peer's draw has the address ("graph", round, peer).
        """
        return {peer: self._teachers_of(peer, active, round, draws) for peer in active}

    def _teachers_of(self, peer: int, active: Sequence[int], round: int, draws: Draws) -> list[int]:
        here, others = bisect_left(active, peer), len(active) - 1
        if self.kind == "ring":
            return sorted({active[here - 1], active[(here + 1) % len(active)]} - {peer})
        if self.kind == "complete" or self.degree >= others:
            return [other for other in active if other != peer]
        places = draws.numpy("graph", round=round, client=peer).choice(others, self.degree, replace=False)
        return [active[place + (place >= here)] for place in sorted(places.tolist())]
