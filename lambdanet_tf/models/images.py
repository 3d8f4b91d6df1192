"""Preprocessing of images, and names of classes."""

import pathlib
import warnings

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import one_of
from lambdanet_tf.models.graph import is_symbolic
from lambdanet_tf.specs import IMAGENET_MEAN
from lambdanet_tf.specs import IMAGENET_STD

PREPROCESSING = "preprocessing"  # The layer that normalizes images.


def rescaling(channels, spec=None):
    """Returns the layer that normalizes pixels, in float32 under any policy.

    It normalizes color images by the spec's mean and deviation, by default
    ImageNet's. It scales images with other channels to [-1, 1].
    """
    scale, offset = [1 / 127.5] * channels, [-1.0] * channels
    if channels == 3:
        mean = getattr(spec, "image_mean", IMAGENET_MEAN)
        std = getattr(spec, "image_std", IMAGENET_STD)
        scale = [1 / deviation for deviation in std]
        offset = [-m / d for m, d in zip(mean, std, strict=True)]
    return tf.keras.layers.Rescaling(
        scale, offset, dtype="float32", name=PREPROCESSING
    )


def preprocess_input(images, data_format=None, *, include_preprocessing=True):
    """Returns images as a network takes them: by default unchanged.

    The networks take pixels in [0, 255] and normalize them themselves, as
    EfficientNet and ConvNeXt of `keras.applications` do. This function exists
    because code for `keras.applications` calls it. It warns if an array seems
    to be scaled to [0, 1].

    Args:
        images: array, tensor or Keras tensor of pixels in [0, 255], channels
            last.
        data_format: None or "channels_last".
        include_preprocessing: the value that you built the network with. If
            False, the function normalizes color images to zero mean and unit
            variance over ImageNet, and scales other images to [-1, 1].

    Returns:
        `images` itself, or with `include_preprocessing=False` a float32 tensor
        of the same shape.

    Raises:
        ValueError: if `data_format` has another value.
    """
    one_of("data_format", data_format, (None, "channels_last"))
    if isinstance(images, np.ndarray | tf.Tensor) and tf.executing_eagerly():
        values = np.asarray(images)
        if values.dtype.kind == "f" and values.size and 0 < values.max() <= 1:
            warnings.warn(
                "The images seem to be scaled to [0, 1], but the networks "
                "expect pixels in [0, 255]: multiply them by 255.",
                stacklevel=2,
            )
    if include_preprocessing:
        return images
    layer = rescaling(images.shape[-1])
    return layer(images if is_symbolic(images) else tf.cast(images, "float32"))


def decode_predictions(predictions, top=5, class_names=None):
    """Returns the most likely classes of each example, with their scores.

    Args:
        predictions: array `(batch, classes)` of scores.
        top: how many classes to return.
        class_names: a name per class; None for the 1000 classes of ImageNet.

    Returns:
        For each example, a list of (class index, class name, score), best
        first.

    Raises:
        ValueError: if the numbers of classes differ.
    """
    predictions = tf.convert_to_tensor(predictions)
    if predictions.shape.rank != 2:
        raise ValueError(
            "`predictions` must have the shape (batch, classes). Received: "
            f"{tuple(predictions.shape)}."
        )
    classes = predictions.shape[-1]
    if class_names is None:
        class_names = _imagenet_names(classes)
    if len(class_names) != classes:
        raise ValueError(
            f"`class_names` must contain {classes} name(s), one per class of "
            f"`predictions`. Received: {len(class_names)} name(s)."
        )
    scores, indices = tf.math.top_k(predictions, min(top, classes))
    return [
        [
            (int(index), str(class_names[int(index)]), float(score))
            for index, score in zip(row_indices, row_scores, strict=True)
        ]
        for row_indices, row_scores in zip(
            indices.numpy(), scores.numpy(), strict=True
        )
    ]


def _imagenet_names(classes):
    """Returns the names of ImageNet's classes, such as `golden_retriever`."""
    if classes != 1000:
        raise ValueError(
            "Pass `class_names`: only the 1000 classes of ImageNet have names "
            f"by default. Received: predictions of {classes} classes."
        )
    path = pathlib.Path(__file__).parent / "imagenet_classes.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split()[1] for line in lines if not line.startswith("#")]
