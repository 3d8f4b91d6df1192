"""Recipes: the table, changes, files, and what is refused."""

import json

import numpy as np
import pytest

from lambdanet_tf import training
from lambdanet_tf.specs import TABLE_20

pytestmark = pytest.mark.once


@pytest.mark.parametrize("name", training.RECIPES)
def test_every_row_resolves_to_itself_and_is_read_back(name):
    """From a file, or a run."""
    recipe = training.RECIPES[name]
    assert recipe.name == name
    assert recipe.summary
    resolved = training.resolve(name)
    assert resolved == recipe or name in ("imagenet_350", "images")
    fields = resolved.to_dict()
    for content in (fields, {"recipe": fields}):
        assert training.read_recipe("file", json.dumps(content)) == resolved


def test_what_the_paper_states():
    """For 90 epochs, and in Table 20 for 350."""
    stated = {"epochs": 90, "batch_size": 4096, "image_size": 224}
    stated |= {"learning_rate": 0.1, "base_batch_size": 256, "momentum": 0.9}
    stated |= {"warmup_epochs": 5.0, "schedule": "cosine", "weight_decay": 1e-4}
    stated |= {"norm_momentum": 0.9999, "ema_decay": 0.9999}
    stated |= {"label_smoothing": 0.1}
    assert stated.items() <= training.resolve("imagenet_90").to_dict().items()
    changes = {"model": "ResNetRS350", "image_size": 288}
    recipe = training.resolve("imagenet_350", changes)
    (row,) = [r for r in TABLE_20 if (r.depth, r.image_size) == (350, 288)]
    assert recipe.randaugment_magnitude == row.randaugment_magnitude
    assert (recipe.dropout_rate, recipe.drop_path_rate) == (0.3, 0.2)
    assert (recipe.epochs, recipe.weight_decay) == (350, 4e-5)
    recipe = training.resolve("imagenet_350", {"dropout_rate": 0.5})
    assert (recipe.dropout_rate, recipe.drop_path_rate) == (0.5, 0.1)
    given = {"model": "LambdaResNet50", "dropout_rate": 0.1}
    with pytest.raises(ValueError, match="for this depth it has 128, 160"):
        training.resolve("imagenet_350", given)
    given |= {"randaugment_magnitude": 5, "drop_path_rate": 0.2}
    assert training.resolve("imagenet_350", given).dropout_rate == 0.1


OWN = ["classes", "classifier_activation", "endpoints", "include_preprocessing"]
OWN += ["include_top", "input_shape", "name", "dropout_rate"]
OWN += ["kernel_regularizer"]
REFUSED = [
    ({"epoch": 3}, r"Unknown field 'epoch'\. Did you mean 'epochs'"),
    ({"name": "image"}, "Unknown recipe 'image'. .* mean 'images'"),
    ({"epochs": "many"}, "`epochs` must be int.*'many'"),
    ({"epochs": 0}, "`epochs` must be .*at least 1"),
    ({"dropout_rate": 1.0}, "`dropout_rate` must be below 1"),
    ({"zoom": 2.0}, r"`zoom` must be at most 0\.9"),
    ({"flip": 1}, "`flip` must be bool"),
    ({"optimizer": "lion"}, "`optimizer` must be one of .*'sgd'"),
    *[({"model_arguments": {name: 1}}, f"not have {name}") for name in OWN],
    *[(text, "must hold one JSON object") for text in ("{", [1])],
    *[({"recipe": x}, "must hold one") for x in ("digits", ["digits"], None)],
]


@pytest.mark.parametrize(("content", "message"), REFUSED)
def test_what_is_refused(content, message):
    text = content if isinstance(content, str) else json.dumps(content)
    with pytest.raises(ValueError, match=message):
        training.read_recipe("file", text)


def test_files_of_changes_are_read_and_json_changes_nothing():
    """NumPy's numbers, and tuples."""
    recipe = training.read_recipe("file", '{"name": "smoke", "epochs": 7}')
    assert recipe == training.resolve("smoke", {"epochs": 7})
    mine = training.Recipe(name="mine", epochs=7)
    assert training.read_recipe("file", json.dumps(mine.to_dict())) == mine
    given = {"stages": ("L",), "widths": (np.int64(8),)}
    changes = {"batch_size": np.int64(8), "model_arguments": given}
    recipe = training.resolve("smoke", changes)
    assert recipe.model_arguments == {"stages": ["L"], "widths": [8]}
    text = json.dumps(recipe.to_dict())
    assert training.read_recipe("file", text) == recipe


SIZES = [(8, 1), (28, 4), (32, 4), (64, 8), (96, 8), (112, 16), (224, 16)]


@pytest.mark.parametrize(("size", "stride"), SIZES)
def test_strides_for_own_images_leave_a_map_of_seven(size, stride):
    """Those of a network that is named are its own."""
    given = {"data": "folder:mine", "image_size": size}
    found = training.resolve(None, given).model_arguments
    assert np.prod([*found["strides"], *found["stem_strides"]]) == stride
    assert size // stride >= 7
    named = training.resolve(None, {**given, "model": "LambdaResNetSmall28"})
    assert named.model_arguments == {}
    own = {"strides": [1, 1, 1]}
    changed = training.resolve(None, {**given, "model_arguments": own})
    assert changed.model_arguments["strides"] == [1, 1, 1]
