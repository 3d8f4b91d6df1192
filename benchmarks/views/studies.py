"""Tables and pictures of what was trained."""

import dataclasses
import statistics

from benchmarks.views import crossed
from benchmarks.views import figure
from benchmarks.views import grouped
from benchmarks.views import listing
from benchmarks.views import scaled
from benchmarks.views import table
from benchmarks.views import view
from lambdanet_tf.environment import require

CONFIDENCE = 0.95
_KERASES = {"keras": "Keras", "tf_keras": "tf_keras"}
_BLUE, _GREY, _BLACK = "#3366aa", "#bbbbbb", "#222222"


def _versions(row):
    found = row["versions"]
    name, number = next((x, found[x]) for x in _KERASES if x in found)
    return (
        f"{_KERASES[name]} {number}, TensorFlow {found['tensorflow']}, Python "
        f"{found['python']}"
    )


def interval(numbers):
    """Half the width of the t-interval of a mean; None of fewer than two."""
    if len(numbers) < 2:
        return None
    spread = statistics.stdev(numbers) / len(numbers) ** 0.5
    quantile = _student(len(numbers)).ppf((1 + CONFIDENCE) / 2)
    return float(quantile * spread)


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


def _mean(numbers):
    """Mean and half its interval, as text."""
    if not numbers:
        return ""
    half = interval(numbers)
    text = f"{statistics.mean(numbers):.2f}"
    return text if half is None else f"{text} ± {half:.2f}"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """An arm and the one that it is compared with.

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


def accuracies(rows, arm):
    """Test accuracy in per cent of an arm's runs, by seed."""
    return {
        row["case"]["seed"]: 100 * row["accuracy"]
        for row in rows
        if row["case"]["arm"] == arm
    }


def compared(rows):
    """Dict from the arms that have pairs of seeds to their `Comparison`."""
    against = {x["case"]["arm"]: x["against"] for x in rows if x["against"]}
    pairs = {
        arm: seed_by_seed(accuracies(rows, arm), accuracies(rows, other))
        for arm, other in against.items()
    }
    raw = {arm: p_value(numbers) for arm, numbers in pairs.items()}
    raw = {arm: p for arm, p in raw.items() if p is not None}
    corrected = holm(raw)
    return {
        arm: Comparison(pairs[arm], raw[arm], corrected[arm]) for arm in raw
    }


def _stage(found, stage):
    """Records of a stage: those of the search, and the final ones."""
    rows = [x for x in found["fashion"] if x["case"]["stage"] == stage]
    parts = grouped(rows, "part")
    return parts.get(("search",), []), parts.get(("final",), [])


@view("study.md#small")
def fashion(found):
    search, final = _stage(found, "small")
    arms = grouped(final, "arm")

    def rates(item):
        rows = [x for x in search if x["case"]["arm"] == item[0][0]]
        pairs = sorted((x["case"]["rate"], x["accuracy"]) for x in rows)
        return ", ".join(f"{rate:g}: {100 * x:.2f}" for rate, x in pairs)

    def seconds(item):
        return f"{statistics.median(x['seconds'] for x in item[1]):.0f}"

    def shares(item):
        return accuracies(item[1], item[0][0])

    columns = {
        "variant": lambda item: item[0][0],
        "parameters": lambda item: f"{item[1][0]['parameters']:,}",
        "MFLOPs": lambda item: f"{item[1][0]['flops'] / 1e6:.2f}",
        "validation accuracy by rate": rates,
        "rate": lambda item: f"{item[1][0]['case']['rate']:g}",
        "test accuracy by seed": lambda item: ", ".join(
            f"{x:.2f}" for x in shares(item).values()
        ),
        "mean": lambda item: _mean(list(shares(item).values())),
        "seconds a run": seconds,
    }
    against = {x["case"]["arm"]: x["against"] for x in final}

    def verdict(item):
        if not item[1].is_found:
            return "no difference found"
        return "more" if statistics.mean(item[1].differences) > 0 else "less"

    differences = {
        "difference of test accuracy, points": lambda item: (
            f"{item[0]} - {against[item[0]]}"
        ),
        "by seed": lambda item: ", ".join(
            f"{x:+.2f}" for x in item[1].differences
        ),
        "mean": lambda item: _mean(item[1].differences),
        "p": lambda item: f"{item[1].p:.3f}",
        "p, Holm": lambda item: f"{item[1].corrected:.3f}",
        "": verdict,
    }
    return "\n\n".join(
        [
            listing(list(arms.items()), columns),
            listing(list(compared(final).items()), differences),
            f"{len(final)} final runs, {final[0]['test_images']:,} test "
            f"images; ± is half of the {CONFIDENCE:.0%} t-interval over seeds. "
            f"{_versions(final[0])}.",
            "![Test accuracies and their differences](study_small.png)",
        ]
    )


