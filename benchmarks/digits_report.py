"""The results of the digits runs: tables and a picture for `docs/digits.md`."""

import json
import statistics

from benchmarks import report
from lambdanet_tf.environment import require

# Top-1 on ImageNet, in per cent: Tables 3, 9 and 11 of the paper.
PAPER = {
    "lambda layers": 78.4,
    "convolutions, as wide": 76.9,
    "content only": 68.8,
    "position only": 78.1,
    "softmax of keys and queries": 78.1,
    "L2 of keys": 78.0,
    "no normalization of keys": 70.0,
    "no batch norm of queries, values": 76.2,
}
DOCUMENT = "digits.md"
TITLES = {
    "short": "12 epochs of 1,295 images",
    "few": "20 epochs of 145 images",
}
_BLUE, _GREY = "#3366aa", "#bbbbbb"


def write(rows, parameters, folder):
    """Writes the tables, the picture and the figures behind them.

    Args:
        rows: list of dictionaries, the finished runs.
        parameters: dict from the variants, in order, to their sizes.
        folder: path. Where `digits.md` is.
    """
    rows = sorted(rows, key=lambda r: (r["budget"], r["variant"], r["seed"]))
    text = json.dumps(rows, indent=1) + "\n"
    (folder / "digits.json").write_text(text)
    default = of(rows, "default")
    if default:
        table = default_table(default)
        report.insert(folder, "default", table, DOCUMENT)
    budgets = [budget for budget in TITLES if of(rows, budget)]
    if budgets:
        table = comparison_table(rows, parameters, budgets)
        report.insert(folder, "comparison", table, DOCUMENT)
        picture(rows, list(parameters), budgets, folder / "digits.png")


def of(rows, budget, variant=None):
    """The runs with a budget, maybe of one variant."""
    return [
        row
        for row in rows
        if row["budget"] == budget and variant in (None, row["variant"])
    ]


def default_table(rows):
    """The runs of the default recipe, one by one, and their mean."""
    lines = [
        "| seed | test accuracy | best epoch | training | whole command |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        whole = row["whole_seconds"]
        lines.append(
            f"| {row['seed']} | {row['accuracy']:.2%} | {row['best_epoch']} | "
            f"{row['seconds']:.0f} s | {f'{whole:.0f} s' if whole else ''} |"
        )
    mean = statistics.mean(row["accuracy"] for row in rows)
    versions = rows[0]["versions"]
    lines += [
        "",
        f"Mean of {len(rows)} seeds: **{mean:.2%}** of "
        f"{rows[0]['test_images']} test images; {versions['keras']}, "
        f"TensorFlow {versions['tensorflow']}, Python {versions['python']}, "
        f"{rows[0]['device']}.",
    ]
    return "\n".join(lines)


def comparison_table(rows, parameters, budgets):
    """Mean, least and largest test accuracy of every variant."""
    heads = [
        f"{TITLES[budget]}: accuracy (from, to) | loss" for budget in budgets
    ]
    lines = [
        f"| network | parameters | {' | '.join(heads)} | ImageNet |",
        "|" + "---|" * (3 + 2 * len(budgets)),
    ]
    for variant, number in parameters.items():
        cells = [variant, f"{number:,}"]
        for budget in budgets:
            cells += _cells(of(rows, budget, variant))
        cells.append(str(PAPER.get(variant, "")))
        lines.append(f"| {' | '.join(cells)} |")
    notes = []
    for budget in budgets:
        counts = [len(of(rows, budget, variant)) for variant in parameters]
        least, most = min(counts), max(counts)
        number = f"{least}" if least == most else f"{least} to {most}"
        notes.append(
            f"{TITLES[budget]}: {number} seed{'s' if most > 1 else ''} each."
        )
    return "\n".join([*lines, "", "In per cent. " + " ".join(notes)])


def _cells(rows):
    """Accuracy and loss of the runs of one variant with one budget."""
    if not rows:
        return ["", ""]
    shares = [100 * row["accuracy"] for row in rows]
    mean = statistics.mean(shares)
    loss = statistics.mean(row["loss"] for row in rows)
    spread = f" ({min(shares):.2f}, {max(shares):.2f})"
    return [f"{mean:.2f}{spread if len(rows) > 1 else ''}", f"{loss:.3f}"]


def picture(rows, variants, budgets, path):
    """A point for each run and a line for each mean."""
    figure = require("matplotlib.figure", extra="plot").Figure(
        figsize=(11, 0.36 * len(variants) + 1.2), layout="constrained"
    )
    axes = figure.subplots(1, len(budgets), sharey=True, squeeze=False)[0]
    places = list(range(len(variants)))[::-1]
    for axis, budget in zip(axes, budgets, strict=True):
        for place, variant in zip(places, variants, strict=True):
            shares = [
                100 * row["accuracy"] for row in of(rows, budget, variant)
            ]
            if shares:
                axis.plot(
                    [statistics.mean(shares)] * 2,
                    [place - 0.3, place + 0.3],
                    color=_BLUE,
                    linewidth=2,
                    label="mean",
                )
            axis.plot(
                shares,
                [place] * len(shares),
                "o",
                color=_BLUE,
                alpha=0.5,
                label="a run, of one seed",
            )
            axis.axhline(place, color=_GREY, linewidth=0.5, zorder=0)
        axis.set(title=TITLES[budget], xlabel="test accuracy, %")
        axis.grid(axis="x", alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_yticks(places, variants)
    entries = dict(zip(*axes[0].get_legend_handles_labels()[::-1], strict=True))
    figure.legend(
        entries.values(), entries.keys(), loc="outside lower center", ncols=2
    )
    figure.savefig(path, dpi=110)
