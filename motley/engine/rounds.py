"""The only loop over rounds."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from motley.draws import Draws
from motley.engine.executor import Executor
from motley.engine.metrics import round_metrics
from motley.engine.participation import draw_participants
from motley.engine.played import Exchange, Played, Traffic
from motley.engine.signals import StopSignals
from motley.errors import RunDiverged
from motley.record.checkpoints import Checkpoint
from motley.record.folder import RunFolder
from motley.record.rows import ClientRow, RoundRow
from motley.training.evaluation import Score

FAILURES_IN_A_ROW = 3

Progress = Callable[[RoundRow], None]


@dataclass
class Rounds:
    """One run, from any round on.

    Attributes:
        exchange, executor, draws: What plays the rounds.
        num_clients: N.
        per_round: How many take part in a round.
        total: The last round.
        eval_every, checkpoint_every: Intervals in rounds; 0 checkpoints means none.
        folder: Where rows and checkpoints go.
        signals: Who tells of Ctrl-C.
        progress: Called after every round.
        bad: Ids of faulty peers, without whom the accuracies are recorded, too.
        round: The last finished round; -1 before the evaluation that precedes round 1.
        failures: Rounds in a row in which a client had to be left out, by client.
    """

    exchange: Exchange
    executor: Executor
    draws: Draws
    num_clients: int
    per_round: int
    total: int
    eval_every: int
    checkpoint_every: int
    folder: RunFolder
    signals: StopSignals
    progress: Progress
    bad: tuple[int, ...] = ()
    round: int = -1
    failures: dict[int, int] = field(default_factory=dict)

    def play(self) -> None:
        """Play all rounds that are left, record them, and leave a checkpoint at the end.

        Raises:
            RunFailed: A client failed.
            RunDiverged: A client had to be left out three rounds in a row, or nobody was left.
        """
        if self.round < 0:
            self._finish(Played([]), 0, {"train": 0.0})
        while self.round < self.total:
            number = self.round + 1
            began = time.perf_counter()
            participants = draw_participants(self.per_round, self.num_clients, self.draws, number)
            played = self.exchange.play(number, participants, self.draws)
            self._finish(played, number, {"train": time.perf_counter() - began})
            self._watch(played, number)

    def checkpoint(self) -> Checkpoint:
        """Return the state after the last finished round."""
        notes = {"failures": {str(client): count for client, count in self.failures.items()}}
        return Checkpoint(self.round, self.executor.tensors() | self.exchange.tensors(), notes)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue after the round of a checkpoint."""
        self.executor.restore(checkpoint.tensors)
        self.exchange.restore(checkpoint.tensors)
        self.round = checkpoint.round
        self.failures = {int(client): count for client, count in checkpoint.notes["failures"].items()}

    def _finish(self, played: Played, number: int, seconds: dict[str, float]) -> None:
        """Evaluate, write the rows of the round, and a checkpoint if one is due."""
        began = time.perf_counter()
        due = number % self.eval_every == 0 or number == self.total
        scores = self.executor.scores(self.exchange.views()) if due else {}
        seconds["evaluate"] = time.perf_counter() - began
        row = RoundRow(
            round=number,
            participants=played.participants,
            missing={str(client): reason for client, reason in played.missing.items()},
            metrics=round_metrics(scores, self.bad) if due else {},
            seconds=seconds,
        )
        with self.signals.writing():
            self.folder.append([*_client_rows(played, scores, number), row])
            for client in played.participants:
                self.failures[client] = self.failures.get(client, 0) + 1 if client in played.failed else 0
            self.executor.finish_round()
            self.exchange.finish_round()
            self.round = number
            if self.checkpoint_every and number and (number % self.checkpoint_every == 0 or number == self.total):
                self.folder.save(self.checkpoint())
        self.progress(row)

    def _watch(self, played: Played, number: int) -> None:
        """End the run if a client is left out for the third round in a row, or if nobody is left."""
        for client in played.participants:
            if self.failures[client] >= FAILURES_IN_A_ROW:
                raise RunDiverged(
                    f"client {client} was left out of {FAILURES_IN_A_ROW} rounds in a row, last of round {number}: "
                    f"{played.missing[client]}; a smaller learning rate (--lr) or --clip-norm 5 may help"
                )
        if played.failed and len(played.failed) == len(played.participants):
            client = next(client for client in played.missing if client in played.failed)
            raise RunDiverged(f"no client finished round {number}; client {client}: {played.missing[client]}")


def _client_rows(played: Played, scores: dict[int, dict[str, Score]], number: int) -> list[ClientRow]:
    active = set(played.participants)
    return [
        ClientRow(
            round=number,
            client=client,
            active=client in active,
            missing=played.missing.get(client),
            train=dict(played.journals.get(client, {})).pop("train", None),  # type: ignore[arg-type]
            traffic=asdict(played.traffic.get(client, Traffic())) if number else {},
            seconds=played.seconds.get(client),
            scores={name: asdict(score) for name, score in scores.get(client, {}).items()},
            method={name: value for name, value in played.journals.get(client, {}).items() if name != "train"},
        )
        for client in sorted(active | set(scores) | set(played.traffic))
    ]
