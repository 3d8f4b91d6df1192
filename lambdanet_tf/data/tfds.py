"""Image sets from TensorFlow Datasets, by name."""

from typing import Any

import tensorflow as tf

from lambdanet_tf.data.records import RecordSource
from lambdanet_tf.data.sets import ImageSet
from lambdanet_tf.environment import require


def read_tfds(
    name: str,
    validation_split: float = 0.02,
    shuffle_buffer: int = 16_384,
) -> ImageSet:
    """Reads an `ImageSet` from TensorFlow Datasets.

    It tests on the set's test images. If there are none, or if they have no
    labels, as in ImageNet, it tests on the validation images. If there are both
    test and validation images, it ignores `validation_split`; otherwise it
    validates on that fraction of the training images, the last ones.
    """
    tfds = require("tensorflow_datasets", extra="tfds")
    builder = tfds.builder(name)
    builder.download_and_prepare()
    info = builder.info
    features = dict(info.features)
    if not {"image", "label"} <= features.keys():
        raise ValueError(
            "`data` must be a set with the features `image` and `label`. "
            f"Received: {name}, with {', '.join(features)}."
        )
    channels = features["image"].shape[-1] or 3
    decoders = {"image": tfds.decode.SkipDecoding()}

    def parse(record):
        example = info.features.deserialize_example(record, decoders=decoders)
        return example["image"], tf.cast(example["label"], tf.int32)

    return ImageSet(
        f"tfds:{name}",
        tuple(features["label"].names),
        channels,
        *(
            _source(info.splits[split], parse, shuffle_buffer, channels)
            for split in _splits(name, info.splits, validation_split)
        ),
        notes=(f"version {info.version}",),
    )


def _source(split, parse, shuffle_buffer, channels) -> Any:
    """Returns the source of a split, or None if it has no images."""
    files = split.file_instructions
    if not files:
        return None
    paths = [str(file.filename) for file in files]
    for path in paths:  # A pipeline would wait for a missing file forever.
        tf.io.gfile.stat(path)
    sizes, skipped = zip(*((x.take, x.skip) for x in files), strict=True)
    return RecordSource(paths, sizes, parse, shuffle_buffer, channels, skipped)


def _splits(name, splits, validation_split):
    """Returns the names of training, validation and test images."""
    is_hidden = name.startswith("imagenet")  # Its test images have no labels.
    if "test" in splits and "validation" in splits and not is_hidden:
        return "train", "validation", "test"
    test = "test" if "test" in splits and not is_hidden else "validation"
    total = splits["train"].num_examples
    kept = total - max(round(validation_split * total), validation_split > 0)
    return f"train[:{kept}]", f"train[{kept}:]", test
