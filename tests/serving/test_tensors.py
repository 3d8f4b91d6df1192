"""Exports of models of text and series: named tensors in, named tensors out."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import serving
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.models.graph import graph_of
from lambdanet_tf.serving import requests
from lambdanet_tf.serving import standalone
from tests.support import checks
from tests.support.serving_run import card_of
from tests.support.serving_run import export
from tests.support.serving_run import shake

Keras = tf.keras.layers


def lambda_layer(**arguments):
    return LambdaLayer(12, num_heads=3, key_dim=4, **arguments)


def bytes_model():
    """A causal model: `(batch, length)` bytes to logits of the next ones."""
    tokens = tf.keras.Input((None,), dtype="int32", name="tokens")
    x = Keras.Embedding(256, 12)(tokens)
    x += lambda_layer(scope=9, causal=True)(x)
    return tf.keras.Model(tokens, Keras.Dense(256, name="logits")(x))


def two_inputs_model():
    """Words that read a picture: a dictionary of inputs and one of outputs."""
    words = tf.keras.Input((7,), dtype="int32", name="words")
    image = tf.keras.Input((5, 4, 3), name="image")
    queries = Keras.Embedding(11, 12)(words)
    pixels = Keras.Dense(12)(Keras.Reshape((20, 3))(image))
    context = Keras.BatchNormalization()(pixels)
    x = lambda_layer(use_position=False)(queries, context=context)
    counts = Keras.Dense(2, name="counts")(Keras.GlobalMaxPooling1D()(x))
    return tf.keras.Model(
        {"words": words, "image": image}, {"tags": x, "counts": counts}
    )


def forecast_model():
    """A series and where it is known, of any length, to its next values."""
    series = tf.keras.Input((None, 2), name="series")
    known = tf.keras.Input((None,), dtype="bool", name="known")
    layer = lambda_layer(scope=7, name="states")
    grouped = Keras.Conv1D(12, 3, padding="causal", groups=2)
    x = layer(grouped(series), mask=known)
    pooled = Keras.GlobalAveragePooling1D()(x, mask=known)
    steps = Keras.Dense(3, name="ahead")(pooled)
    return tf.keras.Model([series, known], [steps, x])


def tokens_of(rng, count):
    tokens = rng.integers(0, 256, (count, 9 + 4 * count))
    return {"tokens": tokens.astype(np.int32)}


def words_and_image(rng, count):
    return {
        "words": rng.integers(0, 11, (count, 7)).astype(np.int32),
        "image": rng.uniform(-1, 1, (count, 5, 4, 3)).astype(np.float32),
    }


def series_and_mask(rng, count):
    length = 9 + 2 * count
    known = np.arange(length) < rng.integers(1, length, count)[:, None]
    series = rng.normal(size=(count, length, 2)).astype(np.float32)
    return {"series": series, "known": known}


# A model, inputs whose length is another where their number is, and the names
# of the outputs.
CASES = {
    "bytes": (bytes_model, tokens_of, ["logits"]),
    "two inputs": (two_inputs_model, words_and_image, ["tags", "counts"]),
    "forecast": (forecast_model, series_and_mask, ["ahead", "states"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_model_is_served_by_the_names_of_its_tensors(name, tmp_path, rng):
    make, draw, names = CASES[name]
    model, kept = make(), draw(rng, 3)
    shake(model, rng)
    has_xla = name != "bytes"  # Compiling its causal layer is what takes long.
    folder = export(model, tmp_path, examples=kept, xla=has_xla)
    result = serving.verify_export(folder)
    assert result.agrees, str(result)
    assert result.examples == 3
    assert len(result.signatures) == 1 + has_xla
    for row in result.signatures:
        assert {*row.shapes} == {*names}
        assert row.difference < 1e-5
    # The warm-up requests, where the extra `serving` is, repeat the examples.
    for _, given in requests.read_warmup(folder) or ():
        for key, values in kept.items():
            rows = np.arange(len(given[key])) % 3
            np.testing.assert_array_equal(given[key], values[rows])
    # Others, of other lengths where the model takes them.
    given = draw(rng, 5)
    outputs = standalone.Session(tf, folder).run("serving_default", given)
    if not isinstance(graph_of(model).input, dict):
        given = [*given.values()] if len(given) > 1 else given["tokens"]
    wanted = model.predict(given, verbose=0)
    if not isinstance(wanted, dict):
        wanted = dict(zip(names, tf.nest.flatten(wanted), strict=True))
    checks.assert_all_close(outputs, wanted, 1e-5)


def test_a_model_of_maps_is_served_if_the_task_says_so(tmp_path, rng):
    images = tf.keras.Input((None, None, 3), name="photo")
    maps = Keras.Conv2D(2, 3, activation="sigmoid", name="mask")(images)
    model = tf.keras.Model(images, maps)
    given = rng.uniform(size=(2, 8, 9, 3))
    with pytest.raises(ValueError, match=r"end in a Dense.*task='predict'"):
        export(model, tmp_path, examples=given)
    for examples, received in (
        (None, "None"),
        (given[:0], "no example"),
        ({"image": given}, "arrays for"),
        (1j * given, "Cannot cast"),
    ):
        with pytest.raises(ValueError, match=f"`examples`.*{received}"):
            export(model, tmp_path, examples=examples, task="predict")
    assert not any(tmp_path.iterdir())
    folder = export(model, tmp_path, examples=given, task="predict")
    assert "| `photo` | float32 `(batch, any, any, 3)` |" in card_of(folder)
    assert serving.verify_export(folder).agrees
