"""Exports of models of text and series: named tensors in, named tensors out."""

import functools
import re
import shutil

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
from tests.support.serving_run import sign_anew

Keras = tf.keras.layers


def lambda_layer(**arguments):
    return LambdaLayer(12, num_heads=3, key_dim=4, **arguments)


@functools.cache
def bytes_model():
    """A causal model: `(batch, length)` bytes to logits of the next ones."""
    tokens = tf.keras.Input((None,), dtype="int32", name="tokens")
    x = Keras.Embedding(256, 12)(tokens)
    x += lambda_layer(scope=9, causal=True)(x)
    return tf.keras.Model(tokens, Keras.Dense(256, name="logits")(x))


@functools.cache
def two_inputs_model():
    """Words that read a picture: a dictionary of inputs and one of outputs."""
    words = tf.keras.Input((7,), dtype="int32", name="words")
    image = tf.keras.Input((5, 4, 3), name="image")
    queries = Keras.Embedding(11, 12)(words)
    pixels = Keras.Reshape((20, 3))(image)
    norm = Keras.BatchNormalization()
    layer = lambda_layer(use_position=False)
    x = layer(queries, context=norm(Keras.Dense(12)(pixels)))
    counts = Keras.Dense(2, name="counts")(Keras.GlobalMaxPooling1D()(x))
    return tf.keras.Model(
        {"words": words, "image": image}, {"tags": x, "counts": counts}
    )


@functools.cache
def forecast_model():
    """A series and where it is known, of any length, to its next values."""
    series = tf.keras.Input((None, 2), name="series")
    known = tf.keras.Input((None,), dtype="bool", name="known")
    layer = lambda_layer(scope=7, name="states")
    x = layer(Keras.Dense(12)(series), mask=known)
    pooled = Keras.GlobalAveragePooling1D()(x, mask=known)
    steps = Keras.Dense(3, name="ahead")(pooled)
    return tf.keras.Model([series, known], [steps, x])


def tokens_of(rng, *shape):
    return rng.integers(0, 256, shape).astype(np.int32)


def words_and_image(rng, count):
    return {
        "words": rng.integers(0, 11, (count, 7)).astype(np.int32),
        "image": rng.uniform(-1, 1, (count, 5, 4, 3)).astype(np.float32),
    }


def series_and_mask(rng, count, length):
    known = np.arange(length) < rng.integers(1, length, count)[:, None]
    series = rng.normal(size=(count, length, 2)).astype(np.float32)
    return {"series": series, "known": known}


@functools.cache
def sequential_model():
    """What a notebook builds: a stack of layers, never called by hand."""
    return tf.keras.Sequential(
        [
            tf.keras.Input((6, 8), name="states"),
            lambda_layer(scope=3),
            Keras.Dense(3, name="next"),
        ]
    )


CASES = {
    "sequential": (
        sequential_model,
        lambda rng: {"states": rng.normal(size=(3, 6, 8)).astype(np.float32)},
        lambda rng: {"states": rng.normal(size=(2, 6, 8)).astype(np.float32)},
        ["next"],
    ),
    "bytes": (
        bytes_model,
        lambda rng: {"tokens": tokens_of(rng, 3, 20)},
        lambda rng: {"tokens": tokens_of(rng, 2, 33)},
        ["logits"],
    ),
    "two inputs": (
        two_inputs_model,
        lambda rng: words_and_image(rng, 4),
        lambda rng: words_and_image(rng, 2),
        ["tags", "counts"],
    ),
    "forecast": (
        forecast_model,
        lambda rng: series_and_mask(rng, 3, 12),
        lambda rng: series_and_mask(rng, 5, 19),
        ["ahead", "states"],
    ),
}


