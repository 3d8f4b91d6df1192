"""A line that says how far the training is, and how fast."""

import sys
import time

_WIDTH = 20
_SECONDS_BETWEEN = 0.5
_MANY_DAYS = 4


class ProgressBar:
    """Shows steps, images per second and the time left.

    On a terminal one line is rewritten; elsewhere (a file, a log) only the
    line at the end of each epoch is written.

    Args:
        num_epochs: int.
        steps_per_epoch: int.
        batch_size: int. Images of one step.
        stream: where to write; None for standard output.
        clock: callable that returns seconds.
    """

    def __init__(
        self,
        num_epochs,
        steps_per_epoch,
        batch_size,
        stream=None,
        clock=time.perf_counter,
    ):
        self._num_epochs = num_epochs
        self._steps_per_epoch = steps_per_epoch
        self._batch_size = batch_size
        self._stream = stream or sys.stdout
        self._clock = clock
        self._is_terminal = self._stream.isatty()
        self._start = None
        self._first_step = 0
        self._shown = -_SECONDS_BETWEEN
        self._length = 0

    def start_once(self, step):
        """Begins to measure, when called for the first time.

        Call it after the first step, so that the speed is not that of the
        compiler.

        Args:
            step: int. How many steps are already done.

        Returns:
            Whether it was the first time.
        """
        if self._start is not None:
            return False
        self._start, self._first_step = self._clock(), step
        return True

    def wants(self):
        """Whether it is time to show something (reading a loss costs time)."""
        return (
            self._is_terminal
            and self._clock() - self._shown >= _SECONDS_BETWEEN
        )

    def show(self, step, figures):
        """Rewrites the line. `figures` is a text such as the loss."""
        self._shown = self._clock()
        self._write("\r" + self._line(step, figures))

    def finish_epoch(self, step, figures):
        """Writes the line of an epoch that is over."""
        start = "\r" if self._is_terminal else ""
        self._write(start + self._line(step, figures), "\n")
        self._length = 0

    def _line(self, step, figures):
        epoch = min(-(-step // self._steps_per_epoch), self._num_epochs)
        inside = step - (epoch - 1) * self._steps_per_epoch
        filled = _WIDTH * inside // self._steps_per_epoch
        bar = "█" * filled + "·" * (_WIDTH - filled)
        width = len(str(self._num_epochs))
        parts = [f"epoch {epoch:{width}d}/{self._num_epochs}", bar, figures]
        seconds = self._clock() - self._start
        done = step - self._first_step
        if done > 0 and seconds > 0:
            left = self._num_epochs * self._steps_per_epoch - step
            speed = done * self._batch_size / seconds
            parts.append(f"{speed:,.0f} img/s")
            parts.append(f"{duration(left * seconds / done)} left")
        return "  ".join(parts)

    def _write(self, line, end=""):
        visible = len(line)
        padding = " " * max(self._length - visible, 0)
        self._length = visible
        self._stream.write(line + padding + end)
        self._stream.flush()


def duration(seconds):
    """Seconds as people write them: 48 s, 3:20 min, 5:02 h, 12 days."""
    seconds = round(seconds)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60}:{seconds % 60:02d} min"
    if seconds >= _MANY_DAYS * 86_400:
        return f"{seconds / 86_400:,.0f} days"
    return f"{seconds // 3600}:{seconds % 3600 // 60:02d} h"
