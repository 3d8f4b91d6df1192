"""Tables and pictures of what was trained."""

import functools
import statistics

from benchmarks import views
from lambdanet_tf.environment import require

CONFIDENCE = 0.95


def _versions(row):
    found = row.versions
    name, number = "tf_keras", found.get("tf_keras")
    if "keras" in found:
        name, number = "Keras", found["keras"]
    return (
        f"{name} {number}, TensorFlow {found['tensorflow']}, Python "
        f"{found['python']}"
    )


def interval(numbers):
    """Half the width of the t-interval of a mean; None of fewer than two."""
    if len(numbers) < 2:
        return None
    stats = require("scipy.stats", extra="data")
    quantile = stats.t(len(numbers) - 1).ppf((1 + CONFIDENCE) / 2)
    return float(quantile * stats.sem(numbers))


def seed_by_seed(one, two):
    """Differences of two dicts by seed, of the seeds that both have."""
    return [one[seed] - two[seed] for seed in sorted(one.keys() & two.keys())]


def p_value(differences):
    """Two-sided p of a paired t-test; None of fewer than two pairs."""
    if len(differences) < 2:
        return None
    if len(set(differences)) == 1:  # without a spread there is no t
        return 0.0 if any(differences) else 1.0
    stats = require("scipy.stats", extra="data")
    return float(stats.ttest_1samp(differences, 0).pvalue)


def holm(p_values):
    """Holm's correction of a dict of p-values."""
    adjusted, largest = {}, 0.0
    order = sorted(p_values, key=p_values.get)
    for rank, name in enumerate(order):
        largest = max(largest, (len(order) - rank) * p_values[name])
        adjusted[name] = min(largest, 1.0)
    return adjusted


def mean(numbers, digits=2, sign=""):
    """Mean and half its interval, as text."""
    numbers = list(numbers)
    half = interval(numbers)
    text = f"{statistics.mean(numbers):{sign}.{digits}f}"
    return text if half is None else f"{text} ± {half:.{digits}f}"


def accuracies(rows, arm):
    """Test accuracy in per cent of an arm's runs, by seed."""
    cases = [(row["case"], 100 * row["accuracy"]) for row in rows]
    return {case["seed"]: x for case, x in cases if case["arm"] == arm}


def compared(rows):
    """Arms that have pairs of seeds, each with the one that it is against.

    In points, seed by seed, with the p of a paired t-test.
    """
    against = {row.arm: row.against for row in rows if row.against}
    pairs = {
        arm: seed_by_seed(accuracies(rows, arm), accuracies(rows, other))
        for arm, other in against.items()
    }
    raw = {arm: p_value(numbers) for arm, numbers in pairs.items()}
    raw = {arm: p for arm, p in raw.items() if p is not None}
    corrected = holm(raw)
    return {
        arm: views.Row(
            against=against[arm],
            differences=pairs[arm],
            p=p,
            holm=corrected[arm],
            is_found=corrected[arm] < 1 - CONFIDENCE,
        )
        for arm, p in raw.items()
    }


def _part(found, stage, part):
    """Records of a stage: of the search, the final ones, or the times."""
    return [x for x in found["fashion"] if (x.stage, x.part) == (stage, part)]


def _verdict(comparison):
    if not comparison.is_found:
        return "no difference found"
    return "more" if statistics.mean(comparison.differences) > 0 else "less"


def fashion(stage, found):
    """The tables of a stage."""
    search, final, times = (
        _part(found, stage, part) for part in ("search", "final", "time")
    )
    step = {row.arm: row.seconds for row in times}
    rows, pairs = [], compared(final)
    for (arm,), group in views.grouped(final, "arm").items():
        tried = sorted((x.rate, x.accuracy) for x in search if x.arm == arm)
        shares = accuracies(final, arm).values()
        row = views.Row(
            group[0],
            rates=", ".join(f"{rate:g}: {100 * x:.2f}" for rate, x in tried),
            shares=views.joined(shares, ".2f"),
            mean=mean(shares),
            step=step.get(arm),
        )
        if pair := pairs.get(arm):
            row["difference"] = mean(pair.differences, sign="+")
            row["holm"], row["verdict"] = pair.holm, _verdict(pair)
        rows.append(row)
    columns = {
        "variant": "{arm}",
        "parameters": "{parameters:,}",
        "MFLOPs": "{flops:.2f/M}",
        "validation accuracy by rate": "{rates}",
        "rate": "{rate:g}",
        "test accuracy by seed": "{shares}",
        "mean": "{mean}",
        "less": "{against}",
        "points": "{difference}",
        "p, Holm": "{holm:.3f}",
        "": "{verdict}",
        **({"ms a step, alone": "{step:.1f/ms}"} if step else {}),
    }
    return views.page(
        views.listing(rows, columns),
        f"{len(final)} final runs, {final[0].test_images:,} test "
        f"images; ± is half of the {CONFIDENCE:.0%} t-interval over seeds. "
        f"{_versions(final[0])}.",
    )


for _stage in ("small", "28px"):
    views.view(f"study.md#{_stage}")(functools.partial(fashion, _stage))


