"""Image sets of TensorFlow Datasets, by name."""

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

    Args:
        name: as `tfds.builder` takes it, for example `"cifar10"` or
            `"imagenet2012:5.1.0"`.
        validation_split: fraction of the training images.
        data_dir: where the sets are kept; None for the default.
        shuffle_buffer: images among which the next one is drawn.
        download: whether to download and prepare a set that is not prepared.

    Returns:
        An `ImageSet`; its pixels are in [0, 255].

    Raises:
        ImportError: if tensorflow-datasets is not installed.
        ValueError: if there is no such set, it has no labelled images, or it
            is not prepared and shall not, or cannot, be.

    Examples:
        >>> read_tfds("no_such_set", download=False)
        Traceback (most recent call last):
            ...
        ValueError: ...
    """
    tfds = require("tensorflow_datasets", extra="tfds")
    builder = _prepared(tfds, name, data_dir, download)
    info, features = builder.info, dict(builder.info.features)
    image, label = features.get("image"), features.get("label")
    is_labelled = isinstance(image, tfds.features.Image)
    is_labelled &= isinstance(label, tfds.features.ClassLabel)
    # Floats are kept as their bits, in a PNG file of other channels.
    if not is_labelled or image.np_dtype not in (np.uint8, np.uint16):
        raise ValueError(
            "`data` must be a set with a `label` and an `image` of uint8. "
            f"Received: {name}, with {features}."
        )
    channels = image.shape[-1] or 3
    decoders = {"image": tfds.decode.SkipDecoding()}

    def parse(record):
        example = info.features.deserialize_example(record, decoders=decoders)
        return example["image"], tf.cast(example["label"], tf.int32)

    def source(split):
        files = info.splits[split].file_instructions if split else ()
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


def _prepared(tfds, name, data_dir, download):
    """Returns the builder of a set, in one sentence if that fails.

    TensorFlow Datasets raise errors of many types for a wrong name or version,
    no network, no space, files to download by hand: some hundreds of lines.
    """
    try:
        builder = tfds.builder(name, data_dir=data_dir)
        if download:
            builder.download_and_prepare()
    except Exception as error:
        text = next(iter(str(error).split("\n")))
        raise ValueError(f"tfds:{name}: {text}") from error
    if not builder.is_prepared():
        raise ValueError(
            f"tfds:{name} is not prepared in {builder.data_path}, and nothing "
            f"is to be downloaded. Prepare it: tfds build {name}"
        )
    return builder


def _splits(name, splits, validation_split):
    """Returns the names of training, validation and test images, or None."""
    is_hidden = name.startswith("imagenet")  # The labels of its test images.
    if "test" in splits and not is_hidden:
        test = "test"
        if "validation" in splits:
            return "train", "validation", test
    else:
        test = "validation" if "validation" in splits else None
    total = splits["train"].num_examples
    kept = total - max(round(validation_split * total), validation_split > 0)
    return f"train[:{kept}]", f"train[{kept}:]", test
