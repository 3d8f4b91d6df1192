"""Recipes: the table, changes, files, flags, and what is refused."""

import dataclasses
import json

import pytest

from lambdanet_tf import config
from lambdanet_tf import data
from lambdanet_tf.specs import TABLE_20
from lambdanet_tf.training import RECIPES
from lambdanet_tf.training import Recipe
from lambdanet_tf.training import read_recipe
from lambdanet_tf.training import resolve
from lambdanet_tf.training.recipe import differences
from lambdanet_tf.training.recipe import from_dict
from lambdanet_tf.training.recipes import listing

pytestmark = pytest.mark.once


@pytest.mark.parametrize("name", RECIPES)
def test_every_row_says_what_how_and_with_what_result(name):
    """And resolves to itself, and is read back from a file or a run."""
    recipe = RECIPES[name]
    assert recipe.name == name
    assert recipe.summary
    assert recipe.command.startswith("python train.py")
    assert name == "digits" or "--" in recipe.command
    assert recipe.result
    assert [line.split()[0] for line in listing()].count(name) == 1
    resolved = resolve(name)
    assert resolved == recipe or name == "imagenet_350"
    assert read_recipe("file", json.dumps(resolved.to_dict())) == resolved
    run = {"format": 2, "recipe": resolved.to_dict()}
    assert read_recipe("file", json.dumps(run)) == resolved


def test_every_kind_of_data_is_in_the_help():
    (field,) = [f for f in dataclasses.fields(Recipe) if f.name == "data"]
    for source in data.SOURCES:
        if not source.startswith("fake"):  # For benchmarks and dry runs.
            assert source.partition(":")[0] in field.metadata["help"]


def test_what_the_paper_states_for_90_epochs():
    recipe = resolve("imagenet_90")
    assert (recipe.epochs, recipe.batch_size) == (90, 4096)
    assert recipe.image_size == 224
    assert (recipe.learning_rate, recipe.base_batch_size) == (0.1, 256)
    assert (recipe.warmup_epochs, recipe.schedule) == (5.0, "cosine")
    assert (recipe.momentum, recipe.weight_decay) == (0.9, 1e-4)
    assert (recipe.norm_momentum, recipe.ema_decay) == (0.9999, 0.9999)
    assert recipe.label_smoothing == 0.1


def test_images_of_ones_own_are_not_trained_like_digits():
    recipe = resolve("images")
    assert 64 <= recipe.image_size <= 224
    assert recipe.augmentation == "random_crop"
    assert recipe.warmup_epochs < recipe.epochs / 4


@pytest.mark.parametrize("row", TABLE_20)
def test_table_20_fills_the_350_epoch_recipe(row):
    recipe = resolve(
        "imagenet_350",
        {"model": f"LambdaResNet{row.depth}", "image_size": row.image_size},
    )
    assert recipe.randaugment_magnitude == row.randaugment_magnitude
    assert recipe.dropout_rate == row.dropout_rate
    assert recipe.drop_path_rate == row.drop_path_rate
    assert (recipe.epochs, recipe.weight_decay) == (350, 4e-5)
    assert recipe.randaugment_layers == 2


def test_table_20_serves_the_baselines_too_and_must_be_filled():
    recipe = resolve(
        "imagenet_350", {"model": "ResNetRS350", "image_size": 288}
    )
    assert (recipe.dropout_rate, recipe.drop_path_rate) == (0.3, 0.2)
    given = {"model": "LambdaResNet50"}
    with pytest.raises(ValueError, match="for this depth it has 128, 160"):
        resolve("imagenet_350", given)
    given |= {"randaugment_magnitude": 5, "drop_path_rate": 0.2}
    given["dropout_rate"] = 0.1
    assert resolve("imagenet_350", given).dropout_rate == 0.1


def test_a_change_wins_over_table_20():
    recipe = resolve("imagenet_350", {"dropout_rate": 0.5})
    assert (recipe.dropout_rate, recipe.drop_path_rate) == (0.5, 0.1)


