"""A recipe: everything that determines what a training run computes.

recipes.json contains the recipes of this package, in the form of a user's file.
This module does not import TensorFlow.
"""

import dataclasses
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from lambdanet_tf import config
from lambdanet_tf.arguments import UserError
from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.config import field
from lambdanet_tf.specs import TABLE_20

_TABLE = pathlib.Path(__file__).with_name("recipes.json")
_ENDS = "include_top endpoints classifier_activation include_preprocessing name"
# Arguments of a network that the recipe sets itself, and what sets them.
_RESERVED = {
    **dict.fromkeys(_ENDS.split(), "training, which needs the whole network"),
    **{"classes": "--data", "input_shape": "--image-size"},
    **{"dropout_rate": "--dropout-rate", "drop_path_rate": "--drop-path-rate"},
    "norm_momentum": "--norm-momentum",
    "kernel_regularizer": "--weight-decay",
}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A training recipe. Each field is a flag of train.py, with this help.

    The defaults are those that the paper's recipes have in common.
    """

    name: str = "custom"
    summary: str = dataclasses.field(default="", compare=False)

    # The data.
    data: str = field(
        "digits",
        "images: digits, folder:PATH, records:PATH, arrays:FILE or tfds:NAME "
        "(see docs/data.md)",
        metavar="SET",
    )
    validation_split: float = field(
        0.02, "fraction of training images for validation", low=0, high=0.9
    )
    shuffle_buffer: int = field(16_384, "images in the shuffle buffer", low=1)
    image_size: int = field(224, "height and width of the images", low=1)
    evaluation_crop: float = field(
        0.875, "center-crop fraction for evaluation", low=0.01, high=1
    )

    # Images that a teacher has labelled.
    pseudo_labels: str = field(
        "", "folder that `lambdanet label` wrote", metavar="FOLDER"
    )
    pseudo_label_ratio: float = field(
        1.0, "pseudo-labelled images per labelled image", low=1e-3, high=1e3
    )

    # The augmentation of training images.
    augmentation: str = field(
        "random_crop",
        "none, affine, pad_crop (shifts) or random_crop (boxes of any size)",
        choices=("none", "affine", "pad_crop", "random_crop"),
        metavar="KIND",
    )
    flip: bool = field(True, "mirror half of the training images")
    min_area: float = field(
        0.08, "random_crop: smallest fraction of the image", low=1e-6, high=1
    )
    padding: int = field(4, "pad_crop: largest shift in pixels", low=0)
    rotation: float = field(0.0, "affine: up to X degrees", low=0, high=180)
    shift: float = field(0.0, "affine: up to X pixels", low=0)
    zoom: float = field(0.0, "affine: by 1 - X to 1 + X", low=0, high=0.9)
    randaugment_layers: int = field(
        0, "distortions by RandAugment per image", low=0, high=100
    )
    randaugment_magnitude: float = field(
        10.0, "strength of RandAugment", low=0, high=100
    )

    # The model.
    model: str = field(
        "LambdaResNetSmall", "a network of lambdanet_tf.models", metavar="NAME"
    )
    model_arguments: Mapping[str, Any] = field(
        {}, 'more arguments of the network, such as {"scope": 7}'
    )
    initial_weights: str = field(
        "",
        "weights to start from: a file or a run folder; weights of another "
        "shape, such as a head for other classes, are ignored",
        metavar="FILE",
    )
    dropout_rate: float = field(0.0, "before the classifier", low=0, below=1)
    drop_path_rate: float = field(
        0.0, "stochastic depth: rate in the deepest block", low=0, below=1
    )
    norm_momentum: float = field(
        0.9999, "momentum of batch normalization", low=0, high=1
    )
    precision: str = field(
        "float32",
        "float32, mixed_bfloat16 or mixed_float16",
        choices=("float32", "mixed_bfloat16", "mixed_float16"),
        metavar="KIND",
    )

    # The optimization.
    epochs: int = field(90, "passes over the training images", low=1)
    batch_size: int = field(4096, "images per step on all devices", low=1)
    optimizer: str = field(
        "sgd",
        "sgd, rmsprop or adam",
        choices=("sgd", "rmsprop", "adam"),
        metavar="NAME",
    )
    learning_rate: float = field(
        0.1, "peak learning rate for `base_batch_size` images", low=0
    )
    base_batch_size: int = field(
        256, "scale the rate by batch_size / base_batch_size (0: no)", low=0
    )
    warmup_epochs: float = field(5.0, "epochs of linear warm-up from 0", low=0)
    schedule: str = field(
        "cosine",
        "learning rate after the warm-up: cosine, exponential or constant",
        choices=("cosine", "exponential", "constant"),
        metavar="NAME",
    )
    decay_rate: float = field(0.99, "exponential: factor", low=0, high=1)
    decay_epochs: float = field(3.0, "exponential: epochs per decay", low=1e-9)
    momentum: float = field(0.9, "momentum (adam: beta 1)", low=0, below=1)
    weight_decay: float = field(
        1e-4, "coefficient d of the penalty d/2 |w|^2 on kernels", low=0, high=1
    )
    label_smoothing: float = field(
        0.1, "probability to spread over all classes", low=0, below=1
    )
    global_clipnorm: float = field(
        0.0, "bound on the global norm of the gradients (0: none)", low=0
    )
    ema_decay: float = field(
        0.9999, "decay of the averages of weights (0: none)", low=0, below=1
    )
    seed: int = field(
        0, "seed for weights, order and augmentation", low=0, high=2**31 - 1
    )

    def __post_init__(self):
        config.check(self)
        if reserved := sorted(_RESERVED.keys() & self.model_arguments.keys()):
            own = [f"{name} (set by {_RESERVED[name]})" for name in reserved]
            raise UserError(f"Remove from `model_arguments`: {', '.join(own)}.")

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields except the summary, as values of JSON."""
        fields = dataclasses.asdict(self)
        del fields["summary"]
        return fields