def expected(model, inputs, names):
    """What Keras computes, by the names of outputs."""
    if not isinstance(graph_of(model).input, dict):
        inputs = [*inputs.values()]
        inputs = inputs if len(inputs) > 1 else inputs[0]
    outputs = model.predict(inputs, verbose=0)
    if isinstance(outputs, dict):
        return outputs
    return dict(zip(names, tf.nest.flatten(outputs), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_a_model_is_served_by_the_names_of_its_tensors(name, tmp_path, rng):
    make, examples, others, names = CASES[name]
    model = make()
    shake(model, rng)
    kept = examples(rng)
    has_xla = name != "bytes"  # Compiling its causal layer is what takes long.
    folder = export(model, tmp_path, examples=kept, xla=has_xla)
    result = serving.verify_export(folder, (2,))
    assert result.agrees, str(result)
    assert result.examples == len(next(iter(kept.values())))
    assert f"{result.examples} examples through Keras" in str(result)
    signatures = ["serving_default", "serving_default_xla"][: 1 + has_xla]
    assert [row.signature for row in result.signatures] == signatures
    for row in result.signatures:
        assert {*row.shapes} == {*names}
        assert row.difference < 1e-5
        assert {*row.milliseconds} == {2}
    check_warm_up(folder, kept, result)
    # Others, of other lengths where the model takes them.
    session, given = standalone.Session(tf, folder), others(rng)
    outputs = session.run("serving_default", given)
    assert {*outputs} == {*names}
    for key, wanted in expected(model, given, names).items():
        checks.assert_close(outputs[key], wanted, 1e-5)


def check_warm_up(folder, kept, result):
    """The requests of an export repeat its examples."""
    warmed = requests.read_warmup(folder)
    if warmed is None:  # Without the extra `serving`.
        return
    assert result.warmup_requests == len(requests.BATCH_SIZES)
    for size, (signature, given) in zip(
        requests.BATCH_SIZES, warmed, strict=True
    ):
        assert signature == "serving_default"
        for name, values in kept.items():
            rows = np.arange(size) % len(values)
            np.testing.assert_array_equal(given[name], values[rows])


@pytest.mark.slow
def test_masked_steps_change_nothing(tmp_path, rng):
    model, given = forecast_model(), series_and_mask(rng, 3, 12)
    folder = export(model, tmp_path, examples=given)
    session = standalone.Session(tf, folder)
    before = session.run("serving_default", given)["ahead"]
    given["series"][~given["known"]] = 99.0
    after = session.run("serving_default", given)["ahead"]
    checks.assert_close(after, before, 1e-6)
    given["series"][given["known"]] = 99.0
    changed = session.run("serving_default", given)["ahead"]
    checks.assert_far(changed, before, 1e-2)


@pytest.mark.slow
def test_the_card_names_inputs_and_outputs(tmp_path, rng):
    folder = serving.export_model(
        forecast_model(),
        tmp_path,
        "m",
        examples=[*series_and_mask(rng, 2, 9).values()],
        metadata={"command": "python /home/me/fit.py"},
    )
    card = card_of(folder)
    for fact in (
        "| `series` | float32 `(batch, any, 2)` |",
        "| `known` | bool `(batch, any)` |",
        "| `ahead` | float32 `(batch, 3)` |",
        "| command | python fit.py |",
        "another origin than those of the training",
    ):
        assert fact in card
    assert "image" not in card
    assert not [*folder.glob("assets/*")]
    assert serving.read_metadata(folder)["labels"] is None
    with pytest.raises(ValueError, match="must hold test images"):
        serving.prediction_table(folder)


@pytest.mark.slow
@pytest.mark.once
def test_another_model_is_noticed(tmp_path, rng):
    """Also where an output is a whole number."""
    tokens = tf.keras.Input((None,), dtype="int32", name="tokens")
    logits = bytes_model()(tokens)
    best = Keras.Lambda(lambda x: tf.argmax(x, -1), name="best")(logits)
    model = tf.keras.Model(tokens, {"logits": logits, "best": best})
    given = tokens_of(rng, 3, 20)
    one = export(model, tmp_path, examples=given)
    [row] = serving.verify_export(one).signatures
    assert (row.difference < 1e-5, row.agrees) == (True, True)
    for name in ("best", "logits"):
        arrays = requests.read_examples(one)
        arrays[f"of_tensors/{name}"][1, 2] += 1
        two = shutil.copytree(one, tmp_path / name / "1")
        requests.write_examples(two, arrays)
        sign_anew(two)
        assert "DIFFERENT" in str(serving.verify_export(two))


@pytest.mark.slow
@pytest.mark.once
def test_weights_in_half_the_space(tmp_path, rng):
    given = tokens_of(rng, 3, 20)
    folder = export(
        bytes_model(), tmp_path, examples=given, weights_dtype="bfloat16"
    )
    dtypes = {w.dtype for w in tf.saved_model.load(str(folder)).weights}
    assert dtypes == {tf.bfloat16, tf.float32}
    assert serving.verify_export(folder).agrees


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.parametrize("implementation", ["depthwise", "fourier"])
def test_layers_with_gradients_of_their_own_in_half_the_space(
    implementation, tmp_path, rng
):
    maps = tf.keras.Input((6, 6, 3), name="maps")
    layer = LambdaLayer(
        4, num_heads=2, key_dim=3, scope=3, implementation=implementation
    )
    model = tf.keras.Model(maps, layer(maps))
    given = rng.uniform(size=(2, 6, 6, 3))
    options = {"weights_dtype": "bfloat16", "task": "predict"}
    folder = export(model, tmp_path, examples=given, **options)
    assert serving.verify_export(folder).agrees


def test_a_model_of_maps_is_served_if_the_task_says_so(tmp_path, rng):
    images = tf.keras.Input((None, None, 3), name="photo")
    maps = Keras.Conv2D(2, 3, activation="sigmoid", name="mask")(images)
    model = tf.keras.Model(images, maps)
    given = rng.uniform(size=(2, 8, 9, 3))
    with pytest.raises(ValueError, match=r"end in a Dense.*task='predict'"):
        export(model, tmp_path, examples=given)
    folder = export(model, tmp_path, examples=given, task="predict")
    assert serving.verify_export(folder).agrees


@pytest.mark.slow
@pytest.mark.once
def test_a_vocabulary_that_was_adapted_is_exported(tmp_path, rng):
    found = rng.integers(100, 105, (4, 6))
    lookup = Keras.IntegerLookup()
    lookup.adapt(found)
    numbers = tf.keras.Input((6,), dtype="int64", name="numbers")
    x = Keras.Embedding(6, 12)(lookup(numbers))
    logits = Keras.Dense(6, name="logits")(lambda_layer(scope=3)(x))
    model = tf.keras.Model(numbers, logits)
    folder = export(model, tmp_path, examples=found)
    assert serving.verify_export(folder).agrees


# Errors.


def dashed():
    inputs = tf.keras.Input((4,), name="my-input")
    return tf.keras.Model(inputs, Keras.Dense(2)(inputs))


def of_texts():
    texts = tf.keras.Input((), dtype="string", name="texts")
    return tf.keras.Model(texts, Keras.StringLookup(vocabulary=["a"])(texts))


def nested():
    inputs = tf.keras.Input((5,), name="tokens")
    both = [Keras.Dense(2)(inputs), Keras.Dense(3)(inputs)]
    return tf.keras.Model(inputs, {"both": both})


def with_options(**options):
    options = serving.ExportOptions(**options)
    return lambda: serving.Inference(bytes_model(), options)


TOKENS = np.zeros((2, 5), np.int32)
GIVEN = "`examples` must be "
WRONG = [
    (bytes_model, None, GIVEN + "given.*tokens"),
    (
        bytes_model,
        {"words": TOKENS},
        GIVEN + r"what .* tokens of int32 \(None, None\).*'words'",
    ),
    (forecast_model, TOKENS, GIVEN + ".*1 arrays"),
    (
        two_inputs_model,
        {"words": TOKENS, "image": np.zeros((2, 5, 4, 3))},
        GIVEN + r".*words of int32 \(None, 7\).*'words': \(2, 5\)",
    ),
    (
        forecast_model,
        [np.zeros((3, 4, 2)), np.ones((2, 4), bool)],
        GIVEN + ".*shapes",
    ),
    (bytes_model, TOKENS + 0.5, GIVEN + ".*Cannot cast .* to dtype.'int32'"),
    (bytes_model, [[1, 2], [3]], GIVEN + ".*shape"),
    (bytes_model, TOKENS[:0], GIVEN + ".*no example"),
    (bytes_model, 5, GIVEN + ".*shapes"),
    (dashed, TOKENS, r"`model` must name its inputs, .*\['my-input'\]"),
    (nested, TOKENS, r"a tensor for each name.*\['both'\]"),
    (of_texts, TOKENS, "`model` must take numbers.*'texts'"),
    (
        with_options(labels=("a", "b")),
        TOKENS,
        r"`labels` is an option of classifiers of images.*\('a', 'b'\)",
    ),
    (
        with_options(formats=("onnx",)),
        TOKENS,
        "`formats` is an option of classifiers of images",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("make", "examples", "message"), WRONG)
def test_what_does_not_fit_is_named(make, examples, message, tmp_path):
    with pytest.raises(ValueError, match=re.compile(message, re.DOTALL)):
        export(make(), tmp_path, examples=examples)
    assert not any(tmp_path.iterdir())
