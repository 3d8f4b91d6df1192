"""The training recipes: recipes.json has a file of each, as a user's own.

Nothing here imports TensorFlow.
"""

import dataclasses
import json
import pathlib
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

_TABLE = pathlib.Path(__file__).with_suffix(".json")
RECIPES = {
    row["name"]: Recipe(**row) for row in json.loads(_TABLE.read_text("utf-8"))
}


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
            f"Unknown recipe {name!r}.{did_you_mean(name, RECIPES)}"
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
    """Returns strides of LambdaResNetSmall whose last map is 7x7 or more.

    The first layers stride first: their maps are what takes the time.
    """
    halvings = min(max((image_size // 7).bit_length() - 1, 0), 4)
    stem, *stages = [2] * halvings + [1] * (4 - halvings)
    return {"strides": stages, "stem_strides": [stem]}


def _with_table_20(recipe, changes):
    """Fills in the row of the model's depth and the image size."""
    names = ("randaugment_magnitude", "dropout_rate", "drop_path_rate")
    if {*names} <= {*changes}:
        return recipe
    found = re.search(r"\d+", recipe.model)
    depth = int(found[0]) if found else 0
    rows = {r.image_size: r for r in TABLE_20 if r.depth == depth}
    if recipe.image_size not in rows:
        raise UserError(
            f"Table 20 has no row for {recipe.model} at {recipe.image_size} "
            f"pixels; for this depth it has {', '.join(map(str, rows))}. Or "
            f"give {', '.join(names)}."
        )
    row = rows[recipe.image_size]
    values = {name: float(getattr(row, name)) for name in names}
    return dataclasses.replace(recipe, **{**values, **changes})