def from_dict(fields: Mapping[str, Any]) -> Recipe:
    """Returns a recipe from the result of `to_dict`."""
    fields = dict(fields)
    recipe = Recipe(name=fields.pop("name", "custom"))
    return config.replace(recipe, fields)


def differences(
    recorded: Mapping[str, Any], asked: Recipe
) -> dict[str, tuple[Any, Any]]:
    """Returns the fields in which a recipe differs from a recorded one."""
    before, after = from_dict(recorded).to_dict(), asked.to_dict()
    return {
        name: (before[name], after[name])
        for name in before
        if name != "name" and before[name] != after[name]
    }


RECIPES = {
    row["name"]: Recipe(**row) for row in json.loads(_TABLE.read_text("utf-8"))
}


def resolve(
    name: str | None = None, changes: Mapping[str, Any] | None = None
) -> Recipe:
    """Returns a recipe by its name, with some fields changed.

    For `imagenet_350`, Table 20 of the paper defines the magnitude of
    RandAugment, dropout and stochastic depth by the model's depth and the
    image size, unless you change them. `images` chooses the strides of its own
    network by the image size; another network keeps its strides.

    Args:
        name: one of `RECIPES`. None for digits, or for images if you change
            `data`.
        changes: fields to replace.

    Raises:
        ValueError: if there is no such recipe or field, or if a value is not
            allowed.
    """
    changes = dict(changes or {})
    if name is None:
        of_digits = changes.get("data", "digits") == "digits"
        name = "digits" if of_digits else "images"
    if name not in RECIPES:
        raise UserError(
            f"Unknown recipe {name!r}.{did_you_mean(name, RECIPES)}"
        )
    recipe = with_changes(RECIPES[name], changes)
    if name == "imagenet_350":
        return _with_table_20(recipe, changes)
    if name == "images" and "model" not in changes:
        arguments = {**_strides(recipe.image_size), **recipe.model_arguments}
        return dataclasses.replace(recipe, model_arguments=arguments)
    return recipe


def with_changes(recipe: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """Returns a recipe with some fields changed.

    New arguments join those of the recipe, unless the network changes.
    """
    recipe, former = config.replace(recipe, changes), recipe.model_arguments
    if "model" not in changes:
        former = {**former, **recipe.model_arguments}
        recipe = dataclasses.replace(recipe, model_arguments=former)
    return recipe


def read_recipe(
    path: str, text: str, changes: Mapping[str, Any] | None = None
) -> Recipe:
    """Returns the recipe of a JSON file, with some fields changed.

    Args:
        path: path of the file, for messages.
        text: a JSON object of recipe fields, whose `name` selects the recipe
            that the others change; or the content of a run.json.
        changes: fields to replace.
    """
    try:
        content = json.loads(text)
        fields = dict(content.get("recipe", content))
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} must contain one JSON object of recipe fields, with the "
            f'name of a recipe: {{"name": "digits"}}. Received: {error}.'
        ) from error
    fields.pop("summary", None)
    if {*Recipe().to_dict()} <= {*fields}:
        return with_changes(from_dict(fields), changes or {})
    return resolve(fields.pop("name", None), {**fields, **(changes or {})})


def _strides(image_size):
    """Returns strides of LambdaResNetSmall with a last map of 7x7 or more.

    The first layers stride first, because their maps take most of the time.
    """
    halvings = min(max((image_size // 7).bit_length() - 1, 0), 4)
    stem, *stages = [2] * halvings + [1] * (4 - halvings)
    return {"strides": stages, "stem_strides": [stem]}


def _with_table_20(recipe, changes):
    """Sets the values in the row of the model's depth and the image size."""
    names = ("randaugment_magnitude", "dropout_rate", "drop_path_rate")
    if {*names} <= {*changes}:
        return recipe
    found = re.search(r"\d+", recipe.model)
    depth = int(found[0]) if found else 0
    rows = {r.image_size: r for r in TABLE_20 if r.depth == depth}
    if recipe.image_size not in rows:
        raise UserError(
            f"Table 20 of the paper has no row for {recipe.model} at size "
            f"{recipe.image_size}. Set --image-size to one of {[*rows]}, or "
            "set --randaugment-magnitude, --dropout-rate and --drop-path-rate."
        )
    row = rows[recipe.image_size]
    values = {name: float(getattr(row, name)) for name in names}
    return dataclasses.replace(recipe, **{**values, **changes})
