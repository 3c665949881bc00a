"""The federation of a CRAD run after its newest checkpoint, asked what its teachers make of single samples."""

import difflib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import torch
from torch import Tensor

from motley.data.shards import Samples
from motley.data.wording import listed
from motley.engine.next_round import NextRound
from motley.engine.rebuilt import rebuilt
from motley.engine.runs import stored_config
from motley.errors import InvalidInput, InvalidRunFolder, MotleyWarning, NonFiniteTeacher
from motley.federation import Client
from motley.functional.trace import Trace, target_gains, trace_class
from motley.methods.crad import Crad
from motley.methods.crad_audit import audit_claims
from motley.methods.crad_target import TeacherTargets
from motley.methods.crad_wire import unpack_weights
from motley.methods.teachers import Weights, finite_logits
from motley.record.folder import RunFolder
from motley.training.evaluation import teacher_logits
from motley.training.inputs import Normalizer

Part = Literal["test", "validation", "train"]
Case = Literal["success", "failure"]
LOGITS_AT_ONCE = 2_000_000  # as in a round: the filters need some ten numbers of 8 bytes for each
ROUNDING = 1e-6  # a smaller gain is none: float32


@dataclass(frozen=True)
class TracedSample:
    """One sample of one student.

    Attributes:
        round: The round after which the models were saved.
        client: The student.
        part: Of which of its parts the sample is.
        image: Its position there.
        class_name: Name of its true class.
        label: Number of its true class.
        shown: Name of the class of `trace`, as a rule the true one.
        temperature: T, at which the teachers' probabilities are.
        notes: Why the next round would not use this target; nothing if it would.
        trace: What the teachers said of this class, and what came of it.
        classes: The same of every class, in their order.
    """

    round: int
    client: int
    part: Part
    image: int
    class_name: str
    label: int
    shown: str
    temperature: float
    notes: tuple[str, ...]
    trace: Trace
    classes: tuple[Trace, ...]


