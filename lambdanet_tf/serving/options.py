"""What an export is asked to be."""

import dataclasses
from collections.abc import Callable

from lambdanet_tf import ops
from lambdanet_tf.serving.encoded_images import MAX_PIXELS
from lambdanet_tf.serving.encoded_images import resize_whole

WEIGHTS_DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class ServingOptions:
    """How a model is exported.

    Attributes:
        labels: a name per class; None for "0", "1", ...
        image_size: (height, width) that encoded images are resized to; None
            for the model's. A model of any image size needs one.
        resize: function of a uint8 image `(h, w, channels)`, height and width
            that returns the image at that size, as evaluation saw it.
        top: int. How many of the likeliest classes are named.
        max_pixels: int. Height times width of an encoded image that is
            decoded; a larger one is an error.
        weights_dtype: "float32", or "bfloat16" to store and hold the weights
            in half the space; the computation stays in float32.
        implementation: the algorithm of the lambda layers; None lets the plan
            choose.
        xla: bool. Whether there is a signature `serving_default_xla` as well,
            compiled by XLA. A server needs a flag to run it, but not to load
            the model and run the others.
    """

    labels: tuple[str, ...] | None = None
    image_size: tuple[int, int] | None = None
    resize: Callable = resize_whole
    top: int = 5
    max_pixels: int = MAX_PIXELS
    weights_dtype: str = "float32"
    implementation: str | None = None
    xla: bool = False

    def __post_init__(self):
        for name in ("top", "max_pixels"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                _refuse(name, "a positive integer", value)
            if value < 1:
                _refuse(name, "a positive integer", value)
        if self.weights_dtype not in WEIGHTS_DTYPES:
            _refuse(
                "weights_dtype", f"one of {WEIGHTS_DTYPES}", self.weights_dtype
            )
        allowed = (None, *ops.IMPLEMENTATIONS)
        if self.implementation not in allowed:
            _refuse("implementation", f"one of {allowed}", self.implementation)
        for label in self.labels or ():
            if not isinstance(label, str) or "\n" in label or "\r" in label:
                _refuse("labels", "one line of text per class", label)

    def image_shape(self, input_shape):
        """(height, width, channels) that encoded images are brought to."""
        *size, channels = input_shape
        if channels not in (1, 3):
            raise ValueError(
                "`model` must take images of 1 or 3 channels. Received: an "
                f"input of shape {tuple(input_shape)}."
            )
        wanted = tuple(self.image_size or size)
        if None in wanted:
            raise ValueError(
                "`image_size` must be given for a model of any image size: "
                "(height, width) for encoded images. Received: None."
            )
        fixed = [known for known in size if known is not None]
        if fixed and tuple(size) != wanted:
            raise ValueError(
                f"`image_size` must be the model's, {tuple(size)}. Received: "
                f"{wanted}."
            )
        return (*wanted, channels)

    def checked_labels(self, classes):
        """The names of so many classes."""
        if self.labels is None:
            return tuple(str(index) for index in range(classes))
        if len(self.labels) != classes:
            raise ValueError(
                f"`labels` must hold {classes} names, one per class of the "
                f"model. Received: {len(self.labels)}."
            )
        return tuple(self.labels)


def _refuse(name, expected, received):
    raise ValueError(f"`{name}` must be {expected}. Received: {received!r}.")
