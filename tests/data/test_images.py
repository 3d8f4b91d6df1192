"""Ranges of images: what a network takes, and what it is given by mistake."""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf import specs

RANGES = {  # By what the warning says; None: there is none.
    "[0, 1]": lambda x: x,
    "[-1, 1]": lambda x: 2 * x - 1,
    "zero mean and unit variance": lambda x: (x - 0.45) / 0.225,
}
FINE = {
    "pixels": lambda x: 255 * x,
    "integers": lambda x: (255 * x).astype(np.uint8),
    "black": np.zeros_like,
    "whole numbers": np.round,
    "resized and dark": lambda x: 3.2 * x - 0.2,
    "one image is dark": lambda x: np.concatenate([x, 255 * x]),
    "not finite": lambda x: np.where(x > 0.5, np.nan, x),
}


SMALL = specs.ResNetSpec(
    name="small",
    stages=("C",),
    widths=(4,),
    strides=(1,),
    stem_filters=(4,),
    stem_strides=(1,),
    stem_pool=False,
)


def network(**arguments):
    return models.ResNet(SMALL, classes=2, **arguments)


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


@pytest.mark.parametrize("kind", [*RANGES, *FINE])
def test_images_of_another_range_are_warned_of_once(kind):
    model, images = scaled()
    images = {**RANGES, **FINE}[kind](images)
    again, first = messages(model, images)
    assert not again
    if kind in FINE:
        assert not first
        return
    (text,) = first
    assert kind in text
    assert "takes pixels in [0, 255]" in text


LABELS = np.zeros(2, np.int32)
METHODS = {
    "fit": {"y": LABELS, "verbose": 0},
    "evaluate": {"y": LABELS, "verbose": 0},
    "predict": {"verbose": 0},
    "train_on_batch": {"y": LABELS},
    "test_on_batch": {"y": LABELS},
    "predict_on_batch": {},
}


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_methods_of_keras_warn_of_arrays(method):
    model, images = scaled()
    call = getattr(model, method)
    assert call.__name__ == method
    again, first = messages(call, x=tf.constant(images), **METHODS[method])
    assert len(first) == 1
    assert not again
    assert not any(messages(model, images))  # Once for a network.


@pytest.mark.slow
def test_there_is_no_warning_without_cause():
    """For images in range once brought there, or where no values are seen."""
    model, images = scaled()
    assert not any(messages(tf.function(model), images))
    dataset = tf.data.Dataset.from_tensors(255 * images)
    assert not any(messages(model.predict, dataset, verbose=0))
    model(np.zeros_like(images))  # as a first call that builds
    assert messages(model, images)[1]

    model, _ = scaled(include_preprocessing=False)
    assert not any(messages(model, images))
    assert not any(messages(model.predict, images, verbose=0))
    inputs = tf.keras.Input((8, 8, 3))
    brighter = tf.keras.layers.Rescaling(255.0)(inputs)
    model = network(input_tensor=brighter)
    assert not any(messages(model, images))
    assert not any(messages(model.predict, images, verbose=0))


@pytest.mark.slow
def test_a_network_is_saved_and_cloned_as_without(tmp_path):
    model, images = scaled()
    expected = model(255 * images)
    model.save(tmp_path / "model.keras")
    loaded = tf.keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(loaded(255 * images), expected)
    clone = tf.keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    np.testing.assert_array_equal(clone(255 * images), expected)
    tf.saved_model.save(model, str(tmp_path / "saved"))
    assert type(model) is type(loaded)
    layer = model.get_layer("preprocessing")
    assert type(layer) is tf.keras.layers.Rescaling


TWO, THREE = np.zeros((1, 4, 4, 2)), np.zeros((1, 4, 4, 3))


@pytest.mark.once
@pytest.mark.parametrize(
    ("images", "arguments", "message"),
    [
        (TWO, {"mean": (1.0, 2.0)}, "`mean` must be None here. The network"),
        (TWO, {"mean": (1, 2), "include_preprocessing": False}, "2 channels"),
        (TWO, {"std": (1, 2, 3), "include_preprocessing": False}, "`std` must"),
        (THREE, {"std": (1, 2, 3)}, "set `include_preprocessing=False`"),
        (THREE, {"mean": (1, 2), "include_preprocessing": False}, "each of 3"),
        (THREE, {"mean": 1, "include_preprocessing": False}, "each of 3"),
        (THREE, {"mean": "abc", "include_preprocessing": False}, "each of 3"),
        (THREE, {"std": (1, 0, 1), "include_preprocessing": False}, "positive"),
        (THREE, {"include_preprocessing": None}, "`include_preprocessing`"),
    ],
)
def test_arguments_of_preprocess_input(images, arguments, message):
    with pytest.raises(ValueError, match=message):
        models.preprocess_input(images, **arguments)


def test_preprocess_input_changes_nothing():
    """As that of `keras.applications` for networks that normalize."""
    for images in (TWO, THREE, tf.constant(THREE), THREE.astype(np.uint8)):
        assert models.preprocess_input(images) is images
        theirs = tf.keras.applications.efficientnet.preprocess_input(images)
        assert theirs is images