@view("study_small.png")
def fashion_picture(found):
    """Test accuracy of every run, and the differences with intervals."""
    _, final = _stage(found, "small")
    arms, pairs = (
        [arm for (arm,) in grouped(final, "arm")][::-1],
        compared(final),
    )
    against = {x["case"]["arm"]: x["against"] for x in final}
    usual = statistics.mode(filter(None, against.values()))
    made, ((left, right),) = figure(
        11, 0.45 * len(arms) + 1.6, columns=2, sharey=True
    )
    for place, arm in enumerate(arms):
        _dots(left, list(accuracies(final, arm).values()), place)
        if arm in pairs:
            differences = pairs[arm].differences
            mean = statistics.mean(differences)
            is_found = pairs[arm].is_found
            right.errorbar(
                mean,
                place,
                xerr=interval(differences),
                fmt="o",
                c=_BLACK if is_found else _GREY,
                mfc=_BLACK if is_found else "white",
                capsize=4,
            )
            other = f" (from {against[arm]})" if against[arm] != usual else ""
            right.text(mean, place + 0.2, f"{mean:+.2f}{other}", ha="center")
    right.axvline(0, c=_BLACK, linewidth=1)
    left.set_yticks(range(len(arms)), arms)
    left.set(xlabel="test accuracy, %", title="Every run, and the mean")
    right.set(
        xlabel=f"points of accuracy, {CONFIDENCE:.0%} t-intervals\n"
        "filled: a difference after Holm's correction",
        title=f"Paired differences from {usual}",
    )
    return made


def _dots(axis, numbers, place):
    """A point for each run and a line for the mean."""
    axis.plot(numbers, [place] * len(numbers), "o", c=_BLUE, alpha=0.5)
    middle = statistics.mean(numbers)
    axis.plot([middle] * 2, [place - 0.3, place + 0.3], c=_BLUE, linewidth=2)
    axis.axhline(place, c=_GREY, linewidth=0.5, zorder=0)
    axis.grid(axis="x", alpha=0.3)


# Top-1 on ImageNet, in per cent: Tables 3, 9 and 11 of the paper.
IMAGENET = {
    "lambda layers": 78.4,
    "convolutions, as wide": 76.9,
    "content only": 68.8,
    "position only": 78.1,
    "softmax of keys and queries": 78.1,
    "L2 of keys": 78.0,
    "no normalization of keys": 70.0,
    "no batch norm of queries, values": 76.2,
}
BUDGETS = {
    "short": "12 epochs of 1,295 images",
    "few": "20 epochs of 145 images",
}


@view("digits.md#default")
def digits_default(found):
    rows = [x for x in found["digits"] if x["case"]["budget"] == "default"]
    columns = {
        "seed": "{seed}",
        "test accuracy": "{accuracy:.2%}",
        "best epoch": "{best_epoch}",
        "training": "{seconds:.0f} s",
        "whole command": lambda row: (
            f"{row['whole_seconds']:.0f} s" if row["whole_seconds"] else ""
        ),
    }
    mean = statistics.mean(row["accuracy"] for row in rows)
    return (
        f"{listing(rows, columns)}\n\nMean of {len(rows)} seeds: "
        f"**{mean:.2%}** of {rows[0]['test_images']} test images; "
        f"{_versions(rows[0])}, {rows[0]['device']}."
    )


def _variants(found):
    """Records by budget and variant."""
    return grouped(found["digits"], "budget", "variant")


