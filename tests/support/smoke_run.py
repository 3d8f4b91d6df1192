"""Runs of the recipe smoke, and what is compared of them."""

import csv
import unittest.mock

import pytest
import tensorflow as tf

from lambdanet_tf.training import RunOptions
from lambdanet_tf.training import report
from lambdanet_tf.training import resolve
from lambdanet_tf.training import train
from tests.support.arrays import assert_same


def silent(text):
    """Prints nothing."""


def run_recipe(recipe, tmp_path, options=None, on_epoch=None, say=silent):
    """Trains in a folder `run`; pictures would be half of such a run's time."""
    options = {"run_dir": str(tmp_path / "run"), **(options or {})}
    tf.keras.utils.set_random_seed(recipe.seed)
    with unittest.mock.patch.object(report, "is_there", return_value=False):
        return train(recipe, RunOptions(**options), say, on_epoch)


def run_smoke(tmp_path, options=None, on_epoch=None, say=silent, **changes):
    recipe = resolve("smoke", changes)
    return run_recipe(recipe, tmp_path, options, on_epoch, say)


def weights(folder):
    """The best weights of a run, as its model has them."""
    return folder.read().load_model().get_weights()


def metrics_rows(folder):
    with open(folder.file("metrics.csv"), encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def assert_same_end(folder, expected):
    assert_same(weights(folder), weights(expected), rtol=1e-4, atol=1e-5)
    rows, others = metrics_rows(folder), metrics_rows(expected)
    for now, then in zip(rows, others, strict=True):
        for name in ("loss", "accuracy", "validation_accuracy"):
            wanted = pytest.approx(float(then[name]), rel=1e-4)
            assert float(now[name]) == wanted
