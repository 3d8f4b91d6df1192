"""Image sets of TensorFlow Datasets, by name."""

from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.data.images import EncodedImage
from lambdanet_tf.data.images import open_image
from lambdanet_tf.data.sets import ImageSet
from lambdanet_tf.data.sources import StreamedSource
from lambdanet_tf.environment import require


class TfdsSource(StreamedSource):
    """Images of a prepared set of TensorFlow Datasets, not yet decoded.

    Args:
        builder: `tfds.core.DatasetBuilder` of a set that is prepared.
        split: as TensorFlow Datasets write it: `"train[:90]"`.
        shuffle_buffer: images among which the next one is drawn.

    Raises:
        ValueError: if there is no image.
    """

    def __init__(self, builder: Any, split: str, shuffle_buffer: int):
        files = builder.info.splits[split].file_instructions
        self._files = [str(file.filename) for file in files]
        self._skips = np.array([file.skip for file in files], np.int64)
        self._features = builder.info.features
        tfds = require("tensorflow_datasets", extra="tfds")
        self._decoders = {"image": tfds.decode.SkipDecoding()}
        super().__init__([file.take for file in files], shuffle_buffer)

    def read_file(self, number: tf.Tensor) -> tf.data.Dataset:
        records = tf.data.TFRecordDataset(tf.gather(self._files, number))
        records = records.ignore_errors(log_warning=True)
        return records.skip(tf.gather(self._skips, number)).take(
            tf.gather(self._sizes, number)
        )

    def decode(self, item: tf.Tensor) -> tuple[EncodedImage, tf.Tensor]:
        example = self._features.deserialize_example(
            item, decoders=self._decoders
        )
        channels = self._features["image"].shape[-1] or 3
        image = open_image(example["image"], channels)
        return image, tf.cast(example["label"], tf.int32)

    def _name(self, file):
        return self._files[file]


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
    splits = _splits(name, info.splits, validation_split)
    sources = [
        TfdsSource(builder, split, shuffle_buffer)
        if split and info.splits[split].num_examples
        else None
        for split in splits
    ]
    return ImageSet.build(
        f"tfds:{name}",
        label.names,
        image.shape[-1] or 3,
        sources,
        f"{info.full_name} of TensorFlow Datasets",
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
    """Returns the names of training, validation and test images."""
    is_hidden = name.startswith("imagenet")
    test = "test" if "test" in splits and not is_hidden else "validation"
    if test not in splits:
        raise ValueError(
            f"{name} must have test or validation images. Received: "
            f"{', '.join(splits)}."
        )
    if test == "test" and "validation" in splits:
        return "train", "validation", "test"
    total = splits["train"].num_examples
    held = max(round(validation_split * total), 1) if validation_split else 0
    kept = total - held
    return f"train[:{kept}]", f"train[{kept}:]", test
