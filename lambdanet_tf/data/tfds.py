"""Image sets of TensorFlow Datasets, by name."""

import tensorflow as tf

from lambdanet_tf.data.decode import EncodedImage
from lambdanet_tf.data.images import ImageSet
from lambdanet_tf.data.streams import streamed_split
from lambdanet_tf.environment import require

_MOST_PIECES = 64


def read_tfds(name, holdout=0.02, data_dir=None, shuffle_buffer=16_384):
    """The `ImageSet` of a set of TensorFlow Datasets.

    The set's own test images are the test set; where it has none, or keeps
    their labels to itself as ImageNet does, its validation images. The last
    `holdout` of the training images choose the best epoch.

    Args:
        name: str. As `tfds.builder` takes it, for example `"cifar10"` or
            `"imagenet2012:5.1.0"`.
        holdout: float. Share of the training images that is held out.
        data_dir: str or None. Where the sets are kept; None for the default.
        shuffle_buffer: int. Images among which the next one is drawn.

    Returns:
        An `ImageSet`.

    Raises:
        ImportError: if tensorflow-datasets is not installed.
        ValueError: if the set is not one of labelled images.
    """
    tfds = require("tensorflow_datasets", extra="tfds")
    builder = tfds.builder(name, data_dir=data_dir)
    _check_features(tfds, name, builder.info.features)
    builder.download_and_prepare()
    total = builder.info.splits["train"].num_examples
    test = _test_split(name, builder.info.splits)
    held = max(round(holdout * total), 1) if holdout else 0
    counts = [total - held, held, builder.info.splits[test].num_examples]
    ranges = [f"train[:{counts[0]}]", f"train[{counts[0]}:]", test]
    channels = builder.info.features["image"].shape[-1] or 3
    splits = [
        _split(tfds, builder, part, count, channels, shuffle_buffer)
        if count
        else None
        for part, count in zip(ranges, counts, strict=True)
    ]
    return ImageSet(
        name=f"tfds:{name}",
        classes=tuple(builder.info.features["label"].names),
        channels=channels,
        train=splits[0],
        validation=splits[1],
        test=splits[2],
        description=(
            f"{builder.info.full_name} of TensorFlow Datasets: {counts[0]:,} "
            f"images to learn from, {counts[1]:,} to choose the best epoch, "
            f"{counts[2]:,} to test."
        ),
    )


def _split(tfds, builder, part, num_images, channels, shuffle_buffer):
    """A split of a part that is read as equal pieces."""
    num_pieces = min(builder.info.splits[part].num_shards, _MOST_PIECES)
    config = tfds.ReadConfig(
        add_tfds_id=True, try_autocache=False, interleave_cycle_length=1
    )
    pieces = [
        builder.as_dataset(
            split=piece,
            shuffle_files=False,
            decoders={"image": tfds.decode.SkipDecoding()},
            read_config=config,
        )
        for piece in tfds.even_splits(part, num_pieces)
    ]
    structure = pieces[0].element_spec
    variants = tf.stack(
        [tf.data.experimental.to_variant(piece) for piece in pieces]
    )

    def piece(index):
        variant = tf.gather(variants, index)
        records = tf.data.experimental.from_variant(variant, structure)
        return records.map(
            lambda record: {
                "name": record["tfds_id"],
                "image": record["image"],
                "label": tf.cast(record["label"], tf.int32),
            }
        )

    def read(element):
        return EncodedImage(element["image"], channels), element["label"]

    return streamed_split(num_images, num_pieces, piece, read, shuffle_buffer)


def _check_features(tfds, name, features):
    features = dict(features)
    image = features.get("image")
    label = features.get("label")
    if not isinstance(image, tfds.features.Image) or not isinstance(
        label, tfds.features.ClassLabel
    ):
        raise ValueError(
            "`data` must be a set with an `image` and a `label`. Received: "
            f"{name}, whose features are {', '.join(features)}."
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
