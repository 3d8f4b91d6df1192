"""Clocks: medians of interleaved repetitions, and the peak of memory."""

import pathlib
import random
import statistics
import time

_PAUSE = 0.01  # seconds


def interleaved(functions, repetitions):
    """Times functions in turns, after one call of each that is not counted.

    Args:
        functions: dict from name to a function without arguments.
        repetitions: int. Counted calls of each.

    Returns:
        Dict from name to (median, minimum, maximum), in seconds.
    """
    times = {name: [] for name in functions}
    for function in functions.values():
        function()
    order = list(functions.items())
    shuffled = random.Random(0)
    for _ in range(repetitions):
        # Whoever follows a slow or foreign contestant finds a cold cache.
        shuffled.shuffle(order)
        for name, function in order:
            # Threads of the one before may still be spinning.
            time.sleep(_PAUSE)
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {
        name: (statistics.median(taken), min(taken), max(taken))
        for name, taken in times.items()
    }


def peak_megabytes(function):
    """MiB that a repeated call adds, at its peak, to a warm process (Linux).

    The kernel's high-water mark is reset before the call that is measured.
    """
    function()
    held = _status("VmRSS")
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    function()
    return max(_status("VmHWM") - held, 0.0)


def _status(field):
    """MiB of a field of `/proc/self/status`."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) / 1024
    raise KeyError(field)