class Tracer:
    """All clients of a run with what they would learn from each other in the round after a checkpoint.

    Args:
        clients: With the weights and memories of the checkpoint.
        method: The run's CRAD.
        next: The round after the checkpoint.
        path: The run folder, for messages.
    """

    def __init__(self, clients: Sequence[Client], method: Crad, next: NextRound, path: Path) -> None:
        self._clients, self._method, self._next, self._path = clients, method, next, path

    def trace(self, client_id: int, image: int, part: Part = "test", shown: int | None = None) -> TracedSample:
        """Return the trace of one sample.

        Args:
            client_id: The student.
            image: Position of the sample in the part.
            part: Of the student's samples.
            shown: Number of the class to trace; None for the true class.

        Raises:
            InvalidInput: There is no such client, part or sample, or nobody who could teach.
        """
        client = self._client(client_id)
        held = self._held(client, part)
        if not 0 <= image < len(held):
            there = f"0 to {len(held) - 1}" if len(held) else "no samples"
            raise InvalidInput(f"--image is {image}, but the {part} part of client {client_id} has {there}")
        teaching = self._teaching(client)
        if teaching is None:
            raise InvalidInput(self._untaught(client_id))
        classes = self._classes(client, *teaching, Samples(held.x[image : image + 1], held.y[image : image + 1]))
        label, names = int(held.y[image]), client.task.class_names
        shown = label if shown is None else shown
        return TracedSample(
            round=self._next.number - 1,
            client=client_id,
            part=part,
            image=image,
            class_name=names[label],
            label=label,
            shown=names[shown],
            temperature=self._method.options.temperature,
            notes=self._notes(client_id),
            trace=classes[shown],
            classes=classes,
        )

    def class_number(self, word: str) -> int:
        """Return the number of a class that is given by its name, or else by its number.

        Raises:
            InvalidInput: There is no such class.
        """
        names = self._clients[0].task.class_names
        if word in names:
            return names.index(word)
        if word.isdecimal() and int(word) < len(names):
            return int(word)
        near = [] if word.removeprefix("-").isdecimal() else difflib.get_close_matches(word, names, n=1)
        remedy = f"did you mean '{near[0]}'?" if near else f"give a name or a number from 0 to {len(names) - 1}"
        raise InvalidInput(f"--class is '{word}', but {self._path} has the classes {listed(names)}; {remedy}")

    def find(self, case: Case, client_id: int | None = None, part: Part = "test") -> tuple[int, int]:
        """Return client and position of the sample with the largest gain or loss against the mean of all teachers.

        Of equal ones it is the first.

        Args:
            case: `success` for the largest gain of target probability on the true class, `failure` for the loss.
            client_id: Whose samples; None for those of all clients.
            part: In which part.

        Raises:
            InvalidInput: No sample gains (loses), or the arguments are as in `trace`.
        """
        _check_choice("--find", case, get_args(Case))
        sign = 1 if case == "success" else -1
        best, place = ROUNDING, None
        for client in [self._client(client_id)] if client_id is not None else self._clients:
            gains = sign * self._gains(client, self._held(client, part))
            if len(gains) and float(gains.max()) > best:
                best, place = float(gains.max()), (client.id, int(gains.argmax()))
        if place is None:
            if client_id is not None and not self._next.inbox(client_id):
                raise InvalidInput(self._untaught(client_id))
            verb = "gains" if case == "success" else "loses"
            owner = "" if client_id is None else f"client {client_id} of "
            raise InvalidInput(
                f"no {part} sample of {owner}{self._path} {verb} target probability against uniform averaging; "
                "name one with --client K --image I"
            )
        return place

    def picture(self, sample: TracedSample) -> np.ndarray:
        """Return a traced sample as it is stored, (channels, ...)."""
        held: Samples = getattr(self._clients[sample.client].shard, sample.part)
        return np.asarray(held.x[sample.image].cpu().numpy())

    def _client(self, client_id: int) -> Client:
        if not 0 <= client_id < len(self._clients):
            raise InvalidInput(
                f"--client is {client_id}, but {self._path} has the clients 0 to {len(self._clients) - 1}"
            )
        return self._clients[client_id]

    def _held(self, client: Client, part: Part) -> Samples:
        _check_choice("--part", part, get_args(Part))
        held: Samples = getattr(client.shard, part)
        return held

    def _gains(self, client: Client, held: Samples) -> Tensor:
        teaching = self._teaching(client) if len(held) else None
        if teaching is None:
            return torch.zeros(0)
        targets, teachers = teaching
        logits = self._logits(client, teachers, held)
        at_once = max(1, LOGITS_AT_ONCE // (logits.shape[0] * logits.shape[2]))
        found = []
        for said, labels in zip(torch.split(logits, at_once, dim=1), torch.split(held.y, at_once), strict=True):
            judged = targets.judge(said)
            found.append(target_gains(judged.q, judged.made.target, labels))
        return torch.cat(found)

    def _classes(
        self, client: Client, targets: TeacherTargets, teachers: Mapping[int, Weights], sample: Samples
    ) -> tuple[Trace, ...]:
        """Return the trace of one sample on every class."""
        judged = targets.judge(self._logits(client, teachers, sample))
        joined = targets.joined(judged)
        return tuple(
            trace_class(
                judged.q,
                judged.agreed,
                judged.made,
                targets.counts,
                targets.accuracies,
                targets.supported,
                targets.weight,
                teachers=tuple(teachers),
                sample=0,
                label=label,
                joined=joined,
            )
            for label in range(client.num_classes)
        )

    def _notes(self, client_id: int) -> tuple[str, ...]:
        """Return why training in the next round would not use the target of a client."""
        options, number = self._method.options, self._next.number
        reasons = []
        if number <= options.warmup_rounds:
            reasons.append(f"round {number} is in the warm-up (warmup_rounds is {options.warmup_rounds})")
        if not options.loss_weight:
            reasons.append("loss_weight is 0")
        if client_id not in self._next.active:
            reasons.append(f"client {client_id} does not take part in round {number}")
        return tuple(f"{reason}: training would not use this target" for reason in reasons)

    def _untaught(self, client_id: int) -> str:
        return (
            f"client {client_id} of {self._path} has no teachers in round {self._next.number}, and so there is nothing "
            "to trace; choose another with --client"
        )

    def _teaching(self, client: Client) -> tuple[TeacherTargets, Mapping[int, Weights]] | None:
        """Return what makes targets for a student, and the weights of its teachers; None without teachers."""
        sent = self._next.inbox(client.id)
        weights = {peer: unpack_weights(message) for peer, message in sent.items()}
        x = _inputs(client, client.shard.train)
        teachers = {peer: own for peer, own in weights.items() if _is_finite(client, peer, own, x)}
        inbox = {peer: sent[peer] for peer in teachers}
        if not inbox:
            return None
        verdict = audit_claims(client, inbox, teachers) if self._method.options.audit else None
        return TeacherTargets(inbox, self._method.options, client.shard.counts.device, verdict), teachers

    @staticmethod
    def _logits(client: Client, teachers: Mapping[int, Weights], held: Samples) -> Tensor:
        """Return the logits (M, n, C) of the teachers on samples that are not augmented."""
        x = _inputs(client, held)
        size = client.evaluation.batch_size
        said = [teacher_logits(client.task, peer, weights, x, batch_size=size) for peer, weights in teachers.items()]
        return torch.stack(said)


def _inputs(client: Client, held: Samples) -> Tensor:
    """Return samples as models see them, not augmented."""
    return Normalizer.of(client.shard.normalization, held.x)(held.x)


def _is_finite(client: Client, peer: int, weights: Weights, x: Tensor) -> bool:
    """Tell whether a peer answers with numbers on the student's samples; a round leaves it out otherwise."""
    try:
        finite_logits(client, peer, weights, x)
    except NonFiniteTeacher as error:
        warnings.warn(f"{error}; it is left out of the trace", MotleyWarning, stacklevel=2)
        return False
    return True


@contextmanager
def tracing(path: Path) -> Iterator[Tracer]:
    """Rebuild the federation of a run folder as its newest checkpoint has it, with the run's number of threads.

    Raises:
        InvalidRunFolder: It is none, not one of CRAD, has no checkpoint, or its partition is not that of the data now.
        MotleyError: The data or models of the run cannot be had any more.
    """
    folder = RunFolder.open(path)
    config = stored_config(folder)
    method = config.entry.method(config.options)
    if not isinstance(method, Crad):
        raise InvalidRunFolder(f"{path} is a run of {config.method}; only runs of crad can be traced")
    with rebuilt(folder, config, "trace") as (federation, checkpoint):
        yield Tracer(federation.clients, method, NextRound(config, federation, checkpoint), path)


def _check_choice(flag: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise InvalidInput(f"{flag} is '{value}'; it can be {', '.join(known)}")
