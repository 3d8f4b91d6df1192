"""`streaming.generate`, and models exported with their state."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import streaming
from tests.support import checks
from tests.support import streams

pytestmark = pytest.mark.once
KERAS = tf.keras.layers
ROWS = [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]]


@pytest.fixture(scope="module")
def model():
    return streams.language_model(30, dtype="float64")


def with_whole_calls(model, prompt, length):
    tokens = np.array(prompt)
    for there in range(tokens.shape[1], tokens.shape[1] + length):
        filled = np.pad(tokens, [(0, 0), (0, model.inputs[0].shape[1] - there)])
        new = np.argmax(model(filled)[:, there - 1], axis=-1)
        tokens = np.concatenate([tokens, new[:, None]], axis=1)
    return tokens


@pytest.mark.slow
def test_greedy_text_is_that_of_whole_calls(model):
    for prompt, length in ((ROWS, 9), ([[7], [0], [2]], 3)):
        tokens = streaming.generate(model, prompt, length)
        expected = with_whole_calls(model, prompt, length)
        np.testing.assert_array_equal(tokens, expected)
    assert tokens.dtype == tf.int32


def test_draws_are_those_of_their_seed(model):
    prompt = np.tile(ROWS[:1], [40, 1])
    top = {"temperature": 20.0, "top_k": 3}
    first, again, other = (
        streaming.generate(model, prompt, 4, **top, seed=seed).numpy()
        for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert np.any(first != other)
    assert len({tuple(row) for row in first}) > 1
    # Nearly uniform: with one seed, every place would draw the same again.
    uniform = streaming.generate(model, prompt, 2, temperature=1e6, seed=1)
    assert np.any(uniform[:, 5] != uniform[:, 6])
    draw = [
        streaming.generate(model, prompt, 2, temperature=x, seed=1)
        for x in (0.0, 1e-50)
    ]
    np.testing.assert_array_equal(*draw)
    models = [streams.language_model(activation=x) for x in (None, "softmax")]
    tokens = [streaming.generate(m, ROWS, 8, **top, seed=5) for m in models]
    np.testing.assert_array_equal(*tokens)


def table(*logits):
    tokens = tf.keras.Input((None,), dtype="int32")
    spread = tf.keras.initializers.Constant(np.array([logits] * len(logits)))
    entries = KERAS.Embedding(len(logits), len(logits), spread)
    return tf.keras.Sequential([tokens, entries])


# Ties among them, also between the third and the fourth.
LOGITS = np.array([0.3, 1.2, -0.5, 0.3, 2.0, 0.3, -3.0, -float("inf")])


@pytest.mark.parametrize(
    "draw",
    [
        {"temperature": 0.7},
        {"temperature": 1.5, "top_k": 3},
        {"temperature": 1.0, "top_p": 0.75},
        {"temperature": 2.0, "top_k": 4, "top_p": 0.6},
        {"temperature": 1.0, "top_p": 1e-6},
    ],
)
def test_ten_thousand_draws_are_as_numpy_says(draw):
    model = table(*LOGITS)
    found = streaming.generate(model, [[0]] * 2500, 4, seed=3, **draw)[:, 1:]
    logits = LOGITS / draw["temperature"]
    order = np.argsort(-logits, kind="stable")[: draw.get("top_k")]
    shares = np.exp(logits[order])
    shares /= shares.sum()
    likelier = np.cumsum(shares) - shares
    shares *= likelier < draw.get("top_p", 1.0)
    expected = np.zeros(len(LOGITS))
    expected[order] = shares / shares.sum()
    counts = np.bincount(np.ravel(found), minlength=len(LOGITS))
    assert np.all(counts[expected == 0] == 0)
    deviation = np.sqrt(expected * (1 - expected) / 10000)
    assert np.all(np.abs(counts / 10000 - expected) < 4 * deviation + 1e-9)


def test_the_fewest_of_equally_likely_tokens_are_kept():
    for size, top_p, fewest in ((8, 0.5, 4), (10, 0.1, 1), (10, 0.9, 9)):
        draw = {"temperature": 1.0, "top_p": top_p, "seed": 0}
        model = table(*[0.0] * size)
        found = streaming.generate(model, [[0]] * 500, 1, **draw)[:, 1]
        assert np.unique(found).tolist() == [*range(fewest)]


def test_outputs_that_are_not_finite_are_told():
    impossible = [-float("inf")] * 3
    for logits in ([0.0, float("nan"), 1.0], impossible, [0.0, np.inf, 1.0]):
        for draw in (streaming.generate, streaming.tokens):
            with pytest.raises(
                tf.errors.InvalidArgumentError, match="model returns NaN"
            ):
                list(draw(table(*logits), [[1]], 2))


def test_tokens_come_one_at_a_time(model):
    draws = {}, {"temperature": 1.5, "top_k": 5, "top_p": 0.9, "seed": 2}
    for draw in draws:
        expected = streaming.generate(model, ROWS, 6, **draw)[:, 5:]
        found = [*streaming.tokens(model, ROWS, 6, **draw)]
        assert found[0].shape == (2,)
        np.testing.assert_array_equal(np.stack(found, 1), expected)
    end = int(expected[0, 2])
    rest = streaming.tokens(model, ROWS[:1], end_token=end, **draw)
    single = streaming.generate(model, ROWS[:1], 9, end_token=end, **draw)
    found = np.concatenate([*rest])
    assert found[-1] == end
    assert end not in found[:-1]
    np.testing.assert_array_equal(found, single[0, 5 : 5 + len(found)])
    with pytest.raises(TypeError, match="top"):
        next(streaming.tokens(model, ROWS, 6, top=3))


@pytest.mark.slow
def test_a_sequence_ends_with_its_end_token(model):
    free = streaming.generate(model, ROWS, 12).numpy()
    end = free[0, 8].astype("int64")
    tokens = streaming.generate(model, ROWS, 12, end_token=end).numpy()
    for row, whole in zip(tokens, free, strict=True):
        stop = [*(5 + np.flatnonzero(whole[5:] == end)), 17][0]
        np.testing.assert_array_equal(row[:stop], whole[:stop])
        assert np.all(row[stop:] == end)


SERVER = """
import sys
for name in ("keras", "tf_keras", "lambdanet_tf"):
    sys.modules[name] = None  # cannot be imported