@views.view("study_28px.png")
def fashion_picture(found):
    """Test accuracy of every run, and the differences with intervals."""
    final = _part(found, "28px", "final")
    pairs = compared(final)
    shares = {x.arm: list(accuracies(final, x.arm).values()) for x in final}
    height = 0.45 * len(shares) + 1.6
    made, ((left, right),) = views.figure(11, height, columns=2, sharey=True)
    views.runs(left, shares)
    arms = list(shares)[::-1]
    for arm, pair in pairs.items():
        middle = statistics.mean(pair.differences)
        half = interval(pair.differences)
        triple = middle, middle - half, middle + half
        views.intervals(right, [triple], [arms.index(arm)], c="black")
    right.axvline(0, c="black", linewidth=1)
    left.set(xlabel="test accuracy, %", title="Every run, and the mean")
    right.set(
        xlabel=f"points of accuracy, {CONFIDENCE:.0%} t-intervals",
        title=f"Paired differences from {pair.against}",
    )
    return made


def _longest(rows):
    """Those with the most epochs: no first looks."""
    epochs = max(row.epochs for row in rows)
    return [row for row in rows if row.epochs == epochs]


@views.view("study.md#weights")
def fashion_weights(found):
    rows = _longest(found["fashion_weights"])
    columns = {
        **views.fields("seed", "epochs"),
        "test accuracy": "{accuracy:.2%}",
        "training": "{seconds:.0f} s",
        "SHA-256": "`{sha256}`",
    }
    return views.page(
        views.listing(rows, columns),
        f"{rows[0].test_images:,} test images, once, after the last epoch; "
        f"{_versions(rows[0])}, {rows[0].device}.",
    )


@views.view("digits.md#default")
def digits_default(found):
    rows = _longest(found["digits"])
    columns = {
        "seed": "{seed}",
        "test accuracy": "{accuracy:.2%}",
        "best epoch": "{best_epoch}",
        "training": "{seconds:.0f} s",
        "whole command": "{whole_seconds:.0f} s",
    }
    share = statistics.mean(row.accuracy for row in rows)
    return views.page(
        views.listing(rows, columns),
        f"Mean of {len(rows)} seeds: **{share:.2%}** of {rows[0].test_images} "
        f"test images; {_versions(rows[0])}, {rows[0].device}.",
    )


@views.view("training.md#pseudo_labels")
def pseudo_labels(found):
    rows = [row for row in found["pseudo_labels"] if row.epochs == 60]
    cells = {}
    for (arm,), group in views.grouped(rows, "arm").items():
        for row in group:
            cells[arm, f"seed {row.seed}"] = f"{row.accuracy:.2%}"
        share = statistics.mean(row.accuracy for row in group)
        cells[arm, "mean"] = f"{share:.2%}"
    students = [row for row in rows if row.pseudo_labels is not None]
    counts = views.joined([row.pseudo_labels for row in students], ",")
    shares = [row.right / row.pseudo_labels for row in students]
    return views.page(
        views.crossed(cells, ""),
        f"Test accuracy on {rows[0].test_images} images; pseudo-labels kept: "
        f"{counts}; right among them: {views.joined(shares, '.1%')}. "
        f"{_versions(rows[0])}.",
    )


METRICS = {
    "boxes AP": "AP",
    "AP50": "AP50",
    "AP75": "AP75",
    "masks AP": "mask_AP",
    "mask AP50": "mask_AP50",
    "mask AP75": "mask_AP75",
}


def _points(metrics):
    """Columns of metrics in per cent."""
    return {x: f"{{metrics[{y}]:.1f/%}}" for x, y in metrics.items()}


@views.view("detection.md#results")
def detection(found):
    parts = views.grouped(found["detection"], "part", "steps")
    final = parts["final", 300]
    final.sort(key=lambda row: (row.network, row.seed))
    columns = {
        **views.fields("pictures", "network", "rate"),
        "parameters": "{parameters:,}",
        "backbone": "{backbone_parameters:,}",
        **views.fields("seed", "steps"),
        **_points(METRICS),
        "minutes": "{seconds:.0f/min}",
        "CPU minutes": "{cpu_seconds:.0f/min}",
    }
    return views.page(
        views.listing(final, columns),
        f"AP in per cent, of {final[0].scenes} scenes. {_versions(final[0])}.",
        *_detection_differences(final),
    )


def _detection_differences(rows):
    """How far the networks are apart in AP, seed by seed."""
    for (pictures,), group in views.grouped(rows, "pictures").items():
        for kind in ("boxes AP", "masks AP"):
            by_seed = {"lambda": {}, "convolution": {}}
            for row in group:
                points = 100 * row.metrics[METRICS[kind]]
                by_seed[row.network][row.seed] = points
            pairs = seed_by_seed(*by_seed.values())
            yield (
                f"{kind}, {pictures}, lambda layers less convolutions, "
                f"seed by seed: {statistics.mean(pairs):+.1f} points on "
                f"average ({views.joined(pairs, '+.1f')}; the "
                f"95 % t-interval of the mean: ±{interval(pairs):.1f})."
            )
