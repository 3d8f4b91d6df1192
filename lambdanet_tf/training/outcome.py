"""What a finished run leaves behind."""

import tensorflow as tf

from lambdanet_tf.serving.run_folder import EXAMPLES_FILE
from lambdanet_tf.serving.run_folder import WEIGHTS_FILE
from lambdanet_tf.training import pictures
from lambdanet_tf.training.devices import describe
from lambdanet_tf.training.report import report

_EXAMPLES = 16


def write_outcome(training):
    """Tests the best weights; writes the report, the pictures, the record.

    Args:
        training: `Training` that has come to its end, with its best weights.
    """
    metrics = _metrics(training)
    output = training.output
    curves = pictures.learning_curves(
        training.rows, metrics["best_epoch"], metrics["accuracy"]
    )
    output.write_bytes("curves.png", curves)
    _write_answers(training)
    bad = training.bad_images.names()
    if bad:
        output.write_text("bad_images.txt", "\n".join(bad) + "\n")
    record = training.write_record("finished", metrics)
    text = report(
        record,
        training.images.description,
        training.model.count_params(),
        (
            ("Learning curves", "curves.png"),
            ("Predictions", "predictions.png"),
        ),
    )
    output.write_text("report.md", text)
    training.say(
        f"\nheld-out accuracy: {metrics['accuracy']:.2%} of "
        f"{metrics['test_images']} test images (weights of epoch "
        f"{metrics['best_epoch']})\nwritten to {training.folder.path}/: "
        f"{WEIGHTS_FILE}, report.md, curves.png, predictions.png, "
        "metrics.csv, run.json"
    )


def _metrics(training):
    figures = training.evaluation.figures(training.images.test)
    per_epoch = training.inputs.steps_per_epoch
    images = len(training.rows) * per_epoch * training.recipe.batch_size
    kept = {k: v for k, v in training.best.items() if k.startswith("valid")}
    return {
        "best_epoch": training.best["epoch"],
        "accuracy": figures["accuracy"],
        "top5_accuracy": figures["top5_accuracy"],
        "loss": figures["loss"],
        "test_images": figures["images"],
        **kept,
        "bad_images": len(training.bad_images.names()),
        "seconds": training.seconds,
        "images_per_second": images / max(training.training_seconds, 1e-9),
        "device": describe(training.strategy),
    }


def _write_answers(training):
    """Writes a picture of test images, and a few of them as arrays."""
    answers = training.evaluation.answers(training.images.test)
    images, labels, probabilities = answers
    picture = pictures.predictions(
        images, labels, probabilities, training.images.classes
    )
    training.output.write_bytes("predictions.png", picture)
    training.output.write_arrays(
        EXAMPLES_FILE,
        images=tf.cast(images[:_EXAMPLES], tf.float32).numpy(),
        labels=labels[:_EXAMPLES].astype("int64"),
    )
