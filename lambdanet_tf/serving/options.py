"""What an export is asked to be."""

import dataclasses

from lambdanet_tf import data
from lambdanet_tf import ops
from lambdanet_tf.serving.encoded_images import MAX_PIXELS
from lambdanet_tf.serving.portable import FORMATS

WEIGHTS_DTYPES = ("float32", "bfloat16")
IMAGE_DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class ServingOptions:
    """How a model is exported.

    Attributes:
        labels: a name per class; None for "0", "1", ...
        image_size: (height, width) that encoded images are resized to; None
            for the model's. A model of any image size needs one.
        evaluation_crop: float. The part of an encoded image that is taken,
            see `EvaluationCrop`; 1 for all of it.
        image_dtype: what its pixels are rounded to: "float32" or "bfloat16",
            as the images that the network was evaluated on.
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
        formats: which files for other runtimes are written besides, of
            "tflite" and "onnx".
    """

    labels: tuple[str, ...] | None = None
    image_size: tuple[int, int] | None = None
    evaluation_crop: float = 1.0
    image_dtype: str = "float32"
    top: int = 5
    max_pixels: int = MAX_PIXELS
    weights_dtype: str = "float32"
    implementation: str | None = None
    xla: bool = False
    formats: tuple[str, ...] = ()

    def __post_init__(self):
        for name in ("top", "max_pixels"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                _refuse(name, "a positive integer", value)
            if value < 1:
                _refuse(name, "a positive integer", value)
        share = self.evaluation_crop
        if not isinstance(share, int | float) or not 0 < share <= 1:
            _refuse("evaluation_crop", "above 0, and at most 1", share)
        for name, allowed in (
            ("image_dtype", IMAGE_DTYPES),
            ("weights_dtype", WEIGHTS_DTYPES),
            ("implementation", (None, *ops.IMPLEMENTATIONS)),
        ):
            if getattr(self, name) not in allowed:
                _refuse(name, f"one of {allowed}", getattr(self, name))
        for name in self.formats:
            if name not in FORMATS:
                _refuse("formats", f"some of {tuple(FORMATS)}", name)
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

    def crop(self, input_shape):
        """The `EvaluationCrop` that encoded images go through."""
        return data.EvaluationCrop(
            self.image_shape(input_shape)[:2],
            self.evaluation_crop,
            self.image_dtype,
        )

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
