"""The progress line of a run, on a terminal or in a log file."""

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO


class Progress:
    """Shows epoch, step, metrics, the time left and images per second.

    On a terminal one line is rewritten, cut to the terminal's width; elsewhere
    (a file, a log) a line is added each minute and after each epoch.
    """

    def __init__(
        self,
        num_epochs: int,
        steps_per_epoch: int,
        batch_size: int,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self._sizes = num_epochs, steps_per_epoch, batch_size
        self._stream, self._clock = stream or sys.stdout, clock
        self._period = 0.5 if self._stream.isatty() else 60.0
        self._start: tuple[float, int] | None = None
        self._shown = 0.0

    def is_due(self, step: int) -> bool:
        """Returns whether it is time to show something after a step.

        The first call starts the clock: the speed leaves out the compiler.
        """
        is_first = self._start is None
        if is_first:
            self._start = self._clock(), step
        return is_first or self._clock() - self._shown >= self._period

    def show(self, step: int, metrics: str, ends_epoch: bool = False) -> None:
        """Shows step and metrics in a line, which stays if it ends an epoch."""
        num_epochs, per_epoch, batch_size = self._sizes
        self._shown = self._clock()
        epoch, inside = divmod(max(step - 1, 0), per_epoch)
        line = f"epoch {epoch + 1}/{num_epochs}"
        line += f"  step {inside + 1}/{per_epoch}" * (not ends_epoch)
        line += f"  {metrics}"
        start, first = self._start or (self._shown, step)
        if step > first:
            seconds = (self._shown - start) / (step - first)
            left = duration((num_epochs * per_epoch - step) * seconds)
            line += f"  {left} left  {batch_size / seconds:,.0f} img/s"
        self.write(line, ends_epoch)

    def write(self, line: str, stays: bool = False) -> None:
        """Writes a line, in whose place a terminal shows the next one."""
        if self._stream.isatty():
            columns = shutil.get_terminal_size().columns - 1
            line = "\r" + line[:columns].ljust(columns) + "\n" * stays
        else:
            line += "\n"
        print(line, end="", file=self._stream, flush=True)


def duration(seconds: float) -> str:
    """Returns seconds in words: 48 s, 3:20 min, 5:02 h, 100:02 h."""
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d} h"
    return f"{minutes}:{seconds:02d} min" if minutes else f"{seconds} s"


def count(number: int, noun: str) -> str:
    """Returns a number of things: 1 epoch, 1,295 images."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
