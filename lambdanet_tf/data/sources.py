"""Image sets by name, as recipes and the command line give them."""

from lambdanet_tf.data.arrays import read_arrays
from lambdanet_tf.data.digits import load_digits
from lambdanet_tf.data.folders import read_folder
from lambdanet_tf.data.records import read_records
from lambdanet_tf.data.tfds import read_tfds

SOURCES = {
    "digits": "scikit-learn's handwritten digits",
    "tfds:NAME": "a set of TensorFlow Datasets, such as tfds:cifar10",
    "folder:PATH": "a folder of images for each class",
    "records:PATH": "ImageNet as TFRecord files",
    "arrays:FILE": "an .npz file with x_train, y_train, x_test, y_test",
}


def load_images(name, holdout=0.1, data_dir=None, shuffle_buffer=16_384):
    """An image set by its name.

    Args:
        name: str. See `SOURCES`.
        holdout: float. Share of the training images that is held out to choose
            the best epoch.
        data_dir: str or None. Where TensorFlow Datasets keeps its sets.
        shuffle_buffer: int. For sets that are read in a row: images among
            which the next one is drawn.

    Returns:
        An `ImageSet`.

    Raises:
        ValueError: if there is no such set.
        ImportError: if an optional package is missing.
    """
    kind, _, place = name.partition(":")
    if name == "digits":
        return load_digits(holdout)
    if place and kind == "tfds":
        return read_tfds(place, holdout, data_dir, shuffle_buffer)
    if place and kind == "folder":
        return read_folder(place, holdout)
    if place and kind == "records":
        return read_records(place, holdout, shuffle_buffer)
    if place and kind == "arrays":
        return read_arrays(place, holdout)
    raise ValueError(
        f"`data` must be one of {', '.join(SOURCES)}. Received: {name!r}."
    )
