"""Options of an export. Nothing here imports TensorFlow."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import lambdanet_tf
from lambdanet_tf import config
from lambdanet_tf.arguments import UserError
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
        labels: a name for each class; None for "0", "1", ... A network of
            one output has two classes: what 0 and what 1 stand for.
        image_dtype: "float32", or "bfloat16" if the pixels were rounded to it
            when the model was evaluated.
        bits: of the values in files of 16 bits, see `data.EncodedImage`.
        formats: files for other runtimes, of `FORMATS`.

    Raises:
        ValueError: if a value is not allowed.

    Examples:
        >>> ExportOptions(labels=("cat", "dog"), top=1).labels
        ('cat', 'dog')
    """

    labels: tuple[str, ...] | None = None
    activation: str | None = field(
        None,
        "what makes probabilities of logits: softmax of one class among "
        "several, sigmoid of one output or of several labels at once (the "
        "network's)",
        choices=ACTIVATIONS,
        metavar="NAME",
        kind=str,
    )
    image_size: tuple[int, int] | None = field(
        None,
        "of decoded images, for a model of any image size (the model's)",
        metavar=("HEIGHT", "WIDTH"),
        kind=tuple,
    )
    evaluation_crop: float = field(
        1.0,
        "side of the central square that is cut from an encoded image, as a "
        "fraction of its shorter side; 1 keeps the whole image (the run's, or "
        "1)",
        low=0.01,
        high=1,
        metavar="FRACTION",
    )
    image_dtype: str = "float32"
    bits: int = 16
    top: int = field(5, "number of most likely classes that are named", low=1)
    max_pixels: int = field(
        2**25, "largest height times width of an encoded image", low=1
    )
    implementation: str | None = field(
        None,
        "algorithm of the lambda layers, of ops.implementations() (planned)",
        metavar="NAME",
        kind=str,
    )
    device: str = field(
        "cpu",
        "what the export is planned for and will run on, one of ops.DEVICES; "
        "on every device it computes the same function",
        metavar="NAME",
    )
    formats: tuple[str, ...] = ()

    @users_input()
    def __post_init__(self):
        for name in ("labels", "image_size", "formats"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        config.check(self)
        for name in self.formats:
            one_of("formats", name, FORMATS)
        one_of("device", self.device, lambdanet_tf.ops.DEVICES)
        if self.implementation is not None:
            names = lambdanet_tf.ops.implementations()
            one_of("implementation", self.implementation, names)


@dataclasses.dataclass(frozen=True)
class ExportTask:
    """What is exported, and where to. Each field is a flag, with this help."""

    run_dir: str = field(
        "", "a run (the newest finished one)", metavar="FOLDER"
    )
    runs_dir: str = field("runs", "the folder of all runs", metavar="FOLDER")
    unfinished: bool = field(
        False,
        "export the best weights so far of a run that has not finished, "
        "without --run-dir of the newest run",
    )
    weights: str = field(
        "",
        "an .npz file of weights, or a run folder, instead of a run",
        metavar="FILE",
    )
    model: str = field(
        "", "the network of --weights, of lambdanet_tf.models", metavar="NAME"
    )
    model_arguments: Mapping[str, Any] = field({}, config.MODEL_ARGUMENTS)
    labels: str = field(
        "", "the class names of --weights, one per line", metavar="FILE"
    )
    destination: str = field(
        "exported", "<FOLDER>/<name>/<version> is written", metavar="FOLDER"
    )
    name: str = field(
        "", "of the model on the server (the network's)", metavar="NAME"
    )
    version: int | None = field(
        None, "of the export (the one after the highest)", low=1, kind=int
    )

    def __post_init__(self):
        config.check(self)
        if bool(self.weights) != bool(self.model):
            raise UserError("--weights and --model belong together.")
        if self.weights and self.run_dir:
            raise UserError("Give either --run-dir or --weights, not both.")
        for flag in ("labels", "model_arguments"):
            if getattr(self, flag) and not self.weights:
                name = flag.replace("_", "-")
                raise UserError(f"--{name} belongs to --weights.")
