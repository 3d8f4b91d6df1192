"""What a network learned on the digits.

    python train.py --run-dir runs/learned
    python -m benchmarks.studies.learned runs/learned
    python -m benchmarks.studies.learned runs/learned --pictures docs

Records how large the content and position parts of the lambda layers of a run
are over all 1,797 images. `--pictures` draws them, receptive fields and a
table.
"""

from benchmarks import records
from benchmarks.studies import runs as studies
from lambdanet_tf import analysis
from lambdanet_tf import models
from lambdanet_tf import runs

FIELD_IMAGES = 200


def fields(model, pixels):
    """Receptive fields of the center of layers, in their inputs and pixels."""
    found, layers = {}, analysis.lambda_layers(model)
    for layer in layers:
        for part in ("content", "position", "both"):
            found[f"{layer.name}\n{part}"] = analysis.receptive_field(
                model, layer, pixels, part=part, source="layer"
            )
    for layer in layers:
        found[f"{layer.name}\nin the image"] = analysis.receptive_field(
            model, layer, pixels
        )
    return found


def main(arguments=None):
    recorder, options = records.start(
        "learned", __doc__, arguments, run=..., pictures=None
    )
    run = runs.RunFolder(options.run).read()
    model = run.load_model()
    untrained = models.build(run.model, **run.arguments)
    images, _ = studies.digits(255.0)
    norms = analysis.part_norms(model, images)
    for row, before in zip(
        norms, analysis.part_norms(untrained, images), strict=True
    ):
        recorder.note(
            {"layer": row.name},
            content=row.content,
            position=row.position,
            both=row.both,
            cosine=row.cosine,
            share=row.content_share,
            share_before=before.content_share,
        )
    if options.pictures:
        shown = fields(model, images[:FIELD_IMAGES])
        layer = analysis.lambda_layers(model)[0]
        for name, figure in {
            "learned_norms": analysis.part_norms_figure(norms),
            "learned_fields": analysis.receptive_field_figure(shown, columns=6),
            "learned_table": analysis.position_table_figure(layer),
        }.items():
            figure.savefig(f"{options.pictures}/{name}.png", dpi=110)


if __name__ == "__main__":
    main()
