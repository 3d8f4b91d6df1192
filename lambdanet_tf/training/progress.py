"""The progress line of a run, on a terminal or in a log file."""

import shutil
import sys
import time
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import TextIO

_SECONDS_ON_TERMINAL = 0.5
_SECONDS_IN_LOG = 60.0
_MANY_DAYS = 4


class Progress:
    """Shows epoch, step, metrics, the time left and images per second.

    On a terminal one line is rewritten, cut to the terminal's width; elsewhere
    (a file, a log) a line is added each minute and after each epoch.

    Args:
        num_epochs: of the run.
        steps_per_epoch: of the run.
        batch_size: images of a step.
        stream: where to write; None for standard output.
        clock: returns seconds.
    """

    def __init__(
        self,
        num_epochs: int,
        steps_per_epoch: int,
        batch_size: int,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ):
        self._num_epochs = num_epochs
        self._steps_per_epoch = steps_per_epoch
        self._batch_size = batch_size
        self._stream = stream or sys.stdout
        self._clock = clock
        self._is_terminal = self._stream.isatty()
        self._start: float | None = None
        self._first_step = 0
        self._shown = 0.0
        self._length = 0

    def is_due(self, step: int) -> bool:
        """Returns whether it is time to show something.

        The first call, after the first step, starts the clock, so that the
        speed is not that of the compiler.

        Args:
            step: how many steps are done.
        """
        now = self._clock()
        if self._start is None:
            self._start = self._shown = now
            self._first_step = step
            return True
        period = _SECONDS_ON_TERMINAL if self._is_terminal else _SECONDS_IN_LOG
        return now - self._shown >= period

    def end_epoch(self, row: Mapping[str, Any]) -> None:
        """Shows the line of an epoch, which stays.

        Args:
            row: of metrics.csv.
        """
        text = f"loss {row['loss']:.4f}  accuracy {row['accuracy']:.2%}"
        if "validation_accuracy" in row:
            text += f"  validation {row['validation_accuracy']:.2%}"
        if row["bad_images"]:
            text += f"  {count(row['bad_images'], 'bad image')}"
        self.show(row["step"], text, ends_epoch=True)

    def show(self, step: int, metrics: str, ends_epoch: bool = False) -> None:
        """Shows how far the run is.

        Args:
            step: how many steps are done.
            metrics: such as the loss, in words.
            ends_epoch: whether this is the line of an epoch, which stays.
        """
        self._shown = self._clock()
        before = max(step - 1, 0) // self._steps_per_epoch
        line = f"epoch {before + 1}/{self._num_epochs}"
        if not ends_epoch:
            inside = step - before * self._steps_per_epoch
            line += f"  step {inside}/{self._steps_per_epoch}"
        self.write(f"{line}  {metrics}{self._speed(step)}", ends_epoch)

    def _speed(self, step):
        """The time left and images per second, in words; or nothing."""
        done = step - self._first_step
        if self._start is None or done <= 0 or self._clock() <= self._start:
            return ""
        seconds = self._clock() - self._start
        steps_left = self._num_epochs * self._steps_per_epoch - step
        left = duration(steps_left * seconds / done)
        return f"  {left} left  {done * self._batch_size / seconds:,.0f} img/s"

    def write(self, line: str, stays: bool = False) -> None:
        """Writes a line.

        Args:
            line: as text.
            stays: whether the next one does not take its place.
        """
        if self._is_terminal:
            columns = max(shutil.get_terminal_size().columns, 2)
            line = line[: columns - 1]
            blanks = " " * max(self._length - len(line), 0)
            self._length = 0 if stays else len(line)
            self._stream.write(f"\r{line}{blanks}" + "\n" * stays)
        else:
            self._stream.write(f"{line}\n")
        self._stream.flush()


def duration(seconds: float) -> str:
    """Returns seconds in words: 48 s, 3:20 min, 5:02 h, 12 days."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60}:{seconds % 60:02d} min"
    if seconds >= _MANY_DAYS * 86_400:
        return f"{seconds / 86_400:,.0f} days"
    return f"{seconds // 3600}:{seconds % 3600 // 60:02d} h"


def count(number: int, noun: str) -> str:
    """Returns a number of things: 1 epoch, 1,295 images."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
