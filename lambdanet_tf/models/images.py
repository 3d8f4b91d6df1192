"""What goes into a network and what comes out: images, names of classes."""

import functools
import pathlib
import warnings
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import one_of
from lambdanet_tf.specs import IMAGENET_MEAN
from lambdanet_tf.specs import IMAGENET_STD
from lambdanet_tf.specs.attributes import color

PREPROCESSING = "preprocessing"  # The layer that normalizes images.
_CHECKED_IMAGES = 32
_METHODS = (
    "fit",
    "evaluate",
    "predict",
    "train_on_batch",
    "test_on_batch",
    "predict_on_batch",
)


def _scale_and_offset(channels, mean, std):
    """Of x -> scale * x + offset; not of color images: to [-1, 1]."""
    if channels != 3:
        return [1 / 127.5] * channels, [-1.0] * channels
    scale = [1 / deviation for deviation in std]
    return scale, [-m / d for m, d in zip(mean, std, strict=True)]


def preprocess_input(
    images,
    data_format=None,
    *,
    include_preprocessing=True,
    mean=None,
    std=None,
):
    """Returns images as a network takes them: by default unchanged.

    The networks take pixels in [0, 255] and normalize them inside, as
    EfficientNet and ConvNeXt of `keras.applications` do. The function is here
    because code for `keras.applications` calls it. A network built with
    `include_preprocessing=False` takes what it returns with the same argument:
    color images of zero mean and unit variance over ImageNet, images with
    another number of channels in [-1, 1].

    Args:
        images: array, tensor or Keras tensor of pixels in [0, 255], channels
            last.
        data_format: None or "channels_last".
        include_preprocessing: as the network was built.
        mean: of each channel of color images, in [0, 255], if the network does
            not normalize them; None for ImageNet's.
        std: their standard deviations; None for ImageNet's.

    Returns:
        `images` itself; without preprocessing in the network a float32 tensor
        of the same shape.

    Raises:
        ValueError: if `data_format` is another, `mean` or `std` are given for a
            network that normalizes its images, or not for the three channels
            of color images, or if the number of channels is unknown where it
            counts.

    Examples:
        >>> images = tf.constant([[[[0.0], [255.0]]]])
        >>> new = preprocess_input(images, include_preprocessing=False)
        >>> new.numpy().ravel().tolist()
        [-1.0, 1.0]
    """
    one_of("data_format", data_format, (None, "channels_last"))
    one_of("include_preprocessing", include_preprocessing, (True, False))
    if include_preprocessing:
        _refuse(
            "The network normalizes its images by itself. For one that does "
            "not, set `include_preprocessing=False`.",
            mean=mean,
            std=std,
        )
        return images
    is_symbolic = hasattr(images, "_keras_history")
    if not is_symbolic:
        images = tf.cast(images, tf.float32)
    shape = tf.TensorShape(images.shape)
    channels = None if shape.rank is None else shape[-1]
    if channels is None:
        raise ValueError(
            "`images` must have a known number of channels, their last axis. "
            f"Received: images of shape {images.shape}."
        )
    if channels != 3:
        _refuse(
            f"Images of {channels} channels are scaled to [-1, 1].",
            mean=mean,
            std=std,
        )
    mean = color("mean", IMAGENET_MEAN if mean is None else mean)
    std = color("std", IMAGENET_STD if std is None else std, above=0)
    scale, offset = _scale_and_offset(channels, mean, std)
    if is_symbolic:
        return tf.keras.layers.Rescaling(scale, offset, dtype="float32")(images)
    return images * tf.constant(scale) + tf.constant(offset)


def _refuse(reason, **arguments):
    """Raises a ValueError if an argument is given in vain."""
    for name, value in arguments.items():
        if value is not None:
            raise ValueError(
                f"`{name}` must be None here. {reason} Received: "
                f"{name}={value!r}."
            )


def preprocessing(images, spec):
    """The same as a layer of the model, in float32 under any precision."""
    scale, offset = _scale_and_offset(
        images.shape[-1],
        getattr(spec, "image_mean", IMAGENET_MEAN),
        getattr(spec, "image_std", IMAGENET_STD),
    )
    layer = tf.keras.layers.Rescaling(
        scale, offset, dtype="float32", name=PREPROCESSING
    )
    layer.check_range = _RangeCheck()
    call = layer.call

    @functools.wraps(call)
    def checked(inputs, *args, **kwargs):
        if tf.executing_eagerly():
            layer.check_range(inputs)
        return call(inputs, *args, **kwargs)

    layer.call = tf.autograph.experimental.do_not_convert(checked)
    return layer(images)


class _RangeCheck:
    """Warns, once, of images that have been scaled or normalized before.

    Values are seen in eager calls and in arrays and tensors that Keras'
    methods are given; a compiled graph is as it is without. Once an image has
    had pixels, nothing is looked at any more.
    """

    def __init__(self):
        self._is_done = False

    def __call__(self, images):
        if self._is_done or not tf.as_dtype(images.dtype).is_floating:
            return
        values = np.asarray(images[:_CHECKED_IMAGES]).astype(np.float32)
        if not values.size or not np.all(np.isfinite(values)):
            return
        low, high = float(values.min()), float(values.max())
        # Bicubic resizing puts pixels below 0, at edges and not by much.
        is_centered = low < -high / 2 or np.mean(values < -0.01) > 0.1
        if high > 50 or (low >= 0 and high > 3):
            self._is_done = not is_centered
            return
        # Whole numbers may be dark pixels, and so may fractions.
        is_whole = np.all(values == np.round(values))
        if is_whole or (high > 1 and not is_centered):
            return
        ranges = "[0, 1]" if low >= 0 else "[-1, 1]"
        if low < -1 or high > 1:
            ranges = "a range of zero mean and unit variance"
        self._is_done = True
        warnings.warn(
            f"The images seem to be scaled to {ranges}: they lie between "
            f"{low:.3g} and {high:.3g}. This network takes pixels in [0, 255] "
            "and normalizes them itself: give it images as they are, or build "
            "it with `include_preprocessing=False`.",
            stacklevel=3,
        )


def check_range(model):
    """Lets a model check the images that its methods are given as arrays.

    They run as compiled graphs, where the layer sees no values.
    """
    layers = [x for x in model.layers if x.name == PREPROCESSING]
    layer: Any = layers[0] if layers else None
    check = getattr(layer, "check_range", None)
    if check is None or layer.input is not model.inputs[0]:
        return  # What is computed before may put them into range.

    def checked(method):
        @functools.wraps(method)
        def call(x: Any = None, *args, **kwargs):
            if isinstance(x, np.ndarray | tf.Tensor) and len(x.shape) == 4:
                check(x)
            return method(x, *args, **kwargs)

        return call

    for name in _METHODS:
        setattr(model, name, checked(getattr(model, name)))


def decode_predictions(predictions, top=5, class_names=None):
    """Returns the likeliest classes of each example, with their scores.

    Args:
        predictions: array `(batch, classes)` of scores.
        top: how many classes to return.
        class_names: a name per class; None for the 1000 classes of ImageNet.

    Returns:
        Per example a list of (class index, class name, score), best first.

    Raises:
        ValueError: if the numbers of classes disagree.

    Examples:
        >>> decode_predictions([[0.25, 0.75]], 1, ["cat", "dog"])
        [[(1, 'dog', 0.75)]]
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
