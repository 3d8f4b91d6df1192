"""Image files as the signatures of an export want them."""

import importlib
import os
import pathlib

import numpy as np

from examples.serving.errors import ServingError

# The input of each signature.
INPUTS = {
    "serving_bytes": "image_bytes",
    "serving_default": "images",
    "features": "images",
    "classify": "inputs",
}
# The signatures that want pixels; the others decode files themselves.
OF_PIXELS = ("serving_default", "features")
ENCODED_FEATURE = "image/encoded"


def read(files):
    """Returns the bytes of each file.

    Raises:
        ServingError: if a file cannot be read.
    """
    try:
        return [pathlib.Path(file).read_bytes() for file in files]
    except OSError as error:
        raise ServingError("image", f"cannot read an image: {error}") from error


def pixels(files, shape):
    """Decodes files for a signature of pixels; needs TensorFlow.

    The whole image is resized, as `serving_bytes` does by default. Where an
    export crops, leave cropping to it and send the file.

    Args:
        files: paths of JPEGs and PNGs.
        shape: (height, width, channels) of the model.

    Returns:
        float32 array `(files, height, width, channels)` in [0, 255].

    Raises:
        ServingError: if a file is no image.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    tf = importlib.import_module("tensorflow")
    *size, channels = shape
    images = []
    for file, encoded in zip(files, read(files), strict=True):
        try:
            image = tf.io.decode_image(encoded, channels)
        except tf.errors.InvalidArgumentError as error:
            raise ServingError("image", f"{file} is no image") from error
        images.append(tf.image.resize(image, size, antialias=True))
    return np.stack([image.numpy() for image in images])
