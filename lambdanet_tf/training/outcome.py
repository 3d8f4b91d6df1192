"""What a finished run leaves behind."""

import tensorflow as tf

from lambdanet_tf.serving.run_folder import EXAMPLES_FILE
from lambdanet_tf.serving.run_folder import WEIGHTS_FILE
from lambdanet_tf.training import pictures
from lambdanet_tf.training.devices import describe
from lambdanet_tf.training.report import report

_EXAMPLES = 16


def write_outcome(book):
    """Tests the best weights; writes the report, the pictures, the record.

    Args:
        book: `Logbook` of a run that has come to its end; its model has the
            best weights.
    """
    metrics = _metrics(book)
    output = book.output
    curves = pictures.learning_curves(
        book.rows, metrics["best_epoch"], metrics["accuracy"]
    )
    output.write_bytes("curves.png", curves)
    _write_answers(book)
    bad = book.bad_images.names()
    if bad:
        output.write_text("bad_images.txt", "\n".join(bad) + "\n")
    record = book.write_record("finished", metrics)
    text = report(
        record,
        book.images.description,
        book.model.count_params(),
        (
            ("Learning curves", "curves.png"),
            ("Predictions", "predictions.png"),
        ),
    )
    output.write_text("report.md", text)
    book.say(
        f"\nheld-out accuracy: {metrics['accuracy']:.2%} of "
        f"{metrics['test_images']} test images (weights of epoch "
        f"{metrics['best_epoch']})\nwritten to {book.folder.path}/: "
        f"{WEIGHTS_FILE}, report.md, curves.png, predictions.png, "
        "metrics.csv, run.json"
    )


def _metrics(book):
    figures = book.evaluation.figures(book.images.test)
    per_epoch = book.inputs.steps_per_epoch
    images = len(book.rows) * per_epoch * book.recipe.batch_size
    kept = {k: v for k, v in book.best.items() if k.startswith("valid")}
    return {
        "best_epoch": book.best["epoch"],
        "accuracy": figures["accuracy"],
        "top5_accuracy": figures["top5_accuracy"],
        "loss": figures["loss"],
        "test_images": figures["images"],
        **kept,
        "bad_images": len(book.bad_images.names()),
        "seconds": book.seconds,
        "images_per_second": images / max(book.training_seconds, 1e-9),
        "device": describe(book.strategy),
    }


def _write_answers(book):
    """Writes a picture of test images, and a few of them as arrays."""
    answers = book.evaluation.answers(book.images.test)
    images, labels, probabilities = answers
    picture = pictures.predictions(
        images, labels, probabilities, book.images.classes
    )
    book.output.write_bytes("predictions.png", picture)
    book.output.write_arrays(
        EXAMPLES_FILE,
        images=tf.cast(images[:_EXAMPLES], tf.float32).numpy(),
        labels=labels[:_EXAMPLES].astype("int64"),
    )
