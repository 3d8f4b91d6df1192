"""Tables and pictures of what was trained."""

import statistics

from benchmarks import views
from lambdanet_tf.environment import require

CONFIDENCE = 0.95


def _versions(row):
    name = "keras" if "keras" in row.versions else "tf_keras"
    tensorflow = row.versions["tensorflow"]
    return f"{name} {row.versions[name]} and TensorFlow {tensorflow}"


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
    if len(differences) < 2:
        return None
    stats = require("scipy.stats", extra="data")
    return float(stats.ttest_1samp(differences, 0).pvalue)


def holm(p_values):
    adjusted, largest = {}, 0.0
    order = sorted(p_values, key=p_values.get)
    for rank, name in enumerate(order):
        largest = max(largest, (len(order) - rank) * p_values[name])
        adjusted[name] = min(largest, 1.0)
    return adjusted


def mean(numbers, digits=2, sign=""):
    numbers = list(numbers)
    half = interval(numbers)
    text = f"{statistics.mean(numbers):{sign}.{digits}f}"
    return text if half is None else f"{text} ± {half:.{digits}f}"


def by_seed(rows):
    """The mean score of rows, and each seed's, as text."""
    scores = [row.score for row in rows]
    return f"{mean(scores, 1)} ({views.joined(scores, '.0f')})"


def accuracies(rows):
    """Test accuracy in per cent, by arm and seed."""
    return {
        arm: {row.seed: 100 * row.accuracy for row in group}
        for (arm,), group in views.grouped(rows, "arm").items()
    }


def compared(rows):
    """Differences in points of each arm from the one that it is against."""
    shares = accuracies(rows)
    return {
        row.arm: seed_by_seed(shares[row.arm], shares[row.against])
        for row in rows
        if row.against and len(shares[row.arm]) > 1
    }


def fashion(found):
    parts = {"search": [], "final": [], "time": []}
    for row in found["fashion"]:
        parts[row.part].append(row)
    search, final, times = parts.values()
    rows, pairs = [], compared(final)
    step = {row.arm: row.seconds for row in times}
    corrected = holm({arm: p_value(x) for arm, x in pairs.items()})
    for arm, shares in accuracies(final).items():
        tried = sorted((x.rate, x.accuracy) for x in search if x.arm == arm)
        row = next(row for row in final if row.arm == arm)
        row["rates"] = ", ".join(f"{x:g}: {100 * y:.2f}" for x, y in tried)
        row["shares"] = views.joined(shares.values(), ".2f")
        row["mean"], row["step"] = mean(shares.values()), step.get(arm)
        if arm in pairs:
            row["holm"] = corrected[arm]
            row["difference"] = mean(pairs[arm], sign="+")
            more = "higher" if statistics.mean(pairs[arm]) > 0 else "lower"
            is_found = row.holm < 1 - CONFIDENCE
            row["verdict"] = more if is_found else "not significant"
        rows.append(row)
    columns = {
        "variant": "{arm}",
        "parameters": "{parameters:,}",
        "MFLOPs": "{flops:.2f/M}",
        "validation accuracy by rate": "{rates}",
        "rate": "{rate:g}",
        "test accuracy by seed": "{shares}",
        "mean": "{mean}",
        "compared with": "{against}",
        "difference, points": "{difference}",
        "p (Holm)": "{holm:.3f}",
        "verdict": "{verdict}",
        **({"ms per step (timed alone)": "{step:.1f/ms}"} if step else {}),
    }
    return views.page(
        views.listing(rows, columns),
        f"{len(final)} final runs on {final[0].test_images:,} test images, "
        f"with {_versions(final[0])}; ± is half the {CONFIDENCE:.0%} "
        "confidence interval over seeds.",
    )


for _stage in ("small", "28px"):
    views.view(f"study.md#{_stage}", stage=_stage)(fashion)


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
    return views.listing(rows, columns)


@views.view("your_images.md#default")
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
        f"The mean accuracy over {len(rows)} seeds is **{share:.2%}** on "
        f"{rows[0].test_images} test images, with {_versions(rows[0])} on "
        f"{rows[0].device}.",
    )


@views.view("your_images.md#own_pictures")
def own_pictures(found):
    rows = _longest(found["own_pictures"])
    return views.listing(
        rows, {"setting": "{name}", "test accuracy": "{accuracy:.2%}"}
    )


@views.view("training.md#pseudo_labels")
def pseudo_labels(found):
    rows, cells = _longest(found["pseudo_labels"]), {}
    for arm, shares in accuracies(rows).items():
        shares = shares.values()
        cells[arm, "test accuracy by seed, %"] = views.joined(shares, ".2f")
        cells[arm, "mean"] = f"{statistics.mean(shares):.2f}"
    kept = [row for row in rows if row.pseudo_labels]
    counts, right = zip(
        *[(x.pseudo_labels, x.right / x.pseudo_labels) for x in kept],
        strict=True,
    )
    cells[kept[0].arm, "pseudo-labels kept"] = views.joined(counts, ",")
    cells[kept[0].arm, "correct pseudo-labels"] = views.joined(right, ".1%")
    return views.crossed(cells, "training images")


METRICS = {
    "box AP": "AP",
    "box AP50": "AP50",
    "box AP75": "AP75",
    "mask AP": "mask_AP",
    "mask AP50": "mask_AP50",
    "mask AP75": "mask_AP75",
}


@views.view("detection.md#results", part="final")
def detection(found):
    rows = sorted(found["detection"], key=lambda row: (row.network, row.seed))
    columns = {
        **views.fields("network", "rate"),
        "parameters": "{parameters:,}",
        "backbone": "{backbone_parameters:,}",
        **views.fields("seed"),
        **{x: f"{{metrics[{y}]:.1f/%}}" for x, y in METRICS.items()},
        "minutes": "{seconds:.0f/min}",
    }
    texts = []
    for kind in ("box AP", "mask AP"):
        scores = {"lambda": {}, "convolution": {}}
        for row in rows:
            points = 100 * row.metrics[METRICS[kind]]
            scores[row.network][row.seed] = points
        difference = mean(seed_by_seed(*scores.values()), 1, "+")
        texts.append(f"Lambda layers change the {kind} by {difference} points.")
    return views.page(
        views.listing(rows, columns),
        f"AP in percent on {rows[0].scenes} scenes, with {_versions(rows[0])}.",
        "\n".join(texts),
    )
