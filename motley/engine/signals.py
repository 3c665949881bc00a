"""Ctrl-C and termination: the first asks the run to stop at once, the second ends the process."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from motley.errors import Interrupted

STATUS = {signal.SIGINT: 130, signal.SIGTERM: 143}


class StopSignal(KeyboardInterrupt):
    """SIGINT or SIGTERM in the middle of something; as a KeyboardInterrupt, no `except Exception` swallows it."""

    def __init__(self, number: int) -> None:
        super().__init__("the run was interrupted")
        self.exit_status = STATUS[signal.Signals(number)]


class StopSignals:
    """Turns SIGINT and SIGTERM into `StopSignal`, except while something is being written.

    The exception is raised in the middle of a computation, so that even a long round stops quickly; what belongs to the
    unfinished round is undone by whoever catches it.
    """

    def __init__(self) -> None:
        self._received: int | None = None
        self._busy = False

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Listen for the time of a block; outside of the main thread nothing is changed.

        Raises:
            Interrupted: A signal came, and nobody in the block caught it.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._handle) for number in STATUS}
        try:
            yield
        except StopSignal as stop:
            raise Interrupted("interrupted before the first round", stop.exit_status) from None
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold a signal back until a block that writes is through."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False
        if self._received is not None:
            self._raise(self._received)

    @contextmanager
    def closing(self) -> Iterator[None]:
        """Write what is left after an interrupt; another signal then ends the process and damages nothing."""
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    def _handle(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self._received is not None:
            os._exit(STATUS[signal.Signals(number)])
        self._received = number
        if not self._busy:
            self._raise(number)

    def _raise(self, number: int) -> None:
        raise StopSignal(number)
