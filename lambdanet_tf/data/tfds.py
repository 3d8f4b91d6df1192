"""Image sets of TensorFlow Datasets, by name."""

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
    """Reads the `ImageSet` of a set of TensorFlow Datasets.

    The set's own test images are the test set; where it has none, or keeps
    their labels to itself as ImageNet does, its validation images. With both,
    its validation images are the validation set and `validation_split` is not
    used; else the last `validation_split` of the training images are.
    """
    tfds = require("tensorflow_datasets", extra="tfds")
    builder = tfds.builder(name)
    builder.download_and_prepare()
    info = builder.info
    features = dict(info.features)
    if not {"image", "label"} <= features.keys():
        raise ValueError(
            "`data` must be a set with an `image` and a `label`. Received: "
            f"{name}, with {', '.join(features)}."
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
    for path in paths:  # A pipeline would look for it without end.
        tf.io.gfile.stat(path)
    sizes, skipped = zip(*((x.take, x.skip) for x in files), strict=True)
    return RecordSource(paths, sizes, parse, shuffle_buffer, channels, skipped)


def _splits(name, splits, validation_split):
    """Returns the names of training, validation and test images."""
    is_hidden = name.startswith("imagenet")  # The labels of its test images.
    if "test" in splits and "validation" in splits and not is_hidden:
        return "train", "validation", "test"
    test = "test" if "test" in splits and not is_hidden else "validation"
    total = splits["train"].num_examples
    kept = total - max(round(validation_split * total), validation_split > 0)
    return f"train[:{kept}]", f"train[{kept}:]", test
