"""Processes that take turns: one runs when it is told to, the others wait.

Threads and memory of one contestant then do not disturb another, and whatever
slows the machine slows all of a turn.
"""

import random
import subprocess
import sys
import time

_FEW = 6  # turns, at the least: with fewer there is no interval of 95 %
_WARM_UP = 3  # runs that are not counted: tracing, compiling, caches
_PAUSE = 0.02  # seconds, for threads of the last one that still spin


class Contestant:
    """A process that runs one thing when it is told to.

    Args:
        module: name of a Python module whose program ends with `serve`.
        arguments: of its command line.

    Raises:
        RuntimeError: if the process ends, here or in a run.
    """

    def __init__(self, module, arguments):
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._receive()

    def run(self):
        """Seconds of one run."""
        self._process.stdin.write("run\n")
        self._process.stdin.flush()
        return self._receive()

    def close(self):
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _receive(self):
        line = self._process.stdout.readline()
        if not line.startswith("seconds "):
            self.close()
            raise RuntimeError(f"{self._process.args} failed: see above.")
        return float(line.split()[1])


def serve(step):
    """What a contestant's process does: a line in, a run, its seconds out."""
    for _ in range(_WARM_UP):
        step()
    print("seconds 0", flush=True)
    for _ in sys.stdin:
        begin = time.perf_counter()
        step()
        print(f"seconds {time.perf_counter() - begin}", flush=True)


def take_turns(commands, turns, seconds, optional=()):
    """Times contestants in turns, each turn in a random order.

    Args:
        commands: dict from name to the arguments of a `Contestant`.
        turns: at most.
        seconds: after which there are no more turns than a few.
        optional: names of contestants that are left out if they cannot begin.

    Returns:
        Dict from name to the seconds of each turn.

    Raises:
        RuntimeError: if one of the other processes ends, or one in a run.
    """
    running, order = {}, random.Random(0)
    try:
        for name, command in commands.items():
            try:
                running[name] = Contestant(*command)
            except RuntimeError:
                if name not in optional:
                    raise
        times, begin = {name: [] for name in running}, time.perf_counter()
        for turn in range(turns):
            if turn >= _FEW and time.perf_counter() - begin > seconds:
                break
            for name in order.sample(list(running), len(running)):
                time.sleep(_PAUSE)
                times[name].append(running[name].run())
        return times
    finally:
        for contestant in running.values():
            contestant.close()
