"""Options of an export. This module does not import TensorFlow."""

import dataclasses

import lambdanet_tf
from lambdanet_tf import config
from lambdanet_tf.arguments import fraction
from lambdanet_tf.arguments import one_of
from lambdanet_tf.arguments import users_input
from lambdanet_tf.config import field

ACTIVATIONS = ("softmax", "sigmoid")

# The file of each format in a version folder.
FORMATS = {
    "tflite": "assets.extra/model.tflite",
    "onnx": "assets.extra/model.onnx",
}


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """Options of an export. Each field with a help is a flag of export.py.

    Attributes:
        labels: a name for each class; None for "0", "1", ... A network with
            one output has two classes, for 0 and for 1.
        activation: the function from logits to probabilities: "softmax" for
            one class among several, "sigmoid" for one output or for several
            labels at once; None for the network's.
        image_size: (height, width) of decoded images; None for the model's. Set
            it if the model takes images of any size.
        evaluation_crop: center-crop fraction: the central square's side as a
            fraction of the shorter side. 1 keeps the whole image.
        image_dtype: "float32", or "bfloat16" if the evaluation rounded the
            pixels to it.
        bits: significant bits in files with 16 bits, see `data.EncodedImage`.
        formats: files for other runtimes, from `FORMATS`.

    Raises:
        ValueError: if a value is not allowed.
    """

    labels: tuple[str, ...] | None = None
    activation: str | None = None
    image_size: tuple[int, int] | None = None
    evaluation_crop: float = 1.0
    image_dtype: str = "float32"
    bits: int = 16
    top: int = field(5, "number of most likely classes in a response", low=1)
    max_pixels: int = field(
        2**25, "largest height times width of an encoded image", low=1
    )
    implementation: str | None = field(
        None,
        "algorithm of the lambda layers (default: the fastest by estimate)",
        metavar="NAME",
        kind=str,
    )
    device: str = field(
        "cpu",
        "device to optimize for, one of ops.DEVICES; the export computes the "
        "same function on every device",
        metavar="NAME",
    )
    formats: tuple[str, ...] = ()

    @users_input()
    def __post_init__(self):
        for name in ("labels", "image_size", "formats"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        config.check(self)
        fraction("evaluation_crop", self.evaluation_crop)
        one_of("activation", self.activation, (None, *ACTIVATIONS))
        for name in self.formats:
            one_of("formats", name, FORMATS)
        one_of("device", self.device, lambdanet_tf.ops.DEVICES)
        if self.implementation is not None:
            names = lambdanet_tf.ops.implementations()
            one_of("implementation", self.implementation, names)