@view("digits.md#comparison")
def digits_comparison(found):
    cells = {}
    for (budget, variant), rows in _variants(found).items():
        if budget not in BUDGETS:
            continue
        shares = [100 * row["accuracy"] for row in rows]
        cells[variant, "parameters"] = f"{rows[0]['parameters']:,}"
        ends = f" ({min(shares):.2f}, {max(shares):.2f})"
        text = f"{statistics.mean(shares):.2f}{ends if len(rows) > 1 else ''}"
        title = BUDGETS[budget]
        cells[variant, f"{title}: accuracy (from, to)"] = text
        loss = statistics.mean(row["loss"] for row in rows)
        cells[variant, f"{title}: loss"] = f"{loss:.3f}"
    for variant in dict.fromkeys(variant for variant, _ in cells):
        cells[variant, "ImageNet"] = str(IMAGENET.get(variant, ""))
    counts = {len(x) for (b, _), x in _variants(found).items() if b in BUDGETS}
    number = " to ".join(map(str, sorted(counts)))
    return f"{crossed(cells, 'network')}\n\nIn per cent, {number} seeds each."


@view("digits.png")
def digits_picture(found):
    """A point for each run and a line for each mean."""
    parts = _variants(found)
    variants = list(dict.fromkeys(v for b, v in parts if b in BUDGETS))[::-1]
    made, (axes,) = figure(
        11, 0.36 * len(variants) + 1.2, columns=len(BUDGETS), sharey=True
    )
    for axis, (budget, title) in zip(axes, BUDGETS.items(), strict=True):
        for place, variant in enumerate(variants):
            if rows := parts.get((budget, variant)):
                _dots(axis, [100 * row["accuracy"] for row in rows], place)
        axis.set(title=title, xlabel="test accuracy, %: each run, mean")
    axes[0].set_yticks(range(len(variants)), variants)
    return made


FIRST_EPOCH = 3  # from which on validation must follow training


def shortfall(row, name):
    """Percent of validation images by which a candidate is worse than exact.

    The worst epoch from `FIRST_EPOCH` on.
    """
    late = row["epochs"][FIRST_EPOCH - 1 :]
    return 100.0 * max(epoch["exact"] - epoch[name] for epoch in late)


@view("layers.md#norm")
def norm_defaults(found):
    rows = [x for x in found["norm_defaults"] if "short" not in x["case"]]
    names = [x for x in rows[0]["epochs"][0] if x not in ("training", "exact")]

    def exact(item):
        last = [100.0 * x["epochs"][-1]["exact"] for x in item[1]]
        return f"{statistics.mean(last):.0f} %"

    def cell(name):
        def text(item):
            values = [shortfall(x, name) for x in item[1]]
            return f"{statistics.mean(values):.0f} ({max(values):.0f})"

        return text

    columns = {
        "task": lambda item: item[0][0],
        "batch": lambda item: item[0][1],
        "exact": exact,
        **{name: cell(name) for name in names},
    }
    return listing(list(grouped(rows, "task", "batch").items()), columns)


@view("training.md#pseudo_labels")
def pseudo_labels(found):
    rows = [x for x in found["pseudo_labels"] if x["case"]["epochs"] == 60]
    arms, cells = grouped(rows, "arm"), {}
    for (arm,), group in arms.items():
        for row in group:
            head = f"seed {row['case']['seed']}"
            cells[arm, head] = f"{row['accuracy']:.2%}"
        mean = statistics.mean(row["accuracy"] for row in group)
        cells[arm, "mean"] = f"{mean:.2%}"
    students = [row for row in rows if "pseudo_labels" in row]
    counts = ", ".join(f"{row['pseudo_labels']:,}" for row in students)
    right = ", ".join(
        f"{row['right'] / row['pseudo_labels']:.1%}" for row in students
    )
    return (
        f"{crossed(cells, '')}\n\nTest accuracy on "
        f"{rows[0]['test_images']} images; pseudo-labels kept: {counts}; right "
        f"among them: {right}. {_versions(rows[0])}."
    )


table(
    "what_it_learns.md#norms",
    "learned",
    {
        "layer": "`{layer}`",
        "content": "{content:.2f}",
        "position": "{position:.2f}",
        "both": "{both:.2f}",
        "cosine": "{cosine:+.2f}",
        "content's share": "{share:.1%}",
        "before training": "{share_before:.1%}",
    },
)


METRICS = {
    "boxes AP": "AP",
    "AP50": "AP50",
    "AP75": "AP75",
    "masks AP": "mask_AP",
    "mask AP50": "mask_AP50",
    "mask AP75": "mask_AP75",
}


def _points(metric):
    """A column of a metric in per cent."""
    return lambda row: f"{100 * row['metrics'][metric]:.1f}"


