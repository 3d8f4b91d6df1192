"""The progress line of a run, on a terminal or in a log file."""

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

_WIDTH = 20
_SECONDS_ON_TERMINAL = 0.5
_SECONDS_IN_LOG = 60.0
_MANY_DAYS = 4


class Progress:
    """Shows steps, metrics, images per second and the time left.

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
        self._period = (
            _SECONDS_ON_TERMINAL if self._is_terminal else _SECONDS_IN_LOG
        )
        self._full, self._empty = _blocks(self._stream)
        self._start = None
        self._first_step = 0
        self._shown = 0.0
        self._length = 0

    def announce(self, text: str) -> None:
        """Says what is being done before the first step."""
        if self._is_terminal:
            self._write("\r", text)
        else:
            self._write("", text, "\n")

    def start_once(self, step: int) -> bool:
        """Starts the clock, when called for the first time.

        Call it after the first step, so that the speed is not that of the
        compiler.

        Args:
            step: how many steps are done.

        Returns:
            Whether it was the first time.
        """
        if self._start is not None:
            return False
        self._start, self._first_step = self._clock(), step
        self._shown = self._start if not self._is_terminal else 0.0
        return True

    def is_due(self) -> bool:
        """Returns whether it is time to show something."""
        return self._clock() - self._shown >= self._period

    def show(self, step: int, metrics: str) -> None:
        """Shows how far the run is.

        Args:
            step: how many steps are done.
            metrics: such as the loss, in words.
        """
        self._shown = self._clock()
        if self._is_terminal:
            self._write("\r", self._line(step, metrics))
        else:
            self._write("", self._line(step, metrics), "\n")

    def end_epoch(self, step: int, metrics: str) -> None:
        """Shows the line of an epoch that is over, which stays."""
        self._shown = self._clock()
        start = "\r" if self._is_terminal else ""
        self._write(start, self._line(step, metrics), "\n")
        self._length = 0

    def _line(self, step, metrics):
        epoch = min(-(-step // self._steps_per_epoch), self._num_epochs)
        inside = step - (epoch - 1) * self._steps_per_epoch
        filled = _WIDTH * inside // self._steps_per_epoch
        bar = self._full * filled + self._empty * (_WIDTH - filled)
        width = len(str(self._num_epochs))
        title = f"epoch {epoch:{width}d}/{self._num_epochs}"
        speed, left = self._speed(step)
        for parts in (
            (title, bar, metrics, speed, left),
            (title, metrics, speed, left),
            (title, metrics, left),
            (title, metrics),
        ):
            line = "  ".join(part for part in parts if part)
            if len(line) < self._columns():
                break
        return line

    def _speed(self, step):
        """Images per second and the time left, in words; or nothing."""
        seconds = self._clock() - (self._start or 0.0)
        done = step - self._first_step
        if self._start is None or done <= 0 or seconds <= 0:
            return "", ""
        steps_left = self._num_epochs * self._steps_per_epoch - step
        speed = done * self._batch_size / seconds
        return (
            f"{speed:,.0f} img/s",
            f"{duration(steps_left * seconds / done)} left",
        )

    def _columns(self):
        if not self._is_terminal:
            return sys.maxsize
        return max(shutil.get_terminal_size().columns, 2)

    def _write(self, start, line, end=""):
        line = line[: self._columns() - 1]
        padding = " " * max(self._length - len(line), 0)
        self._length = len(line)
        self._stream.write(start + line + padding + end)
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


def _blocks(stream):
    """What a bar is made of: ASCII where the stream cannot encode more."""
    blocks = ("█", "·")
    try:
        "".join(blocks).encode(getattr(stream, "encoding", None) or "ascii")
    except (LookupError, UnicodeEncodeError):
        return ("#", ".")
    return blocks
