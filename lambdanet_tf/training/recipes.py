"""Recipes: everything that decides what a training run computes.

A recipe is one row of a table; a field is one column. `resolve` turns a row
and a user's overrides into the recipe of a run. Where a run computes (devices,
folders, how often to save) is not part of the recipe.
"""

import dataclasses
import difflib
import json
import typing
from collections.abc import Mapping
from typing import Any


def _column(default, text) -> Any:
    """A field with its help text."""
    if isinstance(default, dict):
        return dataclasses.field(
            default_factory=lambda: dict(default), metadata={"help": text}
        )
    return dataclasses.field(default=default, metadata={"help": text})


@dataclasses.dataclass(frozen=True)
class Recipe:
    """One training recipe. The help texts document the fields."""

    name: str = _column("custom", "name of the recipe")

    model: str = _column(
        "LambdaResNetSmall", "a builder of lambdanet_tf.models"
    )
    model_arguments: Mapping[str, Any] = _column(
        {}, "further keyword arguments of the builder, as a JSON object"
    )
    data: str = _column("digits", "the images: digits")
    image_size: int = _column(8, "height and width of the images, in pixels")
    holdout: float = _column(
        0.1, "share of the training images that chooses the best epoch"
    )

    augmentation: str = _column(
        "none", "how training images are varied: none, affine"
    )
    rotation: float = _column(0.0, "affine: at most this many degrees")
    shift: float = _column(0.0, "affine: at most this many pixels")
    zoom: float = _column(0.0, "affine: size times 1 - zoom to 1 + zoom")

    epochs: int = _column(90, "how often the training images are seen")
    batch_size: int = _column(4096, "images of one step, all devices together")
    optimizer: str = _column("sgd", "sgd, rmsprop or adam")
    learning_rate: float = _column(
        0.1, "peak learning rate of a batch of `rate_batch` images"
    )
    rate_batch: int = _column(
        256, "the rate grows as batch_size / rate_batch (0: it does not)"
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
    accumulation: int = _column(
        1, "batches whose gradients are averaged for one update"
    )
    average_decay: float = _column(
        0.9999, "decay of the moving average of the weights (0: no average)"
    )
    precision: str = _column(
        "float32", "float32, mixed_bfloat16 or mixed_float16"
    )
    seed: int = _column(0, "seed of the split, weights, order and variations")

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

    def to_dict(self):
        """The recipe as a dictionary that JSON can hold."""
        return dataclasses.asdict(self)


CHOICES = {
    "augmentation": ("none", "affine"),
    "optimizer": ("sgd", "rmsprop", "adam"),
    "schedule": ("cosine", "exponential", "constant"),
    "precision": ("float32", "mixed_bfloat16", "mixed_float16"),
}

_MANY = 10**9
RANGES = {
    "image_size": (1, _MANY),
    "holdout": (0.0, 0.9),
    "rotation": (0.0, 180.0),
    "shift": (0.0, _MANY),
    "zoom": (0.0, 0.9),
    "epochs": (1, _MANY),
    "batch_size": (1, _MANY),
    "learning_rate": (0.0, _MANY),
    "rate_batch": (0, _MANY),
    "warmup_epochs": (0.0, _MANY),
    "rate_decay": (0.0, 1.0),
    "rate_decay_epochs": (1e-9, _MANY),
    "momentum": (0.0, 1.0),
    "weight_decay": (0.0, 1.0),
    "label_smoothing": (0.0, 1.0),
    "clip_norm": (0.0, _MANY),
    "accumulation": (1, _MANY),
    "average_decay": (0.0, 1.0),
    "seed": (0, 2**31 - 1),
}


def resolve(name="digits", overrides=None):
    """The recipe of a run.

    Args:
        name: str. A row of `RECIPES`.
        overrides: mapping or None. Fields to replace, as values or as the
            texts of a command line.

    Returns:
        A `Recipe`.

    Raises:
        ValueError: if there is no such recipe or field, or a value is not
            allowed there.
    """
    if name not in RECIPES:
        raise ValueError(
            f"Unknown recipe {name!r}. Allowed: {', '.join(RECIPES)}."
            f"{nearest(name, RECIPES)}"
        )
    return replace(RECIPES[name], overrides or {})


def replace(recipe, overrides):
    """A recipe with some fields replaced; see `resolve`."""
    fields = {field.name: field for field in dataclasses.fields(Recipe)}
    values = {}
    for key, value in overrides.items():
        field_name = key.replace("-", "_")
        if field_name not in fields:
            raise ValueError(
                f"Unknown recipe field {key!r}.{nearest(field_name, fields)}"
            )
        if isinstance(value, str):
            value = parse(fields[field_name], value)
        values[field_name] = value
    return dataclasses.replace(recipe, **values)


def read(path, text):
    """The recipe of a file: a resolved recipe, or a row with overrides.

    The file holds a JSON object. Its `name` selects the row; the other fields
    replace that row's. A run's `run.json` works as well.

    Args:
        path: str. Where the text comes from, for messages.
        text: str. What the file holds.

    Returns:
        A `Recipe`.
    """
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not a JSON file: {error}.") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold one JSON object.")
    content = dict(content.get("recipe", content))
    name = content.pop("name", "digits")
    if name in RECIPES:
        return resolve(name, content)
    return replace(Recipe(name=name), content)


def parse(field, text):
    """The value of a recipe field from the text of a command line."""
    kind = field_type(field)
    if kind is str:
        return text
    try:
        value = json.loads(text.lower() if kind is bool else text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"`{field.name}` must be {_KINDS[kind]}. Received: {text!r}."
        ) from error
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    return value


def field_type(field):
    """The plain type of a recipe field."""
    hints = typing.get_type_hints(Recipe)
    return dict if hints[field.name] == Mapping[str, Any] else hints[field.name]


def nearest(name, names):
    """' Did you mean ...?' for the most similar name, or an empty text."""
    found = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f" Did you mean {found[0]!r}?" if found else ""


_KINDS = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    dict: "a JSON object",
}


def _check_type(field, value):
    kind = field_type(field)
    accepted = (int, float) if kind is float else kind
    wrong = not isinstance(value, accepted)
    if kind is not bool and isinstance(value, bool):
        wrong = True
    _require(not wrong, f"`{field.name}` must be {_KINDS[kind]}.", value)


def _require(condition, expectation, received):
    if not condition:
        raise ValueError(f"{expectation} Received: {received!r}.")


# Each row states its command, hardware, duration and result, or "not run".
RECIPES = {
    # python train.py
    # 2 CPU cores: about a minute, 99% of the test images.
    "digits": Recipe(
        name="digits",
        # The statistics must settle within 800 steps.
        model_arguments={"norm_momentum": 0.9},
        augmentation="affine",
        rotation=10.0,
        shift=0.7,
        zoom=0.1,
        epochs=40,
        batch_size=64,
        learning_rate=0.4,
        warmup_epochs=3.0,
        average_decay=0.99,
    ),
}