import numpy as np
import tensorflow as tf
served = tf.saved_model.load(sys.argv[1]).signatures
tokens = np.load(sys.argv[2])[:, None]
states = [served["initial_state"](batch_size=tf.constant(1)) for _ in tokens]
outputs = [[] for _ in tokens]
for begin, end in ((0, 9), (9, 10), (10, 11), (11, 20)):
    for client, row in enumerate(tokens):  # in turns, each with its state
        piece = tf.constant(row[:, begin:end])
        states[client] = dict(served["step"](inputs=piece, **states[client]))
        outputs[client].append(states[client].pop("outputs"))
np.save(sys.argv[3], np.concatenate([np.concatenate(o, 1) for o in outputs]))
"""


@pytest.mark.slow
def test_a_server_without_keras_holds_a_state_for_each_client(model, tmp_path):
    streaming.export(model, tmp_path / "1")
    tokens = streams.draw_inputs(3, model, 20)
    np.save(tmp_path / "tokens.npy", tokens)
    files = [str(tmp_path / x) for x in ("1", "tokens.npy", "outputs.npy")]
    subprocess.run([sys.executable, "-c", SERVER, *files], check=True)
    expected = model(np.pad(tokens, [(0, 0), (0, 10)]))[:, :20]
    checks.assert_close(np.load(files[2]), expected, 1e-12)


@pytest.mark.slow
@pytest.mark.once
def test_a_step_becomes_a_file_of_tflite(tmp_path):
    streaming.export(streams.language_model(), tmp_path)
    convert = tf.lite.TFLiteConverter.from_saved_model
    assert convert(str(tmp_path), signature_keys=["step"]).convert()
