"""What a network learned on the digits: `python -m benchmarks.learned RUN`.

RUN is the folder of a run of `python train.py`. Prints how large the content
and position parts of its lambda layers are over all 1,797 images, and with
`--write docs` puts the table and three pictures into `what_it_learns.md`.
"""

import argparse
import pathlib

from sklearn.datasets import load_digits

from benchmarks import report
from lambdanet_tf import analysis
from lambdanet_tf import models
from lambdanet_tf import runs

DOCUMENT = "what_it_learns.md"
FIELD_IMAGES = 200


def images():
    """The digits as the network takes them, in [0, 255]."""
    return load_digits().images[..., None].astype("float32") * (255 / 16)


def table(norms, untrained):
    lines = [
        "| layer | content | position | both | cosine | content's share "
        "| before training |",
        "|" + "---|" * 7,
    ]
    for row, before in zip(norms, untrained, strict=True):
        lines.append(
            f"| `{row.name}` | {row.content:.2f} | {row.position:.2f} | "
            f"{row.both:.2f} | {row.cosine:+.2f} | {row.content_share:.1%} | "
            f"{before.content_share:.1%} |"
        )
    return "\n".join(lines)


def fields(model, pixels):
    """Receptive fields of the center of every lambda layer."""
    fields = {}
    for layer in analysis.lambda_layers(model):
        for part in ("content", "position", "both"):
            fields[f"{layer.name}\n{part}"] = analysis.receptive_field(
                model, layer, pixels, part=part, source="layer"
            )
    return fields


def deep_fields(model, pixels):
    """Receptive fields of the same positions in the pixels of the image."""
    return {
        f"{layer.name}\nin the image": analysis.receptive_field(
            model, layer, pixels
        )
        for layer in analysis.lambda_layers(model)
    }


def write(model, norms, text, folder):
    pixels = images()[:FIELD_IMAGES]
    report.insert(folder, "norms", text, DOCUMENT)
    figure = analysis.part_norms_figure(norms)
    figure.savefig(folder / "learned_norms.png", dpi=110)
    shown = fields(model, pixels) | deep_fields(model, pixels)
    figure = analysis.receptive_field_figure(shown, columns=6)
    figure.savefig(folder / "learned_fields.png", dpi=110)
    figure = analysis.position_table_figure(analysis.lambda_layers(model)[0])
    figure.savefig(folder / "learned_table.png", dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="the folder of a run on the digits")
    parser.add_argument("--write", type=pathlib.Path, metavar="FOLDER")
    flags = parser.parse_args()
    run = runs.RunFolder(flags.run).read()
    model, untrained = (
        run.load_model(),
        models.build(run.model, **run.arguments),
    )
    norms = analysis.part_norms(model, images())
    text = table(norms, analysis.part_norms(untrained, images()))
    print(text)
    if flags.write:
        write(model, norms, text, flags.write)


if __name__ == "__main__":
    main()
