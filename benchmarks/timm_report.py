"""The comparison with timm as a table and a picture in the docs."""

import json
import statistics

from benchmarks import report

FIGURES = "timm_speed.json"


def write(rows, folder):
    """Puts the table into `engine.md`, draws the picture, keeps the figures."""
    (folder / FIGURES).write_text(json.dumps(rows, indent=1) + "\n")
    picture(rows, folder / "timm_speed.png")
    parts = ["![Times of timm over ours](timm_speed.png)", table(rows)]
    report.insert(folder, "timm", "\n\n".join([*parts, summary(rows)]))


def summary(rows):
    """The ratios in a sentence for each phase and each of timm's forms."""
    sentences = []
    for phase in ("inference", "training"):
        for theirs in dict.fromkeys(row["theirs"] for row in rows):
            chosen = [
                row
                for row in rows
                if row["phase"] == phase and row["theirs"] == theirs
            ]
            if not chosen:
                continue
            ratios = [row["ratio"] for row in chosen]
            losing = [row for row in chosen if row["ratio"] < 1]
            text = (
                f"{phase.capitalize()}, timm {theirs}: it takes "
                f"{statistics.median(ratios):.2f} times as long (median of "
                f"{len(ratios)} rows; {min(ratios):.2f} to {max(ratios):.2f})"
            )
            names = [f"{r['network']}, batch {r['batch']}" for r in losing]
            if names:
                text += f", and is faster for {'; '.join(names)}"
            sentences.append(f"- {text}.")
    return "\n".join(sentences)


def table(rows):
    """A markdown table, a row for each pair."""
    lines = [
        "| network | phase | batch | ours | images/s | timm | images/s | "
        "timm's time / ours | 95 % interval of the median |",
        "|" + "---|" * 9,
    ]
    for row in rows:
        rates = row["images_per_second"]
        low, high = row["interval"]
        cells = [
            row["network"],
            row["phase"],
            str(row["batch"]),
            row["ours"],
            f"{rates['ours']:.2f}",
            row["theirs"],
            f"{rates['theirs']:.2f}",
            f"**{row['ratio']:.2f}**",
            f"{low:.2f} to {high:.2f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def picture(rows, path):
    """The ratios with their intervals, a panel for each phase."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt  # noqa: PLC0415

    pairs = list(dict.fromkeys((row["ours"], row["theirs"]) for row in rows))
    labels = list(
        dict.fromkeys(f"{row['network']}, {row['batch']}" for row in rows)
    )
    figure, axes = plt.subplots(
        1, 2, figsize=(11, 0.5 * len(labels) + 1.6), sharex=True, sharey=True
    )
    for axis, phase in zip(axes, ("inference", "training"), strict=True):
        for index, pair in enumerate(pairs):
            chosen = [
                row
                for row in rows
                if row["phase"] == phase
                and (row["ours"], row["theirs"]) == pair
            ]
            places = [
                labels.index(f"{row['network']}, {row['batch']}")
                + 0.15 * (index - (len(pairs) - 1) / 2)
                for row in chosen
            ]
            ratios = [row["ratio"] for row in chosen]
            errors = [
                [row["ratio"] - row["interval"][0] for row in chosen],
                [row["interval"][1] - row["ratio"] for row in chosen],
            ]
            name = f"{pair[0]} beside timm, {pair[1]}"
            axis.errorbar(
                ratios, places, xerr=errors, fmt="o", capsize=3, label=name
            )
        axis.axvline(1.0, color="black", linewidth=1)
        axis.set_title(phase)
        axis.set_xlabel("timm's time / ours: above 1, ours is faster")
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(labels)), labels)
    axes[0].invert_yaxis()
    axes[1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
