"""The training recipes: a row each.

Nothing here imports TensorFlow.
"""

import dataclasses
import json
import re
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any

from lambdanet_tf import config
from lambdanet_tf.arguments import UserError
from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.specs import TABLE_20
from lambdanet_tf.training.recipe import Recipe
from lambdanet_tf.training.recipe import from_dict

# What the recipes for small sets have in common, and not with the paper's:
# statistics and averages must settle within some hundred steps.
_SMALL_SET = Recipe(norm_momentum=0.9, ema_decay=0.99, validation_split=0.1)
_ROWS = (
    dataclasses.replace(
        _SMALL_SET,
        name="digits",
        summary="a small LambdaResNet on 1,797 handwritten digits",
        image_size=8,
        evaluation_crop=1.0,
        augmentation="affine",
        flip=False,
        rotation=10.0,
        shift=0.7,
        zoom=0.1,
        dropout_rate=0.1,
        epochs=40,
        batch_size=64,
        learning_rate=0.4,
        warmup_epochs=3.0,
    ),
    dataclasses.replace(
        _SMALL_SET,
        name="images",
        summary="a small LambdaResNet on your own images: --data folder:PATH",
        image_size=64,
        min_area=0.25,
        dropout_rate=0.1,
        epochs=60,
        batch_size=32,
        learning_rate=0.4,
        warmup_epochs=5.0,
    ),
    dataclasses.replace(
        _SMALL_SET,
        name="smoke",
        summary="everything once on the digits; learns next to nothing",
        image_size=8,
        evaluation_crop=1.0,
        augmentation="none",
        flip=False,
        model_arguments={"stages": ["L"], "widths": [8], "strides": [1]},
        epochs=2,
        batch_size=64,
        learning_rate=1.0,
        warmup_epochs=0.0,
    ),
    # No validation images: nothing is chosen. The averages of the last epoch
    # are the weights of the release.
    Recipe(
        name="fashion_mnist",
        summary="LambdaResNetSmall28 on the 60,000 images of Fashion-MNIST",
        data="tfds:fashion_mnist",
        image_size=28,
        evaluation_crop=1.0,
        augmentation="pad_crop",
        padding=3,
        validation_split=0.0,
        model="LambdaResNetSmall28",
        precision="mixed_bfloat16",
        epochs=70,
        batch_size=64,
        learning_rate=0.6,
        weight_decay=5e-4,
        warmup_epochs=1.0,
        norm_momentum=0.9,
        ema_decay=0.998,
    ),
    # The network and the schedule of the study of de Alvear Cardenas and de
    # Vries (Delft, 2021), with statistics and averages that settle.
    Recipe(
        name="cifar10",
        summary="ResNet-50 with lambda layers in all stages on CIFAR-10",
        data="tfds:cifar10",
        image_size=32,
        augmentation="pad_crop",
        evaluation_crop=1.0,
        validation_split=0.1,
        model="ResNet50",
        model_arguments={
            "pattern": "LLLL",
            "scope": None,
            "share_embeddings": True,
        },
        batch_size=128,
        optimizer="adam",
        learning_rate=2.5e-3,
        base_batch_size=0,
        norm_momentum=0.99,
        ema_decay=0.999,
    ),
    # Section 4 of the paper: the setting of Tables 3 to 12.
    Recipe(
        name="imagenet_90",
        summary="the paper's 90 epochs: ResNet-50, lambda layers everywhere",
        data="tfds:imagenet2012",
        model="ResNet50",
        model_arguments={"pattern": "LLLL"},
    ),
    # The rest of a row comes from Table 20, in `resolve`.
    Recipe(
        name="imagenet_350",
        summary="the paper's 350 epochs: LambdaResNets, rates from Table 20",
        data="tfds:imagenet2012",
        randaugment_layers=2,
        model="LambdaResNet152",
        epochs=350,
        weight_decay=4e-5,
    ),
    # The paper names the optimizer and its momentum. rho 0.9 and epsilon 1e-3
    # are those of the EfficientNet recipes; here the squares are averaged from
    # 0 on, as Keras does, there from 1. Label smoothing and moving average are
    # those of the paper's other recipes.
    Recipe(
        name="mobilenet_350",
        summary="the paper's MobileNetV2 with two lambda blocks, RMSprop",
        data="tfds:imagenet2012",
        model="LambdaMobileNetV2",
        dropout_rate=0.2,
        epochs=350,
        optimizer="rmsprop",
        learning_rate=0.1,
        base_batch_size=0,
        schedule="exponential",
        weight_decay=1e-5,
    ),
)
RECIPES = {recipe.name: recipe for recipe in _ROWS}


