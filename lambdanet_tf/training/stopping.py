"""Why a run stops before its end."""

import math
import signal

EXIT_USAGE = 2
EXIT_NOT_FINITE = 3
EXIT_STOPPED = 75  # "Temporary failure, try again" in sysexits.h.


class Stopped(Exception):
    """The run was asked to stop; it can be continued."""


class NotFinite(Exception):
    """Loss or weights are no longer numbers."""


class StopRequest:
    """Notes the signals that ask a process to stop.

    A preempted machine sends SIGTERM; Ctrl-C sends SIGINT. The run then ends
    its step, saves and exits; a second signal ends the process at once.

    Use it as a context manager in the main thread; elsewhere it notes nothing.
    """

    def __init__(self):
        self.received = None
        self._former = {}

    def __enter__(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            try:
                self._former[number] = signal.signal(number, self._note)
            except ValueError:  # Not in the main thread.
                break
        return self

    def __exit__(self, *error):
        self._restore()

    def _note(self, number, frame):
        self.received = signal.Signals(number).name
        self._restore()

    def _restore(self):
        while self._former:
            signal.signal(*self._former.popitem())


def check_finite(loss, step, kept):
    """Raises if a loss is not finite.

    Args:
        loss: float. The loss, or another number that is finite as long as all
            is well.
        step: int. The step it was met at.
        kept: str. Which good weights there are, in words.

    Raises:
        NotFinite: naming the step and the weights.
    """
    if not math.isfinite(loss):
        raise NotFinite(
            f"Loss or weights became {loss} by step {step}. {kept} A lower "
            "learning rate, a longer warm-up or --clip-norm may help."
        )
