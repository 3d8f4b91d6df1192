"""Weights by name: round trips, between the Kerases, and clear refusals."""

import functools
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.models import weights
from tests.support import checks
from tests.support.networks import arrays
from tests.support.networks import assert_weights
from tests.support.networks import some_images
from tests.support.networks import tiny
from tests.support.networks import vary

pytestmark = pytest.mark.every_lane

KERAS = tf.keras.layers

# Shared embeddings, squeeze-and-excitation, a hybrid stage.
ARGUMENTS = {
    "stages": ("LL", "CLL", "L"),
    "share_embeddings": True,
    "se_ratio": 0.5,
}


@functools.cache
def _built(slot, **arguments):
    return tiny(**{**ARGUMENTS, **arguments})


def network(seed=0, slot=None, **arguments):
    """With the weights of a seed; built once for a slot, by default the seed's.

    Two calls for one slot give one network, its weights set back.
    """
    model = _built(seed if slot is None else slot, **arguments)
    vary(model, seed)
    return model


def saved(tmp_path, **arguments):
    path = str(tmp_path / "weights.npz")
    model = network(**arguments)
    models.save_weights(model, path)
    return model, path


@pytest.mark.slow
def test_names_are_an_address_book():
    names = models.named_weights(network())
    assert {
        "stem_conv1/kernel",
        "stage2_block1_conv1_norm/moving_variance",
        "stage2_block1_lambda/query/kernel",
        "stage2_block1_lambda/value_norm/gamma",
        "stage2_embedding/embeddings",
        "stage3_block1_conv2/kernel",
        "stage3_block1_se/reduce/bias",
        "stage3_block1_shortcut/kernel",
        "stage4_block1_lambda/position_embedding/embeddings",
        "predictions/bias",
    } <= set(names)
    assert len(names) == len(network().weights)


def test_round_trip(tmp_path):
    """Files are plain NumPy."""
    model, path = saved(tmp_path)
    restored = network(seed=1)
    models.load_weights(restored, path)
    assert_weights(restored, model)
    assert_weights(tiny(**ARGUMENTS, weights=path), model)
    assert os.listdir(tmp_path) == ["weights.npz"]  # Nothing half-written.
    with np.load(path, allow_pickle=False) as archive:
        header = json.loads(str(archive["format"]))
        kernel = archive["stem_conv1/kernel"]
    assert header == {"version": 1, "model": "tiny"}
    assert kernel.shape == (3, 3, 3, 8)
    np.testing.assert_array_equal(
        kernel, np.asarray(model.get_layer("stem_conv1").kernel)
    )


@pytest.mark.slow
def test_models_inside_models(tmp_path):
    def wrapped(seed):
        inner = network(seed, include_top=False, pooling="avg")
        images = tf.keras.Input((16, 16, 3))
        x = tf.keras.layers.Dense(2, name="scores")(inner(images))
        return tf.keras.Model(images, x)

    path = str(tmp_path / "weights.npz")
    models.save_weights(wrapped(0), path)
    restored = wrapped(1)
    models.load_weights(restored, path)
    assert_weights(restored.get_layer("tiny"), network(0, include_top=False))


@pytest.mark.slow
def test_backbone_of_a_classifier(tmp_path):
    model, path = saved(tmp_path)
    backbone = tiny(**ARGUMENTS, include_top=False, weights=path)
    assert_weights(backbone, model)
    lower = tiny(**ARGUMENTS, endpoints=("c2", "c3"), weights=path)
    assert_weights(lower, model)


@pytest.mark.slow
def test_another_number_of_classes(tmp_path):
    model, path = saved(tmp_path)
    other = network(seed=1, classes=3)
    with pytest.raises(ValueError, match="Only the classifier differs") as info:
        models.load_weights(other, path)
    assert "(64, 5) in the file and (64, 3) in the model" in str(info.value)
    assert "skip_mismatch=True" in str(info.value)
    fresh = network(seed=1, slot="fresh", classes=3)
    models.load_weights(other, path, skip="predictions")
    assert_weights(other, fresh, but=["st"])
    below = tf.keras.Model(other.input, other.get_layer("pool").output)
    assert_weights(below, model)
    # The same, and the head is named.
    other = network(seed=1, classes=3)
    skipped = models.load_weights(other, path, skip_mismatch=True)
    assert skipped == ("predictions/kernel", "predictions/bias")
    assert_weights(other, fresh, but=["st"])
    assert_weights(below, model)
    assert models.load_weights(network(seed=1), path, skip_mismatch=True) == ()


