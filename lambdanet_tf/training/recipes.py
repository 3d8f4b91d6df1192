"""Recipes: everything that decides what a training run computes.

A recipe is one row of a table; a field is one column. Where a run computes
(devices, folders, how often to save) is not part of the recipe. How a row and
a user's overrides become the recipe of a run is in
`lambdanet_tf.training.overrides`.
"""

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from lambdanet_tf.data import SOURCES


def _column(default, text) -> Any:
    """A field with its help text."""
    if isinstance(default, dict):
        return dataclasses.field(
            default_factory=lambda: dict(default), metadata={"help": text}
        )
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One training recipe. The help texts document the fields.

    The defaults are the paper's: what its recipes have in common.
    """

    name: str = _column("custom", "name of the recipe")

    model: str = _column(
        "LambdaResNetSmall", "a builder of lambdanet_tf.models"
    )
    model_arguments: Mapping[str, Any] = _column(
        {}, "further keyword arguments of the builder, as a JSON object"
    )
    dropout: float = _column(0.0, "dropout before the classifier")
    stochastic_depth: float = _column(
        0.0, "rate of dropping the deepest residual branches"
    )
    norm_momentum: float = _column(
        0.9999, "decay of the moving statistics of batch normalisation"
    )

    data: str = _column("digits", f"the images: {', '.join(SOURCES)}")
    holdout: float = _column(
        0.02, "share of the training images that chooses the best epoch"
    )
    shuffle_buffer: int = _column(
        16_384, "images among which the next is drawn, where sets are streams"
    )
    image_size: int = _column(224, "height and width of the images, in pixels")
    evaluation_crop: float = _column(
        0.875, "side of the central square that is evaluated (1: whole image)"
    )

    augmentation: str = _column(
        "random_crop",
        "none; affine; pad_crop, shifts; random_crop, boxes of any size",
    )
    flip: bool = _column(True, "mirror half of the training images")
    min_area: float = _column(0.08, "random_crop: smallest share of the image")
    padding: int = _column(4, "pad_crop: shift by at most this many pixels")
    rotation: float = _column(0.0, "affine: at most this many degrees")
    shift: float = _column(0.0, "affine: at most this many pixels")
    zoom: float = _column(0.0, "affine: size times 1 - zoom to 1 + zoom")
    randaugment_layers: int = _column(0, "distortions of RandAugment (0: none)")
    randaugment_magnitude: float = _column(10.0, "their strength")
    mixup: float = _column(0.0, "mixtures of images: alpha of Beta (0: none)")
    cutmix: float = _column(0.0, "boxes of others: alpha of Beta (0: none)")

    epochs: int = _column(90, "how often the training images are seen")
    batch_size: int = _column(4096, "images of one step, all devices together")
    accumulation: int = _column(
        1, "batches whose gradients are averaged for one update"
    )
    optimizer: str = _column("sgd", "sgd, rmsprop or adam")
    learning_rate: float = _column(
        0.1, "peak learning rate of an update with `rate_batch` images"
    )
    rate_batch: int = _column(
        256, "the rate grows as images / rate_batch (0: it does not)"
    )
    warmup_epochs: float = _column(5.0, "epochs of linear warm-up from 0")
    schedule: str = _column(
        "cosine", "after the warm-up: cosine, exponential or constant"
    )
    rate_decay: float = _column(0.99, "exponential: factor of each decay")
    rate_decay_epochs: float = _column(3.0, "exponential: epochs between two")
    momentum: float = _column(0.9, "momentum (adam: first moment)")
    weight_decay: float = _column(
        1e-4, "L2 penalty of the kernels, coupled: added to the gradients"
    )
    label_smoothing: float = _column(0.1, "probability spread over all classes")
    clip_norm: float = _column(
        0.0, "bound on the norm of all gradients together (0: none)"
    )
    average_decay: float = _column(
        0.9999, "decay of the moving average of the weights (0: no average)"
    )
    precision: str = _column(
        "float32", "float32, mixed_bfloat16 or mixed_float16"
    )
    seed: int = _column(0, "seed of the weights, the order and the variations")

    def __post_init__(self):
        for field in dataclasses.fields(self):
            _check_type(field, getattr(self, field.name))
        for name, allowed in CHOICES.items():
            _require(
                getattr(self, name) in allowed,
                f"`{name}` must be one of {', '.join(allowed)}.",
                getattr(self, name),
            )
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            _require(
                low <= value <= high,
                f"`{name}` must lie between {low} and {high}.",
                value,
            )
        _require(
            not (self.mixup and self.cutmix),
            "`mixup` and `cutmix` must not both be used.",
            (self.mixup, self.cutmix),
        )

    def to_dict(self):
        """The recipe as a dictionary that JSON can hold."""
        return dataclasses.asdict(self)


CHOICES = {
    "augmentation": ("none", "affine", "pad_crop", "random_crop"),
    "optimizer": ("sgd", "rmsprop", "adam"),
    "schedule": ("cosine", "exponential", "constant"),
    "precision": ("float32", "mixed_bfloat16", "mixed_float16"),
}

_MANY = 10**9
_BELOW_1 = 1 - 1e-9
RANGES = {
    "dropout": (0.0, _BELOW_1),
    "stochastic_depth": (0.0, _BELOW_1),
    "norm_momentum": (0.0, 1.0),
    "holdout": (0.0, 0.9),
    "shuffle_buffer": (1, _MANY),
    "image_size": (1, _MANY),
    "evaluation_crop": (0.01, 1.0),
    "min_area": (1e-6, 1.0),
    "padding": (0, _MANY),
    "rotation": (0.0, 180.0),
    "shift": (0.0, _MANY),
    "zoom": (0.0, 0.9),
    "randaugment_layers": (0, 100),
    "randaugment_magnitude": (0.0, 100.0),
    "mixup": (0.0, _MANY),
    "cutmix": (0.0, _MANY),
    "epochs": (1, _MANY),
    "batch_size": (1, _MANY),
    "accumulation": (1, _MANY),
    "learning_rate": (0.0, _MANY),
    "rate_batch": (0, _MANY),
    "warmup_epochs": (0.0, _MANY),
    "rate_decay": (0.0, 1.0),
    "rate_decay_epochs": (1e-9, _MANY),
    "momentum": (0.0, _BELOW_1),
    "weight_decay": (0.0, 1.0),
    "label_smoothing": (0.0, _BELOW_1),
    "clip_norm": (0.0, _MANY),
    "average_decay": (0.0, _BELOW_1),
    "seed": (0, 2**31 - 1),
}

KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    dict: "a JSON object",
}


def field_type(field):
    """The plain type of a recipe field: a key of `KINDS`."""
    hint = typing.get_type_hints(Recipe)[field.name]
    return hint if hint in KINDS else dict


def _check_type(field, value):
    kind = field_type(field)
    wrong = not isinstance(value, (int, float) if kind is float else kind)
    if kind is not bool and isinstance(value, bool):
        wrong = True
    _require(not wrong, f"`{field.name}` must be {KINDS[kind]}.", value)


def _require(condition, expectation, received):
    if not condition:
        raise ValueError(f"{expectation} Received: {received!r}.")


# What the recipes for small images have in common, and not with the paper's:
# the statistics and averages must settle within some thousand steps.
_SMALL_IMAGES = {
    "norm_momentum": 0.9,
    "average_decay": 0.99,
    "evaluation_crop": 1.0,
    "holdout": 0.1,
}

# The rows say their command, hardware, duration and result, or "not run".
RECIPES = {
    # python train.py
    # 2 CPU cores: about a minute. Accuracy: docs/training.md.
    "digits": Recipe(
        name="digits",
        image_size=8,
        augmentation="affine",
        flip=False,
        rotation=10.0,
        shift=0.7,
        zoom=0.1,
        dropout=0.1,
        epochs=40,
        batch_size=64,
        learning_rate=0.4,
        warmup_epochs=3.0,
        **_SMALL_IMAGES,
    ),
    # python train.py --recipe smoke
    # 2 CPU cores: a few seconds after compiling. Learns next to nothing: it
    # shows that everything runs.
    "smoke": Recipe(
        name="smoke",
        model_arguments={"stages": ["L"], "widths": [8], "strides": [1]},
        image_size=8,
        augmentation="none",
        flip=False,
        epochs=2,
        batch_size=64,
        learning_rate=1.0,
        warmup_epochs=0.0,
        **_SMALL_IMAGES,
    ),
    # python train.py --recipe cifar10
    # Not run. The study's network and schedule, with batch statistics and
    # averages that work; its own layer mixed pixels and channels besides.
    "cifar10": Recipe(
        name="cifar10",
        model="ResNet50",
        model_arguments={
            "pattern": "LLLL",
            "scope": None,
            "share_embeddings": True,
        },
        data="tfds:cifar10",
        image_size=32,
        augmentation="pad_crop",
        batch_size=128,
        optimizer="adam",
        learning_rate=2.5e-3,
        rate_batch=0,
        norm_momentum=0.99,
        average_decay=0.999,
        evaluation_crop=1.0,
        holdout=0.1,
    ),
    # python train.py --recipe cifar10_delft
    # Not run. As the study of de Alvear Cardenas and de Vries (Delft, 2021)
    # describes it. It gave PyTorch the batch statistics' decay of TensorFlow,
    # 0.9999, which there means 0.0001; and it kept no averages.
    "cifar10_delft": Recipe(
        name="cifar10_delft",
        model="ResNet50",
        model_arguments={
            "pattern": "LLLL",
            "scope": None,
            "share_embeddings": True,
        },
        data="tfds:cifar10",
        image_size=32,
        augmentation="pad_crop",
        batch_size=128,
        optimizer="adam",
        learning_rate=2.5e-3,
        rate_batch=0,
        norm_momentum=0.0001,
        average_decay=0.0,
        evaluation_crop=1.0,
        holdout=0.1,
    ),
    # python train.py --recipe imagenet_90 --data records:/data/imagenet
    # Not run. Section 4 of the paper: the vanilla setting of Tables 3 to 12.
    "imagenet_90": Recipe(
        name="imagenet_90",
        model="ResNet50",
        model_arguments={"pattern": "LLLL"},
        data="tfds:imagenet2012",
    ),
    # python train.py --recipe imagenet_350 --model LambdaResNet152
    #   --image-size 224 --strategy tpu --tpu NAME --data records:gs://...
    # Not run. The rest of a row comes from Table 20: see `overrides`.
    "imagenet_350": Recipe(
        name="imagenet_350",
        model="LambdaResNet152",
        data="tfds:imagenet2012",
        epochs=350,
        weight_decay=4e-5,
        randaugment_layers=2,
    ),
    # python train.py --recipe mobilenet_350 --data records:/data/imagenet
    # Not run. The paper's text gives the optimiser; label smoothing and the
    # average are those of its other recipes.
    "mobilenet_350": Recipe(
        name="mobilenet_350",
        model="LambdaMobileNetV2",
        data="tfds:imagenet2012",
        dropout=0.2,
        epochs=350,
        optimizer="rmsprop",
        learning_rate=0.1,
        rate_batch=0,
        schedule="exponential",
        weight_decay=1e-5,
    ),
}
