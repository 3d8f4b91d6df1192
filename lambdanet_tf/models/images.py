"""What goes into a network and what comes out: images, names of classes."""

import pathlib

import tensorflow as tf

from lambdanet_tf.specs import IMAGENET_MEAN
from lambdanet_tf.specs import IMAGENET_STD


def _scale_and_offset(channels, mean, std):
    """Of x -> scale * x + offset; not of color images: to [-1, 1]."""
    if channels != 3:
        return [1 / 127.5] * channels, [-1.0] * channels
    scale = [1 / deviation for deviation in std]
    return scale, [-m / d for m, d in zip(mean, std, strict=True)]


def preprocess_input(images, mean=IMAGENET_MEAN, std=IMAGENET_STD):
    """Normalizes images for models built with `include_preprocessing=False`.

    Color images get zero mean and unit variance over ImageNet, images with
    another number of channels the range [-1, 1].

    Args:
        images: array or tensor of pixels in [0, 255], channels last.
        mean: of each channel of color images, in [0, 255].
        std: their standard deviations.

    Returns:
        float32 tensor of the same shape.

    Raises:
        ValueError: if the number of channels is unknown.
    """
    images = tf.cast(images, tf.float32)
    if images.shape.rank is None or images.shape[-1] is None:
        raise ValueError(
            "`images` must have a known number of channels, their last axis. "
            f"Received: images of shape {images.shape}."
        )
    scale, offset = _scale_and_offset(images.shape[-1], mean, std)
    return images * tf.constant(scale) + tf.constant(offset)


def preprocessing(images, mean=IMAGENET_MEAN, std=IMAGENET_STD):
    """The same as a layer of the model, in float32 under any precision."""
    scale, offset = _scale_and_offset(images.shape[-1], mean, std)
    return tf.keras.layers.Rescaling(
        scale, offset, dtype="float32", name="preprocessing"
    )(images)


def image_input(input_tensor, input_shape, recommended_size, stride):
    """The images as a Keras tensor, and the tensor the model begins with.

    Args:
        input_tensor: None or Keras tensor.
        input_shape: None or (height, width, channels).
        recommended_size: height and width if neither is given.
        stride: the smallest height and width, in pixels.

    Returns:
        The inputs of the model and the images. They differ if `input_tensor`
        has been computed from something else.
    """
    if input_tensor is None:
        size = recommended_size
        shape = tuple(input_shape or (size, size, 3))
        _check_shape(shape, stride)
        images = tf.keras.Input(shape, name="images")
        return images, images
    if not isinstance(input_tensor, type(tf.keras.Input((1,)))):
        raise ValueError(
            "`input_tensor` must be a tensor of `tf.keras`, as `tf.keras.Input`"
            f" returns. Received: {type(input_tensor)}."
        )
    shape = tuple(input_tensor.shape[1:])
    _check_shape(shape, stride)
    if input_shape is not None and tuple(input_shape) != shape:
        raise ValueError(
            "`input_shape` and `input_tensor` must agree; give one. Received: "
            f"input_shape={tuple(input_shape)}, input_tensor of {shape}."
        )
    return tf.keras.utils.get_source_inputs(input_tensor), input_tensor


def _check_shape(shape, stride):
    """Raises a ValueError unless images of a shape fit the network."""
    if len(shape) != 3 or shape[-1] is None:
        raise ValueError(
            "`input_shape` must be (height, width, channels), with a number "
            f"of channels. Received: {shape}."
        )
    if any(size is not None and size < stride for size in shape[:2]):
        raise ValueError(
            f"Images must have at least {stride}x{stride} pixels, the total "
            f"stride of this network. Received: input_shape={shape}. Enlarge "
            "the images, or change `strides`, `stem_strides` and `stem_pool`."
        )


def decode_predictions(predictions, top=5, class_names=None):
    """The likeliest classes of each example, with names and probabilities.

    Args:
        predictions: array `(batch, classes)` of scores.
        top: how many classes to return.
        class_names: a name per class; None for the 1000 classes of ImageNet.

    Returns:
        Per example a list of (class index, class name, score), best first.

    Raises:
        ValueError: if the numbers of classes disagree.
    """
    predictions = tf.convert_to_tensor(predictions)
    if predictions.shape.rank != 2:
        raise ValueError(
            "`predictions` must be (batch, classes). Received: shape "
            f"{tuple(predictions.shape)}."
        )
    classes = predictions.shape[-1]
    if class_names is None:
        class_names = _imagenet_names(classes)
    if len(class_names) != classes:
        raise ValueError(
            f"`class_names` must hold {classes} names, one per class. "
            f"Received: {len(class_names)}."
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
    """Names of ImageNet's classes, such as `golden_retriever`."""
    if classes != 1000:
        raise ValueError(
            "`class_names` can be left out only for the 1000 classes of "
            f"ImageNet. Received: predictions of {classes} classes."
        )
    path = pathlib.Path(__file__).parent / "imagenet_classes.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    return [line.split()[1] for line in lines if not line.startswith("#")]
