"""Image sets of TensorFlow Datasets, by name."""

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.data.images import EncodedImage
from lambdanet_tf.data.images import open_image
from lambdanet_tf.data.sets import ImageSet
from lambdanet_tf.data.sets import validation_count
from lambdanet_tf.data.sources import StreamedSource
from lambdanet_tf.data.sources import fill_up
from lambdanet_tf.environment import require

_MAX_FILES = 64


class TfdsSource(StreamedSource):
    """Images of a prepared set of TensorFlow Datasets, not yet decoded.

    Args:
        builder: `tfds.core.DatasetBuilder` of a set that is prepared.
        split: a part of it, as TensorFlow Datasets write it: `"train[:90]"`.
        shuffle_buffer: images among which the next one is drawn.

    Raises:
        ValueError: if there is no image.
    """

    def __init__(self, builder: Any, split: str, shuffle_buffer: int):
        tfds = require("tensorflow_datasets", extra="tfds")
        info = builder.info
        self.splits = tfds.even_splits(
            split, min(info.splits[split].num_shards, _MAX_FILES)
        )
        super().__init__(
            [info.splits[part].num_examples for part in self.splits],
            shuffle_buffer,
            info.features["label"].num_classes,
        )
        self._name = info.full_name
        self._channels = info.features["image"].shape[-1] or 3
        config = tfds.ReadConfig(try_autocache=False, interleave_cycle_length=1)
        datasets = [
            builder.as_dataset(
                split=part,
                shuffle_files=False,
                decoders={"image": tfds.decode.SkipDecoding()},
                read_config=config,
            )
            for part in self.splits
        ]
        self._structure = datasets[0].element_spec
        self._variants = tf.stack(
            [tf.data.experimental.to_variant(dataset) for dataset in datasets]
        )

    def read_file(self, number: tf.Tensor) -> tf.data.Dataset:
        variant = tf.gather(self._variants, number)
        records = tf.data.experimental.from_variant(variant, self._structure)
        return fill_up(records, tf.gather(self._sizes, number))

    def decode(
        self, item: dict[str, tf.Tensor]
    ) -> tuple[EncodedImage, tf.Tensor]:
        image = open_image(item["image"], self._channels)
        return image, tf.cast(item["label"], tf.int32)

    def _describe(self, file, number, item, error):
        return f"{self._name}, {self.splits[file]}: image {number}: {error}"

    def _identity(self) -> Iterator[bytes]:
        yield f"{self._name} {[*map(str, self.splits)]} {self._sizes}".encode()


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
        validation_split: share of the training images.
        data_dir: where the sets are kept; None for the default.
        shuffle_buffer: images among which the next one is drawn.
        download: whether to download and prepare a set that is not prepared.

    Returns:
        An `ImageSet`; its pixels are in [0, 255].

    Raises:
        ImportError: if tensorflow-datasets is not installed.
        ValueError: if there is no such set, it has no labelled images, or it
            is not prepared and cannot, or shall not, be.

    Examples:
        >>> read_tfds("no_such_set", download=False)
        Traceback (most recent call last):
            ...
        ValueError: ...
    """
    tfds = require("tensorflow_datasets", extra="tfds")
    builder = _builder(tfds, name, data_dir)
    _check_features(tfds, name, dict(builder.info.features))
    if not builder.is_prepared():
        _prepare(name, builder, download)
    splits = builder.info.splits
    test = _test_split(name, splits)
    total = splits["train"].num_examples
    if test != "validation" and "validation" in splits:
        names = ("train", "validation", test)
        notes = ["the validation images are the set's own"]
    else:
        kept = total - validation_count(validation_split, total)
        names = (f"train[:{kept}]", f"train[{kept}:]", test)
        notes = []
    sources = [
        TfdsSource(builder, split, shuffle_buffer)
        if splits[split].num_examples
        else None
        for split in names
    ]
    return ImageSet.build(
        f"tfds:{name}",
        builder.info.features["label"].names,
        builder.info.features["image"].shape[-1] or 3,
        sources,
        f"{builder.info.full_name} of TensorFlow Datasets",
        notes,
    )


def _builder(tfds, name, data_dir):
    try:
        return tfds.builder(name, data_dir=data_dir)
    # What TensorFlow Datasets raise for a wrong name, configuration or version
    # is of many types, and hundreds of lines long.
    except Exception as error:
        known = tfds.list_builders(with_community_datasets=False)
        plain_name = name.partition(":")[0].partition("/")[0]
        if plain_name in known:
            raise ValueError(
                f"`data` must be a set of TensorFlow Datasets. Received: tfds:"
                f"{name}: {_first_line(error)}"
            ) from error
        raise ValueError(
            f"There is no set {name!r} in TensorFlow Datasets."
            f"{did_you_mean(plain_name, known)}"
        ) from error


def _prepare(name, builder, download):
    folder = builder.data_path
    if not download:
        raise ValueError(
            f"tfds:{name} is not prepared in {folder}, and nothing is to be "
            f"downloaded. Prepare it (tfds build {name}), or take random "
            "images of its size: fake:HEIGHTxWIDTHxCHANNELS,classes=N,images=N"
        )
    try:
        builder.download_and_prepare()
    # Of many types as well: no network, no space, wrong checksums, files that
    # must be downloaded by hand.
    except Exception as error:
        raise ValueError(
            f"tfds:{name} could not be prepared in {folder}: "
            f"{_first_line(error)}"
        ) from error


def _first_line(error):
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].strip()


def _check_features(tfds, name, features):
    image, label = features.get("image"), features.get("label")
    if not isinstance(image, tfds.features.Image) or not isinstance(
        label, tfds.features.ClassLabel
    ):
        raise ValueError(
            "`data` must be a set with an `image` and a `label`. Received: "
            f"{name}, whose features are {', '.join(features)}."
        )
    # Floats are kept as their bits, in a PNG file of other channels.
    if tf.as_dtype(image.np_dtype) not in (tf.uint8, tf.uint16):
        raise ValueError(
            f"`data` must be a set with images of uint8. Received: {name}, "
            f"whose images are {tf.as_dtype(image.np_dtype).name}."
        )


def _test_split(name, splits):
    hidden = name.startswith("imagenet")
    for split in ("validation", "test") if hidden else ("test", "validation"):
        if split in splits:
            return split
    raise ValueError(
        f"{name} must have test or validation images. Received: "
        f"{', '.join(splits)}."
    )
