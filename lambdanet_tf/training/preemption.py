"""Signals that ask a run to stop, and the exceptions that end one."""

import signal
from typing import Any


class Stopped(Exception):
    """The run was asked to stop; it can be resumed."""


class NotFinite(Exception):
    """The loss or a weight is NaN or infinite."""


class StopRequest:
    """Notes the signals that ask this process to stop.

    A preempted machine sends SIGTERM; Ctrl-C sends SIGINT. The run then ends
    its step or its batch, saves and exits; a second signal ends the process at
    once.

    Use it as a context manager in the main thread; elsewhere it notes nothing.

    Attributes:
        received: name of the signal, or None.
        at_once: whether it raises `Stopped` wherever the process is; from the
            beginning, until there is something to save.
    """

    def __init__(self):
        self.received: str | None = None
        self.at_once = True
        self._former = {}

    def __enter__(self) -> "StopRequest":
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._former[number] = signal.signal(number, self._note)
            except ValueError:  # Not in the main thread.
                break
        return self

    def __exit__(self, *error: Any) -> None:
        self._restore()

    def listen_again(self) -> None:
        """Takes the signals back from TensorFlow.

        A strategy of several workers notes SIGTERM by itself, in C++.
        """
        for number in self._former:
            signal.signal(number, self._note)

    def check(self) -> None:
        """Raises `Stopped` if a signal has come."""
        if self.received:
            raise Stopped("Stopped by a signal")

    def _note(self, number, frame):
        self.received = signal.Signals(number).name
        self._restore()
        if self.at_once:
            self.check()

    def _restore(self):
        while self._former:
            signal.signal(*self._former.popitem())
