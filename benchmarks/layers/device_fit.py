"""Fits a row of `DEVICES` to measured layers: to choose well, not to foretell.

What is minimized is the regret: how much longer the algorithm that `auto`
would take needs than the fastest one that was measured.
"""

import dataclasses
import itertools
import math
import statistics

from lambdanet_tf import ops

FITTED = (
    *("flops", "inner", "bandwidth", "gathering"),
    *("convolution", "convolution_training", "convolution_inner"),
    *("launch", "training", "fourier"),
)
STEPS = (0.5, 0.8, 0.9, 1.1, 1.25, 2.0)  # by which a fit changes a rate
ROUNDS = 8
FURTHEST = 8.0  # from where it began; the rates are of something real
# Two plans whose estimates differ by less are chosen about equally often: a
# search is not led by where no single step changes a choice.
DOUBT = 0.1


@dataclasses.dataclass(frozen=True)
class Measured:
    """A layer whose algorithms were timed, forward or in training."""

    geometry: ops.Geometry
    dims: ops.Dims
    training: bool
    batch: int
    seconds: dict[str, float]

    def expected(self, device):
        """Estimates of the position part, of algorithms that `auto` takes."""
        place, how = (self.geometry, self.dims), (self.training, self.batch)
        return {
            name: ops.best_plan(*place, name, device, *how).seconds
            for name in ops.candidates(device, self.geometry.rank)
            if name in self.seconds
        }

    def choice(self, device):
        """The algorithm that `auto` would take with a row of `DEVICES`."""
        expected = self.expected(device)
        return min(expected, key=expected.__getitem__)

    def regret(self, device):
        """Time of the choice over that of the fastest algorithm."""
        return self.seconds[self.choice(device)] / min(self.seconds.values())

    def doubtful_regret(self, device):
        """Mean logarithm of the regret, if estimates err by `DOUBT`."""
        expected = self.expected(device)
        least, best = min(expected.values()), min(self.seconds.values())
        weights = {
            name: (least / seconds) ** (1 / DOUBT)
            for name, seconds in expected.items()
        }
        total = sum(
            weight * math.log(self.seconds[name] / best)
            for name, weight in weights.items()
        )
        return total / sum(weights.values())


def loss(rows, device):
    """What a fit makes small: the mean regret, sure and doubtful."""
    logs = [math.log(row.regret(device)) for row in rows]
    doubtful = [row.doubtful_regret(device) for row in rows]
    return sum(logs + doubtful) / len(rows)


def report(rows, device):
    """Fits a row; says what it was, what it is and how both choose."""
    lines = []
    for row in (device, fit(rows, device)):
        lines += [f"{row}", choices(rows, row)]
    return "\n".join(lines)


def choices(rows, device):
    """How far from the fastest a row chooses, in words."""
    values = [row.regret(device) for row in rows]
    mean = statistics.geometric_mean(values)
    return f"mean {mean:.3f}, worst {max(values):.2f}"


def fit(rows, device):
    """The best row of `DEVICES` found, from one on, one rate at a time."""
    best, lowest = device, loss(rows, device)
    for _ in range(ROUNDS):
        before = lowest
        for field, step in itertools.product(FITTED, STEPS):
            value, start = step * getattr(best, field), getattr(device, field)
            if not start / FURTHEST <= value <= start * FURTHEST:
                continue
            tried = dataclasses.replace(best, **{field: value})
            if (found := loss(rows, tried)) < lowest:
                best, lowest = tried, found
        if lowest == before:
            break
    return best
