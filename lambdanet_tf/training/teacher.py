"""Pseudo-labels images with a trained model (Noisy Student).

This follows Noisy Student (Xie et al., 2020), as the paper does for Table 5. It
keeps images for which the teacher is confident, with its probabilities as soft
labels, and optionally a limited number per class.
"""

import dataclasses
import json
import math
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import runs
from lambdanet_tf.arguments import UserError
from lambdanet_tf.data import pseudo_labels
from lambdanet_tf.data.sets import CLASS_FILE
from lambdanet_tf.files import matching
from lambdanet_tf.files import read_text
from lambdanet_tf.files import whole_file
from lambdanet_tf.training.batches import evaluation_crop
from lambdanet_tf.training.options import LabelOptions
from lambdanet_tf.training.options import PrintFn
from lambdanet_tf.training.recipe import from_dict

REPORT_FILE = "pseudo_labels.json"
_PIECE = 4096  # images per file


def label_images(
    run: runs.Run,
    images: str,
    folder: str,
    options: LabelOptions | None = None,
    print_fn: PrintFn = print,
) -> dict[str, Any]:
    """Writes images with the predictions of a run as their labels.

    Each file contains some thousand images. If you call it again after a stop,
    it continues with the first missing file.

    Args:
        run: the teacher, a finished run.
        images: as in `data.unlabelled_images`.
        folder: folder in which to write the pseudo-labels.
        options: which pseudo-labels to keep.
        print_fn: function that prints a line of text.

    Returns:
        The content of the file `pseudo_labels.json`: the arguments, and how
        many images were read, kept, and kept of each class.
    """
    options = options or LabelOptions()
    run.require_finished()
    split = run.recipe.get("validation_split", 0.1)
    source = data.unlabelled_images(images, validation_split=split, **run.image)
    total, output = source.num_images, runs.RunFolder(folder)
    report = {"run": run.folder, "images": images, "images_read": total}
    report |= dataclasses.asdict(options)
    _begin(output, json.dumps(report))
    certain, count = _certain(run, source, options), math.ceil(total / _PIECE)
    kept = np.zeros(len(run.classes), np.int64)
    for number in range(count):
        name = pseudo_labels.FILE_NAME.format(number=number, count=count)
        if not output.exists(name):
            _write(output.file(name), certain(number * _PIECE, kept.copy()))
        kept += _counts(output.file(name), len(kept))
        done = min((number + 1) * _PIECE, total)
        print_fn(f"{done:,} of {total:,} images read, {kept.sum():,} kept")
    if not kept.sum():
        tf.io.gfile.rmtree(folder)
        raise UserError(
            "`threshold` must be low enough to keep some images. Received: "
            f"{options.threshold}, which none of {total} images reaches."
        )
    counts = dict(zip(run.classes, kept.tolist(), strict=True))
    report |= {"kept": int(kept.sum()), "kept_of_each_class": counts}
    output.write_text(CLASS_FILE, "\n".join(run.classes) + "\n")
    output.write_text(REPORT_FILE, json.dumps(report, indent=2) + "\n")
    return report


def _begin(output, facts):
    """Writes the arguments, or checks that a stopped call had the same."""
    is_noted = output.exists(REPORT_FILE)
    noted = read_text(output.file(REPORT_FILE)) if is_noted else ""
    if noted != facts and matching(output.path, "*"):
        raise UserError(
            "`folder` must be new, or the folder of the same call that was "
            f"stopped. Received: {output.path!r}."
        )
    output.write_text(REPORT_FILE, facts)


def _certain(run, source, options):
    """Returns a function that yields the records of confident images."""
    model, crop = run.load_model(), evaluation_crop(from_dict(run.recipe))
    most = options.images_per_class or math.inf

    @tf.function(reduce_retracing=True)
    def predict(images):
        return tf.nn.softmax(tf.cast(model(images, training=False), tf.float32))

    def certain(start, kept):
        examples = source.examples(
            source.scan().skip(start).take(_PIECE),
            lambda image, *_: (crop(image), image.encoded()),
        )
        for pixels, images in examples.batch(options.batch_size):
            rows = predict(pixels).numpy()
            for encoded, row in zip(images.numpy(), rows, strict=True):
                label = row.argmax()
                if row[label] >= options.threshold and kept[label] < most:
                    kept[label] += 1
                    yield pseudo_labels.write_example(encoded, row)

    return certain


def _write(path, records):
    """Writes a TFRecord file atomically."""
    with (
        whole_file(path) as temporary,
        tf.io.TFRecordWriter(temporary) as writer,
    ):
        for record in records:
            writer.write(record)


def _counts(path, classes):
    """Returns the number of images of each class in a file."""
    rows = tf.data.TFRecordDataset(path).as_numpy_iterator()
    labels = [pseudo_labels.read_label(row) for row in rows]
    return np.bincount(np.array(labels, np.int64), minlength=classes)
