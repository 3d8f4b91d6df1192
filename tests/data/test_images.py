"""Ranges of images: what a network takes, and what it is given by mistake."""

import dataclasses
import functools
import warnings

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from tests.support import networks

SHALLOW = {"stages": ("C",), "widths": (4,), "strides": (1,)}
SPEC = dataclasses.replace(networks.TINY, **SHALLOW)
network = functools.partial(models.ResNet, SPEC, classes=2)


def scaled(**arguments):
    """A compiled network, and images in [0, 1]."""
    model = network(input_shape=(8, 8, 3), **arguments)
    loss = "sparse_categorical_crossentropy"
    model.compile("sgd", loss, jit_compile=False)
    rng = np.random.default_rng(0)
    return model, rng.uniform(size=(2, 8, 8, 3)).astype(np.float32)


def messages(function, *arguments, **keywords):
    """What is warned of in the second of two equal calls, and in the first."""
    found = []
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            function(*arguments, **keywords)
        texts = [str(warning.message) for warning in caught]
        found.insert(0, [t for t in texts if "scaled to" in t])
    return found


@pytest.mark.parametrize(
    ("found", "change"),  # What the warning says; None: there is none.
    [
        ("[0, 1]", lambda x: x),
        ("[-1, 1]", lambda x: 2 * x - 1),
        ("zero mean and unit variance", lambda x: (x - 0.45) / 0.225),
        (None, lambda x: 255 * x),
        (None, np.zeros_like),
        (None, np.round),
        (None, lambda x: np.concatenate([x, 255 * x])),  # One image is dark.
        (None, lambda x: np.where(x > 0.5, np.nan, x)),
    ],
)
def test_images_of_another_range_are_warned_of_once(found, change):
    model, images = scaled()
    again, first = messages(model, change(images))
    assert (len(again), len(first)) == (0, found is not None)
    for text in first:
        assert found in text
        assert "takes pixels in [0, 255]" in text


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    ["fit", "evaluate", "predict", "train_on_batch", "predict_on_batch"],
)
def test_methods_of_keras_warn_of_arrays(method):
    model, images = scaled()
    labels = {} if "predict" in method else {"y": np.zeros(2, np.int32)}
    call = getattr(model, method)
    again, first = messages(call, x=tf.constant(images), **labels)
    assert (len(again), len(first)) == (0, 1)


@pytest.mark.slow
def test_there_is_no_warning_without_cause():
    """For images in range once brought there, or where no values are seen."""
    model, images = scaled()
    assert not any(messages(tf.function(model), images))
    dataset = tf.data.Dataset.from_tensors(255 * images)
    assert not any(messages(model.predict, dataset, verbose=0))
    brighter = tf.keras.layers.Rescaling(255.0)(tf.keras.Input((8, 8, 3)))
    unscaled, _ = scaled(include_preprocessing=False)
    for model in (unscaled, network(input_tensor=brighter)):
        assert not any(messages(model, images))
        assert not any(messages(model.predict, images, verbose=0))


TWO, THREE = np.zeros((1, 4, 4, 2)), np.zeros((1, 4, 4, 3))
OFF = {"include_preprocessing": False}


@pytest.mark.once
@pytest.mark.parametrize(
    ("images", "arguments", "message"),
    [
        (TWO, {"mean": (1.0, 2.0)}, "`mean` must be None here. The network"),
        (TWO, {"mean": (1, 2), **OFF}, "2 channels"),
        (TWO, {"std": (1, 2, 3), **OFF}, "`std` must"),
        (THREE, {"std": (1, 2, 3)}, "set `include_preprocessing=False`"),
        (THREE, {"mean": (1, 2), **OFF}, "each of 3"),
        (THREE, {"mean": "abc", **OFF}, "each of 3"),
        (THREE, {"std": (1, 0, 1), **OFF}, "positive"),
        (THREE, {"include_preprocessing": None}, "`include_preprocessing`"),
    ],
)
def test_arguments_of_preprocess_input(images, arguments, message):
    with pytest.raises(ValueError, match=message):
        models.preprocess_input(images, **arguments)
