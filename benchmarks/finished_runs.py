"""Runs of `train()` that a benchmark has finished, and what they were for."""

import json

FACTS_FILE = "benchmark.json"


def write(folder, facts):
    """Marks a run as finished; returns the same as `read`.

    Args:
        folder: path of the run.
        facts: dict. What the benchmark knows of it: a network, a seed.
    """
    (folder / FACTS_FILE).write_text(json.dumps(facts))
    return read(folder)


def read(folder):
    """What is known about a finished run; None if it is not finished."""
    if not (folder / FACTS_FILE).exists():
        return None
    record = json.loads((folder / "run.json").read_text())
    return {
        **json.loads((folder / FACTS_FILE).read_text()),
        "versions": record["versions"],
        **record["metrics"],
    }