# Changes.


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epoch": 3}, r"Unknown field 'epoch'\. Did you mean 'epochs'"),
        ({"lerning_rate": 1}, "Did you mean 'learning_rate'"),
        ({"summary": "mine"}, "Unknown field 'summary'"),
        ({"epochs": "many"}, "`epochs` must be int.*'many'"),
        ({"epochs": 2.5}, r"`epochs` must be int.*2\.5"),
        ({"epochs": True}, "`epochs` must be int"),
        ({"epochs": 0}, "`epochs` must be at least 1"),
        ({"dropout_rate": 1.0}, "must be at least 0 and below 1"),
        ({"weight_decay": float("nan")}, "must lie between 0 and 1"),
        ({"zoom": 2.0}, r"`zoom` must lie between 0 and 0\.9"),
        ({"flip": "yes"}, "`flip` must be bool"),
        ({"flip": 1}, "`flip` must be bool"),
        ({"optimizer": "lion"}, "`optimizer` must be one of .*'sgd'"),
        ({"model_arguments": [1]}, "`model_arguments` must be .*Mapping"),
        ({"learning_rate": -0.1}, "`learning_rate` must be at least 0"),
        ({"mixup": 0.2, "cutmix": 1.0}, "must not both be used"),
        (
            {"model_arguments": {"kernel_regularizer": "l2"}},
            "`weight_decay` must be 0 if",
        ),
    ],
)
def test_what_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        resolve("digits", changes)


def test_differences_are_of_what_is_computed():
    changed = resolve("digits", {"epochs": 3})
    assert differences(RECIPES["digits"], changed) == {"epochs": (40, 3)}
    renamed = dataclasses.replace(changed, name="mine", summary="my own")
    assert differences(renamed, changed) == {}


# Files.


def test_a_run_of_before_accumulation_went_can_be_read():
    recipe = resolve("smoke")
    field = "gradient_accumulation_steps"
    assert from_dict({**recipe.to_dict(), field: 1}) == recipe
    with pytest.raises(ValueError, match=field):
        from_dict({**recipe.to_dict(), field: 2})


def test_a_file_of_changes():
    recipe = read_recipe("file", '{"name": "smoke", "epochs": 7}')
    assert recipe == dataclasses.replace(RECIPES["smoke"], epochs=7)
    assert read_recipe("file", '{"name": "mine", "epochs": 7}').name == "mine"


# Flags.


def flags():
    parser = config.Parser(prog="mine")
    config.add_flags(parser, Recipe, defaults={"epochs": 40})
    return parser


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        ("--epochs 7", "epochs", 7),
        ("--epochs=1e2", "epochs", 100),
        ("--learning-rate 1", "learning_rate", 1.0),
        ("--learning-rate 2.5e-3", "learning_rate", 2.5e-3),
        ("--flip", "flip", True),
        ("--no-flip", "flip", False),
        ("--model LambdaResNet50", "model", "LambdaResNet50"),
        ("--model 7", "model", "7"),
        ('--model-arguments {"scope":7}', "model_arguments", {"scope": 7}),
    ],
)
def test_texts_become_values(arguments, name, value):
    given = config.given(flags().parse(arguments.split()), Recipe)
    assert given == {name: value}
    assert type(given[name]) is type(value)


def test_the_help_has_every_field_and_its_default():
    text = " ".join(flags().format_help().split())
    for field in dataclasses.fields(Recipe):
        if "help" in field.metadata:
            assert f"--{field.name.replace('_', '-')}" in text
    assert "passes over the training images (40)" in text
    assert "(0: none) (0.0)" not in text


def parse(argument):
    flags().parse([argument])


def read_text(text):
    read_recipe("file", text)


@pytest.mark.parametrize(
    ("read", "text", "message"),
    [
        (resolve, "imagenet_9", "Did you mean 'imagenet_90'"),
        (
            parse,
            "--epoch",
            "Unknown argument '--epoch'. Did you mean '--epochs'",
        ),
        (parse, "--lerning_rate=3", "Did you mean '--learning-rate'"),
        (parse, "--lr=3", "Did you mean '--learning-rate'"),
        (parse, "--wd", "Did you mean '--weight-decay'"),
        (parse, "--dropout", "Did you mean '--dropout-rate'"),
        (parse, "--qqq", r"Unknown argument '--qqq'\.$"),
        (parse, "17", "Unexpected argument '17'"),
        (read_text, "{", "file is not a JSON file"),
        (read_text, "[1]", "file must hold one JSON object"),
        (read_text, '{"epoch": 3}', "Did you mean 'epochs'"),
    ],
)
def test_bad_texts_are_named_with_the_nearest(read, text, message):
    with pytest.raises(ValueError, match=message):
        read(text)
