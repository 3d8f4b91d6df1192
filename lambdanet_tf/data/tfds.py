"""Image sets of TensorFlow Datasets, by name."""

from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.data.records import RecordSource
from lambdanet_tf.data.sets import ImageSet
from lambdanet_tf.environment import require


def read_tfds(
    name: str,
    validation_split: float = 0.02,
    data_dir: str | None = None,
    shuffle_buffer: int = 16_384,
    download: bool = True,
) -> ImageSet:
    """Reads the `ImageSet` of a set of TensorFlow Datasets.

    The set's own test images are the test set; where it has none, or keeps
    their labels to itself as ImageNet does, its validation images. With both,
    its validation images are the validation set and `validation_split` is not
    used; else the last `validation_split` of the training images are.
    """
    tfds = require("tensorflow_datasets", extra="tfds")
    builder = _prepared(tfds, name, data_dir, download)
    info = builder.info
    image, label = _features(tfds, name, info)
    channels = image.shape[-1] or 3
    decoders = {"image": tfds.decode.SkipDecoding()}

    def parse(record):
        example = info.features.deserialize_example(record, decoders=decoders)
        return example["image"], tf.cast(example["label"], tf.int32)

    def source(split) -> Any:
        files = info.splits[split].file_instructions
        if not files:
            return None
        return RecordSource(
            [str(file.filename) for file in files],
            [file.take for file in files],
            parse,
            shuffle_buffer,
            channels,
            [file.skip for file in files],
        )

    return ImageSet(
        f"tfds:{name}",
        tuple(label.names),
        channels,
        *map(source, _splits(name, info.splits, validation_split)),
        notes=(f"version {info.version}",),
    )


def _features(tfds, name, info):
    """Returns the features of images and labels."""
    features = dict(info.features)
    image: Any = features.get("image")
    label: Any = features.get("label")
    is_labelled = isinstance(image, tfds.features.Image)
    is_labelled &= isinstance(label, tfds.features.ClassLabel)
    # Floats are kept as their bits, in a PNG file of other channels.
    if not is_labelled or image.np_dtype not in (np.uint8, np.uint16):
        raise ValueError(
            "`data` must be a set with a `label` and an `image` of uint8. "
            f"Received: {name}, with {features}."
        )
    return image, label


def _prepared(tfds, name, data_dir, download):
    """Returns the builder of a set, or says in a line why there is none.

    TensorFlow Datasets raise errors of many types, some of hundreds of lines.
    """
    try:
        builder = tfds.builder(name, data_dir=data_dir)
        if download:
            builder.download_and_prepare()
        elif not builder.is_prepared():
            raise ValueError(
                f"not prepared in {builder.data_path}, and nothing is to be "
                f"downloaded. Prepare it: tfds build {name}"
            )
    except Exception as error:
        text = str(error).partition("\n")[0]
        raise ValueError(f"tfds:{name}: {text}") from error
    return builder


def _splits(name, splits, validation_split):
    """Returns the names of training, validation and test images."""
    is_hidden = name.startswith("imagenet")  # The labels of its test images.
    if "test" in splits and "validation" in splits and not is_hidden:
        return "train", "validation", "test"
    test = "test" if "test" in splits and not is_hidden else "validation"
    total = splits["train"].num_examples
    kept = total - max(round(validation_split * total), validation_split > 0)
    return f"train[:{kept}]", f"train[{kept}:]", test
