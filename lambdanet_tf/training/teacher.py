"""Pseudo-labels images with a trained model (Noisy Student).

After Noisy Student (Xie et al., 2020), as the paper does for Table 5: the
images that the teacher is certain of are kept, with its probabilities as soft
labels, and each class gives equally many if that is asked for.
"""

import dataclasses
import itertools
import json
from collections.abc import Callable
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
from lambdanet_tf.training.recipe import from_dict

REPORT_FILE = "pseudo_labels.json"
_UNFINISHED = "unfinished"  # a folder, which goes at the end
_IMAGES_PER_FILE = 4096


def label_images(
    run: runs.Run,
    images: str,
    folder: str,
    options: LabelOptions | None = None,
    print_fn: Callable[[str], Any] = print,
) -> dict[str, Any]:
    """Writes images with the predictions of a run as their labels.

    The images are read in pieces of some thousand; called again after it was
    stopped, it goes on with the first piece that has no file.

    Args:
        run: the teacher, a finished run.
        images: as for `data.unlabelled_images`.
        folder: where the pseudo-labels will be.
        options: which are kept.
        print_fn: shows a line of text.

    Returns:
        The content of the file `pseudo_labels.json`: the arguments, how many
        images were read and kept, and how many of each class.

    Raises:
        ValueError: if the run has not finished, there are no such images, none
            is kept, or the folder holds something else.
        ImportError: if an optional package is missing.
        OSError: if the folder cannot be written.
    """
    options = options or LabelOptions()
    run.require_finished()
    source = data.unlabelled_images(
        images,
        run.image["channels"],
        options.data_dir or None,
        run.recipe.get("validation_split", 0.1),
    )
    output = runs.RunFolder(folder)
    unfinished = runs.RunFolder(output.file(_UNFINISHED))
    facts = {"run": run.folder, "images": images, **dataclasses.asdict(options)}
    facts["images_read"] = source.num_images
    _begin(output, unfinished, facts)
    parts = _label(run, source, unfinished, options, print_fn)
    labels, certainties = _predictions(parts)
    numbers = _choose(labels, certainties, options.images_per_class)
    kept = np.bincount(labels, numbers, len(run.classes)).astype(int).tolist()
    if not sum(kept):
        tf.io.gfile.rmtree(unfinished.path)
        raise UserError(
            "`threshold` must keep some of the images. Received: "
            f"{options.threshold}, which none of {source.num_images} reaches."
        )
    _write(parts, numbers, output, run.classes)
    report = {**facts, "certain": len(numbers), "kept": sum(kept)}
    report["kept_of_each_class"] = dict(zip(run.classes, kept, strict=True))
    output.write_text(REPORT_FILE, json.dumps(report, indent=2) + "\n")
    tf.io.gfile.rmtree(unfinished.path)
    return report


def _begin(output, unfinished, facts):
    """Notes the arguments, or finds that a stopped call had the same."""
    text = json.dumps(facts)
    if not matching(output.path, "*"):
        unfinished.write_text(REPORT_FILE, text)
    elif not unfinished.exists(REPORT_FILE) or (
        read_text(unfinished.file(REPORT_FILE)) != text
    ):
        raise UserError(
            "`folder` must be a new one, or one that the same call was stopped "
            f"in. Received: {output.path!r}."
        )


def _label(run, source, unfinished, options, print_fn):
    """Writes the images that the teacher is certain of; returns the files."""
    model = run.load_model()

    @tf.function(reduce_retracing=True)
    def predict(images):
        return tf.nn.softmax(tf.cast(model(images, training=False), tf.float32))

    crop = evaluation_crop(from_dict(run.recipe))
    files = []
    for start in range(0, source.num_images, _IMAGES_PER_FILE):
        files.append(unfinished.file(f"part-{len(files):05d}.tfrecord"))
        if tf.io.gfile.exists(files[-1]):
            continue
        examples = source.examples(
            source.scan().skip(start).take(_IMAGES_PER_FILE),
            lambda image, *_: (crop(image), image.encoded()),
        )
        records = [
            pseudo_labels.write_example(encoded, row)
            for pixels, images in examples.batch(options.batch_size)
            for encoded, row in zip(
                images.numpy(), predict(pixels).numpy(), strict=True
            )
            if row.max() >= options.threshold
        ]
        _write_records(files[-1], records)
        done = min(start + _IMAGES_PER_FILE, source.num_images)
        print_fn(
            f"{done:,} of {source.num_images:,} images; of the last "
            f"{done - start:,} it is certain of {len(records):,}"
        )
    return files


def _write_records(path, records):
    """Writes a TFRecord file, whole or not at all."""
    with (
        whole_file(path) as temporary,
        tf.io.TFRecordWriter(temporary) as writer,
    ):
        for record in records:
            writer.write(record)


def _read(files):
    yield from tf.data.TFRecordDataset(files).as_numpy_iterator()


def _predictions(files):
    """Returns class and probability of each image."""
    rows = [pseudo_labels.read_probabilities(record) for record in _read(files)]
    labels = np.array([row.argmax() for row in rows], np.int64)
    return labels, np.array([row.max() for row in rows])


def _choose(labels, certainties, images_per_class):
    """Returns how often each image is kept, once or equally many a class."""
    if not images_per_class:
        return np.ones(len(labels), np.int64)
    numbers = np.zeros(len(labels), np.int64)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        order = members[np.argsort(-certainties[members], kind="stable")]
        np.add.at(numbers, np.resize(order, images_per_class), 1)
    return numbers


def _write(parts, numbers, output, classes):
    """Writes the final files: each image as often as its number says."""
    count = -(-int(numbers.sum()) // _IMAGES_PER_FILE)
    records = itertools.chain.from_iterable(
        map(itertools.repeat, _read(parts), numbers)
    )
    for number in range(count):
        name = pseudo_labels.FILE_NAME.format(number=number, count=count)
        piece = itertools.islice(records, _IMAGES_PER_FILE)
        _write_records(output.file(name), piece)
    output.write_text(CLASS_FILE, "\n".join(classes) + "\n")


def table(report: dict[str, Any]) -> str:
    """Returns how many pseudo-labels each class has, as lines of text."""
    counts = report["kept_of_each_class"]
    width = max(map(len, counts))
    lines = [f"{name:{width}}  {number:>9,}" for name, number in counts.items()]
    return "\n".join([*lines, f"{'together':{width}}  {report['kept']:>9,}"])
