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
    return {
        name: (statistics.median(taken), min(taken), max(taken))
        for name, taken in turns(functions, repetitions).items()
    }


def turns(functions, repetitions, slow=_SLOW):
    """The same, each call by itself.

    Args:
        functions: dict from name to a function without arguments.
        repetitions: int. Counted calls of each.
        slow: seconds. What takes longer is called a few times only.

    Returns:
        Dict from name to a list of seconds, in the order of the turns.
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
            if times[name] and times[name][0] > slow and repetition >= _FEW:
                continue
            # Threads of the one before may still be spinning.
            time.sleep(_PAUSE)
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return times


def ratio(first, second):
    """How many times as long the second of two takes, turn by turn.

    Whatever slows the machine slows both of a turn, so the ratios vary less
    than the times.

    Args:
        first: list of seconds, one a turn.
        second: the same of the other.

    Returns:
        The median, and the low and high end of its interval of 95 %.
    """
    ratios = [b / a for a, b in zip(first, second, strict=True)]
    return statistics.median(ratios), *median_interval(ratios)


def median_interval(numbers, confidence=0.95):
    """An interval for the median of what the numbers are drawn from.

    From one order statistic to another, by the binomial distribution; the
    whole range where there are too few numbers.
    """
    numbers, n = sorted(numbers), len(numbers)
    tail, low = 0.0, 0
    coefficient = 0.5**n
    for k in range(n // 2):
        tail += coefficient
        if 2 * tail > 1 - confidence:
            break
        low = k + 1
        coefficient *= (n - k) / (k + 1)
    low = max(low - 1, 0)
    return numbers[low], numbers[n - 1 - low]


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
