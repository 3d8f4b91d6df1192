"""The results of `benchmarks.study`: statistics, tables and a picture."""

import dataclasses
import json
import statistics

from benchmarks import report
from lambdanet_tf.environment import require

DOCUMENT = "study.md"
CONFIDENCE = 0.95
_BLUE, _GREY, _BLACK = "#3366aa", "#bbbbbb", "#222222"


def write(stage, rows, sizes, against, folder):
    """Writes the tables of a stage, its picture and the figures behind them.

    Args:
        stage: name of the stage.
        rows: list of dictionaries, the finished runs.
        sizes: dict from the arms, in order, to parameters and FLOPs.
        against: dict from the arms to the arm each is compared with, or None.
        folder: path. Where `study.md` is.
    """
    figures = {"runs": rows, "sizes": sizes}
    text = json.dumps(figures, indent=1) + "\n"
    (folder / f"study_{stage}.json").write_text(text)
    final = [row for row in rows if not row["is_search"]]
    parts = [arms_table(rows, sizes)]
    if final:
        name = f"study_{stage}.png"
        parts += [differences_table(final, against), conditions(final)]
        parts += [f"![Test accuracies and their differences]({name})"]
        picture(final, against, folder / name)
    report.insert(folder, stage, "\n\n".join(parts), DOCUMENT)


def accuracies(rows, arm):
    """Test accuracy in per cent of an arm's final runs, by seed."""
    return {
        row["seed"]: 100 * row["accuracy"] for row in rows if row["arm"] == arm
    }


def interval(numbers):
    """Half the width of the t-interval of a mean; None of fewer than two."""
    if len(numbers) < 2:
        return None
    spread = statistics.stdev(numbers) / len(numbers) ** 0.5
    quantile = _student(len(numbers)).ppf((1 + CONFIDENCE) / 2)
    return float(quantile * spread)


def paired(rows, arm, other):
    """Differences of two arms, seed by seed, as a list."""
    return seed_by_seed(accuracies(rows, arm), accuracies(rows, other))


def seed_by_seed(one, two):
    """Differences of two dicts by seed, of the seeds that both have."""
    return [one[seed] - two[seed] for seed in sorted(one.keys() & two.keys())]


def p_value(differences):
    """Two-sided p of a paired t-test; None of fewer than two pairs."""
    if len(differences) < 2:
        return None
    spread = statistics.stdev(differences) / len(differences) ** 0.5
    if spread == 0:
        return 0.0 if any(differences) else 1.0
    ratio = abs(statistics.mean(differences)) / spread
    return float(2 * _student(len(differences)).sf(ratio))


def holm(p_values):
    """Holm's correction: p-values that keep their order.

    Args:
        p_values: dict from a name to p.

    Returns:
        The same with adjusted ones: the i-th smallest of m times m - i + 1,
        at least those before it, at most 1.
    """
    adjusted, largest = {}, 0.0
    order = sorted(p_values, key=p_values.get)
    for rank, name in enumerate(order):
        largest = max(largest, (len(order) - rank) * p_values[name])
        adjusted[name] = min(largest, 1.0)
    return adjusted


def _student(count):
    stats = require("scipy.stats", extra="data")
    return stats.t(count - 1)


