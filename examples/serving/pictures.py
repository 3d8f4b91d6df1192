"""Image files as the signatures of an export want them."""

import os
import pathlib

from examples.serving.errors import ServingError

# The input of each signature.
INPUTS = {
    "serving_bytes": "image_bytes",
    "serving_default": "images",
    "features": "images",
}
# The signatures that want pixels; the other decodes files itself.
OF_PIXELS = ("serving_default", "features")


def read(files):
    """Returns the bytes of each file.

    Raises:
        ServingError: if a file cannot be read.
    """
    try:
        return [pathlib.Path(file).read_bytes() for file in files]
    except OSError as error:
        raise ServingError("image", f"cannot read an image: {error}") from error


def pixels(files, shape, evaluation_crop=1.0):
    """Decodes files for a signature of pixels, as `serving_bytes` does.

    Args:
        files: paths of JPEGs and PNGs.
        shape: (height, width, channels) of the model.
        evaluation_crop: that of the export.

    Returns:
        float32 array `(files, height, width, channels)` in [0, 255].

    Raises:
        ServingError: if a file is no image.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf  # noqa: PLC0415, of which files have no need

    from lambdanet_tf import data  # noqa: PLC0415

    *size, channels = shape
    crop = data.EvaluationCrop(tuple(size), evaluation_crop)
    images = []
    for file, encoded in zip(files, read(files), strict=True):
        try:
            images.append(crop(data.EncodedImage(encoded, channels)))
        except tf.errors.InvalidArgumentError as error:
            raise ServingError("image", f"{file} is no image") from error
    return tf.stack(images).numpy()
