"""Pseudo-labels images with a trained model (Noisy Student).

After Noisy Student (Xie et al., 2020), as the paper does for Table 5: the
images that the teacher is certain of are kept, with its probabilities as soft
labels, and each class gives equally many if that is asked for.
"""

import dataclasses
import itertools
import json
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import runs
from lambdanet_tf.arguments import UserError
from lambdanet_tf.data import pseudo_labels
from lambdanet_tf.data.sets import CLASS_FILES
from lambdanet_tf.files import check_writable
from lambdanet_tf.files import read_text
from lambdanet_tf.files import sha256_of
from lambdanet_tf.files import whole_file
from lambdanet_tf.training.batches import evaluation_crop
from lambdanet_tf.training.devices import create_strategy
from lambdanet_tf.training.devices import local_rows
from lambdanet_tf.training.options import LabelOptions
from lambdanet_tf.training.options import RunOptions
from lambdanet_tf.training.recipe import from_dict
from lambdanet_tf.training.steps import prediction_step

REPORT_FILE = "pseudo_labels.json"
_PROGRESS_FILE = "unfinished.json"
_PART = "part-{:05d}.tfrecord"
_IMAGES_PER_FILE = 4096
_FETCH_TO_DEVICE = False  # The files of the images stay in the host's memory.


def label_images(
    run: runs.Run,
    images: str,
    folder: str,
    options: LabelOptions | None = None,
    print_fn: Callable[[str], Any] = print,
) -> dict[str, Any]:
    """Writes images with the predictions of a run as their labels.

    The images are read in pieces of some thousand; called again after it was
    stopped, it goes on with the piece at which it was, if neither the images
    nor the weights of the run have changed.

    Args:
        run: the teacher, a finished run.
        images: as for `data.unlabelled_images`.
        folder: where the pseudo-labels will be.
        options: which are kept.
        print_fn: shows a line of text.

    Returns:
        What the file `pseudo_labels.json` holds: the arguments, how many
        images were read, could not be read and were kept, and of each class.

    Raises:
        ValueError: if the run has not finished, there are no such images, none
            is kept, or the folder holds something else.
        ImportError: if an optional package is missing.
        OSError: if the folder cannot be written.

    Examples:
        >>> run = training.RunFolder("runs/smoke").read()
        >>> keep = training.LabelOptions(threshold=0.0, images_per_class=0)
        >>> kept = label_images(run, "digits", "labels", keep, print_fn=str)
        >>> tf.io.gfile.exists("labels/pseudo_labels.json")
        True
        >>> kept["images_read"] == data.load_digits().train.num_images
        True
    """
    options = options or LabelOptions()
    run.require_finished()
    source = data.unlabelled_images(
        images,
        run.image["channels"],
        options.data_dir or None,
        run.recipe.get("validation_split", 0.1),
    )
    facts = {
        "run": run.folder,
        "images": images,
        **dataclasses.asdict(options),
    }
    output = runs.RunFolder(folder)
    read = {
        "num_images": source.num_images,
        "weights": sha256_of(run.weights),
    }
    _begin(output, {**facts, **read})
    parts, bad = _label(run, source, output, options, print_fn)
    labels, certainties = _predictions(parts)
    numbers = _choose(labels, certainties, options.images_per_class)
    unfinished = [*parts, output.file(_PROGRESS_FILE)]
    if not numbers.sum():
        for file in unfinished:
            tf.io.gfile.remove(file)
        raise UserError(
            "`threshold` must keep some of the images. Received: "
            f"{options.threshold}, which none of {source.num_images} images "
            "reaches."
        )
    _write(parts, numbers, output, run.classes)
    kept = np.bincount(labels, numbers, len(run.classes)).astype(int).tolist()
    report = {
        **facts,
        "images_read": source.num_images,
        "bad_images": bad,
        "certain": len(numbers),
        "kept": sum(kept),
        "kept_of_each_class": dict(zip(run.classes, kept, strict=True)),
    }
    output.write_text(REPORT_FILE, json.dumps(report, indent=2) + "\n")
    for file in unfinished:
        tf.io.gfile.remove(file)
    return report


