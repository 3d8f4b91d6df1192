"""From a row of the table and a user's changes to the recipe of a run."""

import dataclasses
import difflib
import json
import re

from lambdanet_tf.specs import TABLE_20
from lambdanet_tf.training.recipes import KINDS
from lambdanet_tf.training.recipes import RECIPES
from lambdanet_tf.training.recipes import Recipe
from lambdanet_tf.training.recipes import field_type


def resolve(name="digits", overrides=None):
    """The recipe of a run.

    Of the recipe `imagenet_350`, Table 20 of the paper gives the strength of
    RandAugment, the dropout and the stochastic depth by the model's depth and
    the image size, unless they are overridden.

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
    overrides = _parsed(overrides or {})
    recipe = dataclasses.replace(RECIPES[name], **overrides)
    if name == "imagenet_350":
        recipe = _with_table_20(recipe, overrides)
    return recipe


def replace(recipe, overrides):
    """A recipe with some fields replaced; see `resolve`."""
    return dataclasses.replace(recipe, **_parsed(overrides))


def read_recipe(path, text):
    """The recipe of a file: a resolved recipe, or a row with overrides.

    The file holds a JSON object. Its `name` selects the row; the other fields
    replace that row's. A run's `run.json` works as well.

    Args:
        path: str. Where the text comes from, for messages.
        text: str. What the file holds.

    Returns:
        A `Recipe`.

    Raises:
        ValueError: if the text is not such a file.
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


def nearest(name, names):
    """' Did you mean ...?' for the most similar name, or an empty text."""
    found = difflib.get_close_matches(name, list(names), n=1, cutoff=0.5)
    return f" Did you mean {found[0]!r}?" if found else ""


def _parsed(overrides):
    """The overrides as values of known fields."""
    fields = {field.name: field for field in dataclasses.fields(Recipe)}
    values = {}
    for key, value in overrides.items():
        name = key.replace("-", "_")
        if name not in fields:
            raise ValueError(
                f"Unknown recipe field {key!r}.{nearest(name, fields)}"
            )
        if isinstance(value, str):
            value = _parse(fields[name], value)
        values[name] = value
    return values


def _parse(field, text):
    """The value of a field from the text of a command line."""
    kind = field_type(field)
    if kind is str:
        return text
    try:
        value = json.loads(text.lower() if kind is bool else text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"`{field.name}` must be {KINDS[kind]}. Received: {text!r}."
        ) from error
    if kind is int and isinstance(value, float) and value.is_integer():
        value = int(value)
    return value


def _with_table_20(recipe, overrides):
    """The recipe with the row of its model's depth and its image size."""
    found = re.match(r"\D+(\d+)", recipe.model)
    depth = int(found.group(1)) if found else 0
    rows = [row for row in TABLE_20 if row.depth == depth]
    for row in rows:
        if row.image_size == recipe.image_size:
            values = {
                "randaugment_magnitude": float(row.randaugment_magnitude),
                "dropout": row.dropout_rate,
                "stochastic_depth": row.drop_path_rate,
            }
            return dataclasses.replace(recipe, **{**values, **overrides})
    needed = {"randaugment_magnitude", "dropout", "stochastic_depth"}
    if needed <= set(overrides):
        return recipe
    sizes = ", ".join(str(row.image_size) for row in rows) or "no size"
    raise ValueError(
        f"Table 20 has no row for {recipe.model} at {recipe.image_size} "
        f"pixels; for this depth it has {sizes}. Choose one of them with "
        "`image_size`, or give randaugment_magnitude, dropout and "
        "stochastic_depth."
    )