def test_skipped_weights_stay(tmp_path):
    model, path = saved(tmp_path)
    other = network(seed=1)
    models.load_weights(other, path, skip=("stage4", "stem"))
    assert_weights(other, model, but=("stage4", "stem"))


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.once_a_version
@pytest.mark.parametrize(
    ("arguments", "messages"),
    [
        ({"stages": ("LL", "CLLL", "L")}, ["missing in the file", "block4"]),
        ({"stages": ("LL", "CL", "L")}, ["unexpected in the file", "block3"]),
        ({"scope": 7}, ["of another shape", "(5, 5, 4, 1)", "(7, 7, 4, 1)"]),
        ({"share_embeddings": False}, ["missing", "unexpected", "and"]),
    ],
)
def test_files_of_other_networks(tmp_path, arguments, messages):
    _, path = saved(tmp_path)
    other = network(seed=1, **arguments)
    with pytest.raises(ValueError, match="does not fit 'tiny'") as info:
        models.load_weights(other, path)
    assert all(message in str(info.value) for message in messages)
    fresh = network(seed=1, slot="fresh", **arguments)
    assert_weights(other, fresh)  # Nothing has changed.


def test_files_that_are_no_weights(tmp_path):
    text = tmp_path / "notes.npz"
    text.write_text("not weights")
    foreign = tmp_path / "foreign.npz"
    np.savez(foreign, kernel=np.zeros(3))
    newer = tmp_path / "newer.npz"
    np.savez(newer, format=np.array('{"version": 2, "model": "tiny"}'))
    for path, message in (
        (text, "is none"),
        (foreign, "is none"),
        (newer, "is in version 2"),
        (tmp_path / "absent.npz", "No such file"),
        (3, "must be None, 'imagenet', 'fashion_mnist' or a path. Received: 3"),
    ):
        with pytest.raises(ValueError, match=message):
            models.load_weights(network(), path)
    with pytest.raises(ValueError, match="must end in '.npz'"):
        models.save_weights(network(), tmp_path / "weights.h5")


@pytest.mark.slow
@pytest.mark.representatives(5)
@pytest.mark.once
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("model.pth", "pickle of PyTorch.*safetensors"),
        ("model.pt", "pickle of PyTorch.*safetensors"),
        ("MODEL.PTH.TAR", "pickle of PyTorch.*safetensors"),
        ("pytorch_model.bin", "pickle of PyTorch.*safetensors"),
        ("model.keras", "whole model.*load_model"),
        ("model.h5", "whole model.*load_model"),
        ("model.weights.h5", r"`model\.load_weights`"),
        ("model.ckpt", "tf.train.Checkpoint"),
        ("ckpt-1.index", "tf.train.Checkpoint"),
        ("model.onnx", "converted model"),
        ("model.tflite", "converted model"),
        ("kernel.npy", "one array"),
        ("weights.pkl", "pickle, which can run"),
    ],
)
def test_files_of_other_formats(name, message, tmp_path):
    path = tmp_path / name
    for exists in (False, True):
        if exists:
            path.write_bytes(b"\x80\x02}q\x00.")
        for give in (models.load_weights, lambda m, p: tiny(weights=p)):
            with pytest.raises(ValueError, match=message) as info:
                give(None, path)
            text = str(info.value)
            assert str(path) in text
            assert "\n" not in text
            assert "allow_pickle" not in text
            assert info.value.__cause__ is None


@pytest.mark.once
def test_what_numpy_says_of_a_pickle_is_not_passed_on(tmp_path):
    path = tmp_path / "weights"
    path.write_bytes(b"\x80\x02}q\x00.")
    with pytest.raises(ValueError, match="is none, or a damaged one") as info:
        models.load_weights(network(), path)
    assert "pickle" not in str(info.value)
    assert info.value.__suppress_context__


class Several(tf.keras.layers.Layer):
    """A layer of two that an attribute holds, made of a list of them."""

    def __init__(self, hold):
        super().__init__(name="several")
        parts = [tf.keras.layers.Dense(3) for _ in range(2)]
        for part in parts:
            part.build((None, 3))
        self.parts = hold(parts)

    def call(self, x):
        return x


def test_weights_without_an_address():
    images = tf.keras.Input((3,))
    layer = Several(lambda parts: dict(zip("ab", parts, strict=True)))
    model = tf.keras.Model(images, layer(images))
    with pytest.raises(ValueError, match="are called several/kernel"):
        models.named_weights(model)


