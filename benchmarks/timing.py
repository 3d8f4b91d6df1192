"""Clocks: medians of interleaved repetitions, and the peak of memory."""

import pathlib
import random
import statistics
import time

_PAUSE = 0.01  # seconds
_SLOW, _FEW = 0.04, 3  # slower than this (seconds), a few times are enough


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
    for repetition in range(repetitions):
        # Whoever follows a slow or foreign contestant finds a cold cache.
        shuffled.shuffle(order)
        for name, function in order:
            if times[name] and times[name][0] > _SLOW and repetition >= _FEW:
                continue
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
    """MiB that the first call of a `tf.function` adds at its peak (Linux).

    Traced before, not executed; the kernel's high-water mark is reset in
    between. Memory that later calls would reuse is counted.
    """
    function.get_concrete_function()
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