def arms_table(rows, sizes):
    """All runs of every arm: the search and the test accuracies."""
    lines = [
        "| arm | parameters | MFLOPs | validation accuracy by rate | rate | "
        "test accuracy by seed | mean | seconds a run |",
        "|" + "---|" * 8,
    ]
    for arm, size in sizes.items():
        own = [row for row in rows if row["arm"] == arm]
        searched = sorted(
            (row["rate"], row["accuracy"]) for row in own if row["is_search"]
        )
        final = sorted(
            (row for row in own if not row["is_search"]),
            key=lambda row: row["seed"],
        )
        found = [f"{100 * row['accuracy']:.2f}" for row in final]
        cells = [
            arm,
            f"{size['parameters']:,}",
            f"{size['flops'] / 1e6:.2f}",
            ", ".join(f"{r:g}: {100 * a:.2f}" for r, a in searched),
            f"{final[0]['rate']:g}" if final else "",
            ", ".join(found) or "not run yet",
            _mean(list(accuracies(final, arm).values())),
            _seconds(final) if final else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _seconds(rows):
    return f"{statistics.median(row['seconds'] for row in rows):.0f}"


def _mean(numbers):
    """Mean and half its interval, as text."""
    if not numbers:
        return ""
    half = interval(numbers)
    text = f"{statistics.mean(numbers):.2f}"
    return text if half is None else f"{text} ± {half:.2f}"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """An arm beside the one that it is compared with.

    Attributes:
        differences: seed by seed, in points.
        p: of a paired t-test.
        corrected: the same after Holm's correction.
    """

    differences: list[float]
    p: float
    corrected: float

    @property
    def is_found(self):
        """Whether this counts as a difference."""
        return self.corrected < 1 - CONFIDENCE


def compared(rows, against):
    """Dict from the arms that have pairs of seeds to their `Comparison`."""
    pairs = {
        arm: paired(rows, arm, other) for arm, other in against.items() if other
    }
    raw = {arm: p_value(numbers) for arm, numbers in pairs.items()}
    raw = {arm: p for arm, p in raw.items() if p is not None}
    corrected = holm(raw)
    return {
        arm: Comparison(pairs[arm], raw[arm], corrected[arm]) for arm in raw
    }


def differences_table(rows, against):
    """Paired differences with intervals and corrected p-values."""
    lines = [
        "| difference of test accuracy, points | by seed | mean | p | "
        "p, Holm | |",
        "|" + "---|" * 6,
    ]
    for arm, found in compared(rows, against).items():
        numbers = found.differences
        by_seed = ", ".join(f"{number:+.2f}" for number in numbers)
        verdict = "no difference found"
        if found.is_found:
            verdict = "more" if statistics.mean(numbers) > 0 else "less"
        lines.append(
            f"| {arm} - {against[arm]} | {by_seed} | {_mean(numbers)} | "
            f"{found.p:.3f} | {found.corrected:.3f} | {verdict} |"
        )
    return "\n".join(lines)


def conditions(rows):
    """Versions and counts under the tables."""
    versions = rows[0]["versions"]
    return (
        f"{len(rows)} final runs, {rows[0]['test_images']:,} test images; ± is "
        f"half of the {CONFIDENCE:.0%} t-interval over seeds. "
        f"{versions['keras']}, TensorFlow {versions['tensorflow']}, Python "
        f"{versions['python']}."
    )


def picture(rows, against, path):
    """Test accuracy of every run, and the differences with intervals."""
    arms = [arm for arm in against if accuracies(rows, arm)][::-1]
    figure = require("matplotlib.figure", extra="plot").Figure(
        figsize=(11, 0.45 * len(arms) + 1.6), layout="constrained"
    )
    left, right = figure.subplots(1, 2, sharey=True)
    found = compared(rows, against)
    usual = statistics.mode(filter(None, against.values()))
    for place, arm in enumerate(arms):
        numbers = list(accuracies(rows, arm).values())
        left.plot(numbers, [place] * len(numbers), "o", c=_BLUE, alpha=0.5)
        left.plot(
            [statistics.mean(numbers)] * 2,
            [place - 0.3, place + 0.3],
            c=_BLUE,
            linewidth=2,
        )
        if arm in found:
            differences = found[arm].differences
            mean = statistics.mean(differences)
            is_found = found[arm].is_found
            right.errorbar(
                mean,
                place,
                xerr=interval(differences),
                fmt="o",
                c=_BLACK if is_found else _GREY,
                mfc=_BLACK if is_found else "white",
                capsize=4,
            )
            text = f"{mean:+.2f}"
            if against[arm] != usual:
                text += f" (from {against[arm]})"
            right.annotate(
                text,
                (mean, place),
                textcoords="offset points",
                xytext=(0, 7),
                ha="center",
                fontsize=8,
            )
        for axis in (left, right):
            axis.axhline(place, c=_GREY, linewidth=0.5, zorder=0)
    right.axvline(0, c=_BLACK, linewidth=1)
    left.set_yticks(range(len(arms)), arms)
    left.set(xlabel="test accuracy, %", title="Every run, and the mean")
    right.set(
        xlabel=f"points of accuracy, {CONFIDENCE:.0%} t-intervals\n"
        "filled: a difference after Holm's correction",
        title=f"Paired differences from {usual}",
    )
    for axis in (left, right):
        axis.grid(axis="x", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_ylim(-0.6, len(arms) - 0.3)
    figure.savefig(path, dpi=110)
