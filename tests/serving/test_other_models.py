"""Keras' own export, of models with lambda layers that read no images."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.serving import standalone
from lambdanet_tf.serving import verify
from tests.support import checks
from tests.support.serving_run import shake

Keras = tf.keras.layers


def text_model():
    """A causal model: `(batch, length)` bytes to logits of the next ones."""
    tokens = tf.keras.Input((None,), dtype="int32", name="tokens")
    x = Keras.Embedding(256, 12)(tokens)
    x += LambdaLayer(12, num_heads=3, key_dim=4, scope=9, causal=True)(x)
    return tf.keras.Model(tokens, Keras.Dense(256)(x))


def series_model():
    """A series of any length to its next values."""
    series = tf.keras.Input((None, 2), name="series")
    x = Keras.BatchNormalization()(Keras.Dense(12)(series))
    x = LambdaLayer(12, num_heads=3, key_dim=4, scope=7)(x)
    x = Keras.GlobalAveragePooling1D()(x)
    return tf.keras.Model(series, Keras.Dense(3)(x))


def tokens(rng, count):
    shape = count, 9 + 4 * count
    return {"tokens": rng.integers(0, 256, shape).astype(np.int32)}


def series(rng, count):
    shape = count, 9 + 4 * count, 2
    return {"series": rng.normal(size=shape).astype(np.float32)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "draw"), [(text_model, tokens), (series_model, series)]
)
def test_a_model_is_exported_by_keras(make, draw, tmp_path, rng, capsys):
    model = make()
    shake(model, rng)
    model.export(str(tmp_path / "1"))
    for count in (1, 5):  # of other lengths
        inputs = draw(rng, count)
        call = "serving_default", inputs
        [outputs] = verify.run_standalone(tmp_path / "1", [call])
        [found] = outputs.values()
        [given] = inputs.values()
        checks.assert_close(found, model.predict(given, verbose=0), 1e-5)
    session = standalone.Session(tf, tmp_path / "1")
    assert [*session.signatures["serving_default"].inputs] == [*inputs]