HELD = {
    "list": (lambda x: Several(list)(x), "several/parts/1/kernel"),
    "attention": (
        lambda x: KERAS.MultiHeadAttention(2, 4, name="attention")(x, x),
        "attention/query_dense/kernel",
    ),
    "cells": (
        lambda x: KERAS.RNN([KERAS.LSTMCell(3) for _ in range(2)], name="rnn")(
            x
        ),
        "rnn/cell/cells/1/recurrent_kernel",
    ),
}


@pytest.mark.parametrize("kind", HELD)
def test_sublayers_in_lists_and_under_hidden_names(kind):
    call, name = HELD[kind]
    inputs = tf.keras.Input((5, 3))
    model = tf.keras.Model(inputs, call(inputs))
    names = models.named_weights(model)
    assert name in names
    assert len(names) == len(model.weights)


@pytest.mark.parametrize("before", [True, False])
def test_bfloat16_is_single_precision_in_files(before, tmp_path, monkeypatch):
    def dense(seed):
        x = tf.keras.Input((3,), dtype="bfloat16")
        model = tf.keras.Model(
            x, KERAS.Dense(4, dtype="bfloat16", name="dense")(x)
        )
        kernel = np.random.default_rng(seed).normal(size=(3, 4))
        model.layers[-1].kernel.assign(tf.cast(kernel, "bfloat16"))
        return model

    if before:  # As files were written that nothing could read.
        monkeypatch.setattr(weights, "_known_to_numpy", lambda array: array)
    model, other = dense(0), dense(1)
    path = tmp_path / "weights.npz"
    models.save_weights(model, path)
    monkeypatch.undo()
    with np.load(path) as archive:
        types = {x.dtype.str for k, x in archive.items() if k != "format"}
    assert types == ({"|V2"} if before else {"<f4"})
    models.load_weights(other, path)
    assert_weights(other, model)
    models.set_weights(dense(2), arrays(model), "a copy")


def test_complex_numbers_are_no_weights():
    model = network()
    given = arrays(model)
    given["predictions/bias"] = given["predictions/bias"] * 1j
    with pytest.raises(ValueError, match="no real numbers: predictions/bias"):
        models.set_weights(model, given, "a file")


@pytest.mark.slow
def test_keras_own_files_go_through_keras(tmp_path):
    model = network()
    path = str(tmp_path / "best.weights.h5")
    model.save_weights(path)
    with pytest.raises(ValueError, match=r"`model\.load_weights`"):
        models.load_weights(network(), path)
    restored = network(seed=1)
    restored.load_weights(path)
    assert_weights(restored, model)


@pytest.mark.slow
def test_a_run_folder_is_a_path(tmp_path):
    model = network()
    models.save_weights(model, tmp_path / models.RUN_WEIGHTS)
    assert_weights(tiny(**ARGUMENTS, weights=tmp_path), model)
    with pytest.raises(ValueError, match="No such file: .*best.weights.npz"):
        models.load_weights(model, tmp_path.parent)


@pytest.mark.slow
@pytest.mark.once_a_version
def test_arrays_of_text_change_nothing(tmp_path):
    _, path = saved(tmp_path)
    with np.load(path) as archive:
        given = dict(archive)
    name = list(given)[-1]
    given[name] = np.full(given[name].shape, "x")
    np.savez(path, **given)
    other = network(seed=1)
    with pytest.raises(ValueError, match=f"no real numbers: {name}"):
        models.load_weights(other, path)
    assert_weights(other, network(seed=1, slot="fresh"))


_OTHER_KERAS = f"""
import sys
import numpy as np
from lambdanet_tf import models
from tests.support.networks import some_images, tiny

for path in sys.argv[2:]:
    model = tiny(**{ARGUMENTS}, weights=path)
    outputs = np.asarray(model(some_images(2, 16, 16, 3)))
    np.save(path + ".npy", outputs)
models.save_weights(model, sys.argv[1])
"""


@pytest.mark.slow
@pytest.mark.once_a_version
def test_files_of_the_other_keras(tmp_path):
    if KERAS_3:
        pytest.importorskip("tf_keras")
    model, path = saved(tmp_path)
    back = str(tmp_path / "back.npz")
    legacy = "1" if KERAS_3 else "0"
    subprocess.run(
        [sys.executable, "-c", _OTHER_KERAS, back, path],
        check=True,
        cwd=pathlib.Path(__file__).parents[2],
        env={**os.environ, "TF_USE_LEGACY_KERAS": legacy},
    )
    expected = model(some_images(2, 16, 16, 3))
    checks.assert_close(np.load(f"{path}.npy"), expected, 1e-5)
    assert_weights(tiny(**ARGUMENTS, weights=back), model)