def resolve(
    name: str | None = None, changes: Mapping[str, Any] | None = None
) -> Recipe:
    """Returns a recipe by its name, with some fields changed.

    For `imagenet_350`, Table 20 of the paper gives the magnitude of
    RandAugment, dropout and stochastic depth by the model's depth and the
    image size, unless they are among the changes. `images` chooses the strides
    of its own network by the image size; another network keeps its own.

    Args:
        name: one of `RECIPES`; None for digits, or for images if the changes
            name other data.
        changes: fields to replace.

    Returns:
        A `Recipe`.

    Raises:
        ValueError: if there is no such recipe or field, or a value is not
            allowed.
    """
    changes = dict(changes or {})
    if name is None:
        of_digits = changes.get("data", "digits") == "digits"
        name = "digits" if of_digits else "images"
    if name not in RECIPES:
        raise UserError(
            f"Unknown recipe {name!r}.{did_you_mean(name, RECIPES)} There are: "
            f"{', '.join(RECIPES)}."
        )
    recipe = config.replace(RECIPES[name], changes)
    if name == "imagenet_350":
        return _with_table_20(recipe, changes)
    if name == "images" and "model" not in changes:
        arguments = {**_strides(recipe.image_size), **recipe.model_arguments}
        return dataclasses.replace(recipe, model_arguments=arguments)
    return recipe


def read_recipe(
    path: str, text: str, changes: Mapping[str, Any] | None = None
) -> Recipe:
    """Returns the recipe of a JSON file, with some fields changed.

    Args:
        path: of the file, for messages.
        text: a JSON object of recipe fields, whose `name` selects the row that
            the others change; or the content of a run's run.json.
        changes: fields to replace.

    Returns:
        A `Recipe`.

    Raises:
        ValueError: if it is neither, or as `resolve`.
    """
    try:
        content = json.loads(text)
        fields = {**content.get("recipe", content), **(changes or {})}
    except (AttributeError, TypeError, ValueError) as error:
        raise UserError(
            f"{path} must hold one JSON object of recipe fields, with the name "
            f'of a recipe as {{"name": "digits"}}. Received: {error}.'
        ) from error
    if {*Recipe().to_dict()} <= {*fields}:
        return from_dict(fields)
    return resolve(fields.pop("name", None), fields)


def listing() -> Iterable[str]:
    """Yields what each recipe trains."""
    width = max(map(len, RECIPES)) + 2
    for recipe in RECIPES.values():
        yield f"{recipe.name:{width}}{recipe.summary}"


def _strides(image_size):
    """Returns strides of LambdaResNetSmall whose last map is 7x7 or more."""
    halvings = min(max((image_size // 7).bit_length() - 1, 0), 4)
    stem, *stages = [2] * halvings + [1] * (4 - halvings)
    return {"strides": stages[::-1], "stem_strides": [stem]}


def _with_table_20(recipe, changes):
    """Fills in the row of the model's depth and the image size."""
    names = ("randaugment_magnitude", "dropout_rate", "drop_path_rate")
    if {*names} <= {*changes}:
        return recipe
    found = re.search(r"\d+", recipe.model)
    depth = int(found[0]) if found else 0
    rows = {r.image_size: r for r in TABLE_20 if r.depth == depth}
    if recipe.image_size not in rows:
        sizes = ", ".join(map(str, rows)) or "no size"
        raise UserError(
            f"Table 20 has no row for {recipe.model} at {recipe.image_size} "
            f"pixels; for this depth it has {sizes}. Choose one of them with "
            f"`image_size`, or give {', '.join(names)}."
        )
    row = rows[recipe.image_size]
    values = {name: float(getattr(row, name)) for name in names}
    return dataclasses.replace(recipe, **{**values, **changes})
