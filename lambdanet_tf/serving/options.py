"""Options of an export."""

import dataclasses

from lambdanet_tf import ops
from lambdanet_tf.arguments import UserError
from lambdanet_tf.arguments import one_of
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.arguments import users_input
from lambdanet_tf.serving.classifier import ACTIVATIONS

DTYPES = ("float32", "bfloat16")

# The file of each format in a version folder.
FORMATS = {
    "tflite": "assets.extra/model.tflite",
    "tflite_int8": "assets.extra/model_int8.tflite",
    "onnx": "assets.extra/model.onnx",
}
# 32 million pixels take 96 MiB as decoded color.
MAX_PIXELS = 2**25


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Options of an export.

    Attributes:
        labels: a name for each class; None for "0", "1", ... A network of
            one output has two classes: what 0 and what 1 stand for.
        classifier_activation: what makes probabilities of the logits:
            "softmax" of one class among several, "sigmoid" of one output or of
            several labels at once. None for the model's own; for logits what
            the loss takes that the model was compiled with, or else "sigmoid"
            for one output and "softmax" for several.
        image_size: (height, width) that encoded images are resized to; None
            for the model's. Required for a model of any image size.
        evaluation_crop: side of the central square that is cut from an encoded
            image, as a fraction of its shorter side; 1 keeps the whole image,
            see `data.EvaluationCrop`.
        image_dtype: "float32", or "bfloat16" if the pixels were rounded to it
            when the model was evaluated.
        top: number of most likely classes that are named.
        max_pixels: largest height times width of an encoded image.
        weights_dtype: "float32", or "bfloat16" to store and hold the weights
            in half the space; the computation stays in float32.
        implementation: algorithm of the lambda layers, one of
            `ops.implementations()`; None lets the plan choose.
        device: what the export is planned for, one of `ops.DEVICES`: that on
            which it will run, whichever one it is made on. On every device it
            computes the same function.
        xla: whether to add the signature `serving_default_xla`, compiled by
            XLA. A server loads it in any case and runs it only if XLA is
            switched on.
        formats: files for other runtimes, of "tflite", "tflite_int8" and
            "onnx".

    Raises:
        ValueError: if a value is not allowed.
    """

    labels: tuple[str, ...] | None = None
    classifier_activation: str | None = None
    image_size: tuple[int, int] | None = None
    evaluation_crop: float = 1.0
    image_dtype: str = "float32"
    top: int = 5
    max_pixels: int = MAX_PIXELS
    weights_dtype: str = "float32"
    implementation: str | None = None
    device: str = "cpu"
    xla: bool = False
    formats: tuple[str, ...] = ()

    @users_input()
    def __post_init__(self):
        positive_int("top", self.top)
        positive_int("max_pixels", self.max_pixels)
        crop = self.evaluation_crop
        if not isinstance(crop, int | float) or not 0 < crop <= 1:
            raise UserError(
                "`evaluation_crop` must be above 0 and at most 1. Received: "
                f"evaluation_crop={crop!r}."
            )
        one_of(
            "classifier_activation",
            self.classifier_activation,
            (None, *ACTIVATIONS),
        )
        one_of("image_dtype", self.image_dtype, DTYPES)
        one_of("weights_dtype", self.weights_dtype, DTYPES)
        if self.implementation is not None:
            ops.implementation_name(self.implementation)
        one_of("device", self.device, ops.DEVICES)
        for name in self.formats:
            one_of("formats", name, FORMATS)
        for label in self.labels or ():
            if not isinstance(label, str) or "\n" in label or "\r" in label:
                raise UserError(
                    "`labels` must be one line of text for each class. "
                    f"Received: {label!r}."
                )