@view("detection.md#results")
def detection(found):
    rows = [x for x in found["detection"] if x["case"]["steps"] == 800]
    rows.sort(key=lambda row: [str(x) for x in row["case"].values()])

    def minutes(name):
        return lambda row: f"{row[name] / 60:.0f}" if row[name] else ""

    columns = {
        "pictures": "{pictures}",
        "network": "{network}",
        "parameters": "{parameters:,}",
        "backbone": "{backbone_parameters:,}",
        "seed": "{seed}",
        "steps": "{steps}",
        **{name: _points(metric) for name, metric in METRICS.items()},
        "minutes": minutes("seconds"),
        "CPU minutes": minutes("cpu_seconds"),
    }
    least = min(100 * row["metrics"]["mask_AP50"] for row in rows)
    return "\n\n".join(
        [
            listing(rows, columns),
            f"AP in per cent, of {rows[0]['scenes']} held-out scenes; the "
            f"least mask AP50 is {least:.1f}. {_versions(rows[0])}.",
            *_detection_differences(rows),
        ]
    )


def _detection_differences(rows):
    """How far the networks are apart in AP, seed by seed."""
    for (pictures,), group in grouped(rows, "pictures").items():
        for kind in ("boxes AP", "masks AP"):
            by_seed = [
                {
                    row["case"]["seed"]: 100 * row["metrics"][METRICS[kind]]
                    for row in group
                    if row["case"]["network"] == network
                }
                for network in ("lambda", "convolution")
            ]
            pairs = seed_by_seed(*by_seed)
            half = interval(pairs)
            if half is not None:
                yield (
                    f"{kind}, {pictures}, lambda layers less convolutions, "
                    f"seed by seed: {statistics.mean(pairs):+.1f} points on "
                    f"average ({', '.join(f'{x:+.1f}' for x in pairs)}; the "
                    f"95 % t-interval of the mean: ±{half:.1f})."
                )


MILLIONS = scaled("parameters", 1e6, digits=3)
table(
    "detection.md#backbones",
    "detection_sizes",
    {
        "backbone": "{backbone}",
        "parameters, M": MILLIONS,
        "GFLOPs at 1024 px": scaled("flops", 1e9),
        "the paper's AP, boxes / masks": "{published}",
    },
    where=lambda row: "backbone" in row["case"],
)
table(
    "detection.md#experiments",
    "detection_sizes",
    {
        "experiment": "`{experiment}`",
        "px": "{px}",
        "parameters, M": MILLIONS,
    },
    where=lambda row: "experiment" in row["case"],
)
table(
    "keras_hub.md#results",
    "detection_keras_hub",
    {
        "backbone": "{backbone}",
        "parameters": "{parameters:,}",
        "of the backbone": "{backbone_parameters:,}",
        "steps": "{steps}",
        **{name: _points(name) for name in ("AP", "AP50", "AP75")},
        "minutes": scaled("seconds", 60, digits=0),
        "CPU minutes": scaled("cpu_seconds", 60, digits=0),
    },
)


def _by_training(found):
    """Accuracies `(seeds, tested sizes)` by the sizes that were trained."""
    rows = [x for x in found["image_sizes"] if "steps" not in x["case"]]
    trained = {
        name: [row["accuracies"] for row in group]
        for (name,), group in grouped(rows, "trained").items()
    }
    return trained, rows[0]["pixels"]


@view("layers.md#sizes")
def image_sizes(found):
    trained, pixels = _by_training(found)
    cells = {
        (name, f"{size} px"): (
            f"{statistics.mean(x):.1f} ({min(x):.1f} to {max(x):.1f})"
        )
        for name, rows in trained.items()
        for size, x in zip(pixels, zip(*rows, strict=True), strict=True)
    }
    return crossed(cells, "trained at")


@view("sizes.png")
def image_sizes_picture(found):
    trained, pixels = _by_training(found)
    made, ((axes,),) = figure(6, 3.6)
    for name, rows in trained.items():
        columns = list(zip(*rows, strict=True))
        means = [statistics.mean(x) for x in columns]
        axes.plot(pixels, means, marker="o", label=f"trained at {name}")
        axes.fill_between(
            pixels, [*map(min, columns)], [*map(max, columns)], alpha=0.2
        )
    axes.set(xlabel="pixels of a side, tested", ylabel="test accuracy, %")
    axes.set_xticks(pixels)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return made
