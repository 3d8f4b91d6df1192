"""Recipes: the table, overrides, files, and what is refused."""

import dataclasses
import json

import pytest

from lambdanet_tf.specs import TABLE_20
from lambdanet_tf.training import RECIPES
from lambdanet_tf.training import Recipe
from lambdanet_tf.training import read_recipe
from lambdanet_tf.training import resolve
from lambdanet_tf.training.recipes import KINDS
from lambdanet_tf.training.recipes import field_type


def test_every_row_has_the_name_it_is_kept_under():
    assert all(recipe.name == name for name, recipe in RECIPES.items())


def test_every_field_has_a_help_text_and_a_plain_type():
    for field in dataclasses.fields(Recipe):
        assert field.metadata["help"]
        assert field_type(field) in KINDS


@pytest.mark.parametrize("name", [n for n in RECIPES if n != "imagenet_350"])
def test_a_row_resolves_to_itself(name):
    assert resolve(name) == RECIPES[name]


def test_what_the_paper_states_for_90_epochs():
    recipe = resolve("imagenet_90")
    assert (recipe.epochs, recipe.batch_size, recipe.image_size) == (
        90, 4096, 224)  # fmt: skip
    assert (recipe.learning_rate, recipe.rate_batch) == (0.1, 256)
    assert (recipe.warmup_epochs, recipe.schedule) == (5.0, "cosine")
    assert (recipe.momentum, recipe.weight_decay) == (0.9, 1e-4)
    assert (recipe.norm_momentum, recipe.average_decay) == (0.9999, 0.9999)
    assert recipe.label_smoothing == 0.1


@pytest.mark.parametrize("row", TABLE_20)
def test_table_20_fills_the_350_epoch_recipe(row):
    recipe = resolve(
        "imagenet_350",
        {"model": f"LambdaResNet{row.depth}", "image_size": row.image_size},
    )
    assert recipe.randaugment_magnitude == row.randaugment_magnitude
    assert recipe.dropout == row.dropout_rate
    assert recipe.stochastic_depth == row.drop_path_rate
    assert (recipe.epochs, recipe.weight_decay) == (350, 4e-5)
    assert recipe.randaugment_layers == 2


def test_table_20_serves_the_baselines_too():
    recipe = resolve(
        "imagenet_350", {"model": "ResNetRS350", "image_size": 288}
    )
    assert (recipe.dropout, recipe.stochastic_depth) == (0.3, 0.2)


def test_a_size_without_a_row_is_an_error_unless_all_is_given():
    with pytest.raises(ValueError, match="for this depth it has 128, 160"):
        resolve("imagenet_350", {"model": "LambdaResNet50"})
    given = {
        "model": "LambdaResNet50",
        "randaugment_magnitude": 5,
        "dropout": 0.1,
        "stochastic_depth": 0.2,
    }
    recipe = resolve("imagenet_350", given)
    assert recipe.dropout == 0.1


def test_an_override_wins_over_table_20():
    recipe = resolve("imagenet_350", {"dropout": 0.5})
    assert (recipe.dropout, recipe.stochastic_depth) == (0.5, 0.1)


# Overrides.


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("epochs", "7", 7),
        ("epochs", "1e2", 100),
        ("learning-rate", "1", 1),
        ("learning_rate", "2.5e-3", 2.5e-3),
        ("flip", "True", True),
        ("flip", "false", False),
        ("model", "LambdaResNet50", "LambdaResNet50"),
        ("model_arguments", '{"scope": 7}', {"scope": 7}),
    ],
)
def test_texts_become_values(name, text, value):
    recipe = resolve("digits", {name: text})
    assert getattr(recipe, name.replace("-", "_")) == value


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"epoch": 3}, r"Unknown recipe field 'epoch'\. Did you mean 'epochs'"),
        ({"lerning-rate": "1"}, "Did you mean 'learning_rate'"),
        ({"epochs": "many"}, "`epochs` must be a whole number.*'many'"),
        ({"epochs": 2.5}, r"`epochs` must be a whole number. Received: 2\.5"),
        ({"epochs": "true"}, "`epochs` must be a whole number"),
        ({"epochs": 0}, "`epochs` must lie between 1 and"),
        ({"flip": "yes"}, "`flip` must be true or false"),
        ({"flip": 1}, "`flip` must be true or false"),
        (
            {"optimizer": "lion"},
            "`optimizer` must be one of sgd, rmsprop, adam",
        ),
        ({"model_arguments": "[1]"}, "`model_arguments` must be a JSON object"),
        ({"learning_rate": -0.1}, "`learning_rate` must lie between 0"),
        ({"mixup": 0.2, "cutmix": 1.0}, "must not both be used"),
    ],
)
def test_what_is_refused(overrides, message):
    with pytest.raises(ValueError, match=message):
        resolve("digits", overrides)


def test_an_unknown_recipe_suggests_the_nearest():
    with pytest.raises(ValueError, match="Did you mean 'imagenet_90'"):
        resolve("imagenet_9")


# Files.


@pytest.mark.parametrize("name", RECIPES)
def test_a_resolved_recipe_is_read_back(name):
    recipe = resolve(name)
    assert read_recipe("file", json.dumps(recipe.to_dict())) == recipe
    run = {"format": 1, "recipe": recipe.to_dict()}
    assert read_recipe("file", json.dumps(run)) == recipe


def test_a_file_of_overrides():
    recipe = read_recipe("file", '{"name": "smoke", "epochs": 7}')
    assert recipe == dataclasses.replace(RECIPES["smoke"], epochs=7)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "file is not a JSON file"),
        ("[1]", "file must hold one JSON object"),
        ('{"epoch": 3}', "Did you mean 'epochs'"),
    ],
)
def test_bad_files(text, message):
    with pytest.raises(ValueError, match=message):
        read_recipe("file", text)