def _begin(output, facts):
    """Begins a folder, or finds that it was begun in the same way."""
    if output.exists(_PROGRESS_FILE):
        began = json.loads(read_text(output.file(_PROGRESS_FILE)))
        changed = [k for k, v in facts.items() if began.get(k) != v]
        if not changed:
            return
        raise UserError(
            f"{output.path} was begun with another run, other images or other "
            f"options. What differs: {', '.join(changed)}. Give the same ones, "
            "or choose another folder."
        )
    if tf.io.gfile.exists(output.path) and tf.io.gfile.listdir(output.path):
        raise UserError(
            "`folder` must be a new or an empty one. Received: "
            f"{output.path!r}."
        )
    check_writable(output.path)
    output.write_text(_PROGRESS_FILE, json.dumps(facts, indent=2) + "\n")


def _label(run, source, output, options, print_fn):
    """Writes the images that the teacher is certain of.

    Returns the files, and how many images of those read now are corrupt.
    """
    strategy = create_strategy(RunOptions())
    with strategy.scope():
        predict = prediction_step(run.load_model())
    crop = evaluation_crop(from_dict(run.recipe))

    def prepare(image, label, position):
        return crop(image), image.encoded()

    files, bad = [], 0
    for start in range(0, source.num_images, _IMAGES_PER_FILE):
        name = _PART.format(len(files))
        files.append(output.file(name))
        if output.exists(name):
            continue
        elements = source.scan().skip(start).take(_IMAGES_PER_FILE)
        examples = source.examples(elements, prepare)
        batches = examples.batch(options.batch_size)
        records = []
        for pixels, encoded in strategy.experimental_distribute_dataset(
            batches, tf.distribute.InputOptions(_FETCH_TO_DEVICE)
        ):
            rows = local_rows(strategy, predict(pixels))
            bad -= len(rows)
            records += [
                pseudo_labels.write_example(image, row)
                for image, row in zip(
                    local_rows(strategy, encoded), rows, strict=True
                )
                if row.max() >= options.threshold
            ]
        _write_records(output, name, records)
        done = min(start + _IMAGES_PER_FILE, source.num_images)
        bad += done - start
        print_fn(
            f"{done:,} of {source.num_images:,} images, "
            f"{len(records):,} of the last {done - start:,} with a probability "
            f"of {options.threshold:g} or more"
        )
    return files, bad


def _write_records(output, name, records):
    """Writes a TFRecord file, whole or not at all."""
    with (
        whole_file(output.file(name)) as temporary,
        tf.io.TFRecordWriter(temporary) as writer,
    ):
        for record in records:
            writer.write(record)


def _read(files: Sequence[str]) -> Iterator[bytes]:
    yield from tf.data.TFRecordDataset(list(files)).as_numpy_iterator()


def _predictions(files):
    """Class and probability of each image: int and float `(number,)`."""
    rows = [pseudo_labels.read_probabilities(record) for record in _read(files)]
    labels = np.array([row.argmax() for row in rows], np.int64)
    return labels, np.array([row.max() for row in rows])


def _choose(labels, certainties, images_per_class):
    """How often each image is kept: all once, or equally many of a class."""
    if not images_per_class:
        return np.ones(len(labels), np.int64)
    numbers = np.zeros(len(labels), np.int64)
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        order = members[np.argsort(-certainties[members], kind="stable")]
        chosen = np.resize(order, images_per_class)
        np.add.at(numbers, chosen, 1)
    return numbers


def _write(parts, numbers, output, classes):
    """Writes the final files: each image as often as its number says."""
    count = -(-int(numbers.sum()) // _IMAGES_PER_FILE)
    records = itertools.chain.from_iterable(
        itertools.repeat(record, times)
        for record, times in zip(_read(parts), numbers, strict=True)
    )
    for number in range(count):
        name = pseudo_labels.FILE_NAME.format(number=number, count=count)
        piece = itertools.islice(records, _IMAGES_PER_FILE)
        _write_records(output, name, piece)
    output.write_text(CLASS_FILES[0], "\n".join(classes) + "\n")


def table(report: dict[str, Any]) -> str:
    """Returns how many pseudo-labels each class has, as lines of text."""
    counts = report["kept_of_each_class"]
    width = max(map(len, counts))
    lines = [f"{name:{width}}  {number:>9,}" for name, number in counts.items()]
    return "\n".join([*lines, f"{'together':{width}}  {report['kept']:>9,}"])
