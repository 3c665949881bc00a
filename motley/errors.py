"""Every error that motley raises on purpose, as one tree of kinds.

The message of an error is one sentence that names the thing, the place and the remedy; the command line prints it
without a traceback and ends with the error's `exit_status`.
"""

from typing import ClassVar


class MotleyError(Exception):
    """Root of the tree; never raised itself."""

    exit_status: ClassVar[int] = 1


class InvalidInput(MotleyError):
    """An argument is outside of what a function or an option accepts."""

    exit_status = 2


class InvalidConfig(MotleyError):
    """A configuration file or a flag names something unknown or gives a value of the wrong kind."""

    exit_status = 2


class InvalidData(MotleyError):
    """A data source cannot be read as it is."""

    exit_status = 2


class InvalidPartition(MotleyError):
    """The samples cannot be given to the clients as asked."""

    exit_status = 2


class InvalidModel(MotleyError):
    """A model does not keep the contract, or does not fit the input or the method."""

    exit_status = 2


class InvalidRunFolder(MotleyError):
    """A run folder exists already, is missing, or is damaged beyond what can be resumed."""

    exit_status = 2


class InvalidMessage(MotleyError):
    """What a participant sent breaks the schema of its message."""


class RunFailed(MotleyError):
    """A run broke through no mistake of the user; finished rounds are kept and can be resumed."""


class RunDiverged(RunFailed):
    """A run ended because clients had to be left out, as a rule with numbers that were not finite; others may go on."""


class Interrupted(MotleyError):
    """The user or the system asked the run to stop; `exit_status` tells by which signal."""

    def __init__(self, message: str, exit_status: int) -> None:
        super().__init__(message)
        self.exit_status = exit_status  # type: ignore[misc]


class MotleyWarning(UserWarning):
    """Something the user should know while the run goes on; it is shown once and stored with the run."""


class NonFiniteTeacher(MotleyError):
    """The logits of a peer's model on a student's samples are infinite or not a number, whatever its weights are."""

    def __init__(self, peer: int) -> None:
        super().__init__(f"the logits of peer {peer} are not finite")
        self.peer = peer


class NonFiniteLoss(MotleyError):
    """A term of a client's loss became infinite or not a number; its upload of the round is left out."""

    def __init__(self, term: str) -> None:
        super().__init__(f"the loss term '{term}' is not finite")
        self.term = term
