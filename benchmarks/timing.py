"""Clocks: what takes turns, here or in processes; the peak of memory."""

import contextlib
import importlib
import itertools
import json
import math
import os
import pathlib
import random
import subprocess
import sys
import time
from statistics import median

ROOT = pathlib.Path(__file__).parents[1]
_PAUSE = 0.01  # seconds, for threads of the one before that still spin
FEW = 6  # turns of processes: with fewer there is no interval of 95 %
_WARM_UP = 3  # runs that are not counted: tracing, compiling, caches


def turns(functions, seconds, least=3, most=math.inf, clock=True):
    """Times functions, by name, in turns after one that is not counted.

    No turn begins after so many seconds, but there are a number at least. If
    `clock` is False the functions return their own seconds.
    """
    for function in functions.values():
        function()
    # What follows a slow or foreign function finds a cold cache.
    order, shuffled = list(functions.items()), random.Random(0)
    times, turn = {name: [] for name in functions}, 0
    begin = time.perf_counter()
    while turn < most:
        if turn >= least and time.perf_counter() - begin > seconds:
            break
        turn += 1
        shuffled.shuffle(order)
        for name, function in order:
            time.sleep(_PAUSE)
            start = time.perf_counter()
            taken = function()
            if clock:
                taken = time.perf_counter() - start
            times[name].append(taken)
    return times


def _child(*words, arguments):
    command = sys.executable, "-m", "benchmarks.timing", *words
    return [*command, json.dumps(arguments, default=str)]  # of paths


@contextlib.contextmanager
def worker(function, *arguments, root=ROOT):
    """Yields a function from a request to the seconds that it took a process.

    There "module:name" is called with arguments, by JSON, and returns a
    function from a request to what is run; the first run of one warms it up.
    The package is that of the folder `root`.
    """
    paths = [str(root), str(ROOT), os.environ.get("PYTHONPATH", "")]
    with subprocess.Popen(
        _child("serve", function, arguments=arguments),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    ) as process:

        def run(request="run"):
            with contextlib.suppress(BrokenPipeError):  # No answer comes.
                print(request, file=process.stdin, flush=True)
            for line in process.stdout:
                if line.startswith("seconds "):
                    return float(line.split()[1])
            raise RuntimeError(f"{process.args} failed: see above.")

        yield run


def serve(step_of):
    current = None
    for line in sys.stdin:
        if line != current:  # what was before would only hold memory
            step, current = step_of(line.strip()), line
            for _ in range(_WARM_UP):
                step()
        begin = time.perf_counter()
        step()
        print(f"seconds {time.perf_counter() - begin}", flush=True)


def worker_turns(commands, seconds, most=100):
    """Times processes in turns, by name the arguments of a `worker`."""
    with contextlib.ExitStack() as stack:
        running = {
            name: stack.enter_context(worker(*command))
            for name, command in commands.items()
        }
        return turns(running, seconds, FEW, most, clock=False)


def in_child(function, *arguments, timeout=None):
    """Returns what "module:function" does, in a process of its own."""
    done = subprocess.run(
        _child("call", function, arguments=arguments),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=timeout,
    )
    return json.loads(done.stdout.splitlines()[-1])


def ratio(first, second):
    """How many times as long the second of two takes, turn by turn.

    Whatever slows the machine slows both of a turn. The median, and the low and
    high end of its interval of 95 %.
    """
    ratios = [b / a for a, b in zip(first, second, strict=True)]
    return median(ratios), *median_interval(ratios)


def median_interval(numbers):
    """An interval of 95 % for the median of what the numbers are drawn from.

    From one order statistic to another, by the binomial distribution.
    """
    numbers, n = sorted(numbers), len(numbers)
    ways = itertools.accumulate(math.comb(n, k) for k in range(n // 2))
    low = max(sum(2 * way <= 0.05 * 2**n for way in ways) - 1, 0)
    return numbers[low], numbers[n - 1 - low]


def main(verb, function, arguments):
    module, _, name = function.partition(":")
    called = getattr(importlib.import_module(module), name)
    found = called(*json.loads(arguments))
    if verb == "serve":
        serve(found)
    else:
        print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
