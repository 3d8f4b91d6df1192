"""`streaming.generate`, and models exported with their state."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import streaming
from tests.support import checks
from tests.support import streams

KERAS = tf.keras.layers
ROWS = [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]]


@pytest.fixture(scope="module")
def model():
    return streams.language_model(30, dtype="float64")


def with_whole_calls(model, prompt, length):
    """The same as `generate`, by calls on all that there is so far."""
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


@pytest.mark.once
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
    logits = np.asarray(model(np.pad(prompt[:1], [(0, 0), (0, 25)])))[0, 4]
    assert set(first[:, 5]) == set(np.argsort(logits)[-3:])
    # Nearly uniform: with one seed, every place would draw the same again.
    uniform = streaming.generate(model, prompt, 2, temperature=1e6, seed=1)
    assert np.any(uniform[:, 5] != uniform[:, 6])
    draw = [
        streaming.generate(model, prompt, 2, temperature=x, seed=1)
        for x in (0.0, 1e-50)
    ]
    np.testing.assert_array_equal(*draw)
    unseeded = []
    for _ in range(2):
        tf.keras.utils.set_random_seed(0)
        unseeded.append(streaming.generate(model, prompt, 4, temperature=2.0))
    np.testing.assert_array_equal(*unseeded)


@pytest.mark.slow
@pytest.mark.once
def test_draws_follow_the_softmax():
    model, prompt = streams.language_model(), np.tile(ROWS[:1], [4000, 1])
    tokens = streaming.generate(model, prompt, 1, temperature=5.0, seed=3)
    expected = tf.nn.softmax(model(prompt[:1])[0, -1] / 5.0)
    counts = np.bincount(tokens[:, -1], minlength=streams.TOKENS)
    deviation = np.sqrt(expected * (1 - expected) / 4000)
    assert np.all(np.abs(counts / 4000 - expected) < 4.5 * deviation + 1e-3)


@pytest.mark.once
def test_probabilities_are_drawn_as_logits_are():
    models = [streams.language_model(activation=x) for x in (None, "softmax")]
    tokens = [
        streaming.generate(m, ROWS, 8, temperature=1.5, seed=5) for m in models
    ]
    np.testing.assert_array_equal(*tokens)


def table(tokens, *behind, **arguments):
    """A model whose logits are a table's, by the token before."""
    tf.keras.utils.set_random_seed(3)
    spread = tf.keras.initializers.RandomNormal(stddev=3.0)
    entries = KERAS.Embedding(tokens, tokens, spread, **arguments)
    inputs = tf.keras.Input((None,), dtype="int32")
    return tf.keras.Sequential([inputs, entries, *behind])


def nested(*behind):
    return tf.keras.Sequential([tf.keras.Input((None, 7)), *behind])


def test_every_softmax_is_seen():
    softmax = KERAS.Activation(KERAS.Softmax())
    behind = nested(KERAS.Dropout(0.5), KERAS.Dropout(0.5))
    linear = KERAS.Activation("linear", dtype="float64")
    expected, tokens = (
        streaming.generate(model, [[5]] * 30, 1, temperature=1.0, seed=1)
        for model in (table(7), table(7, softmax, behind, linear))
    )
    assert len(np.unique(expected[:, 1])) > 1
    np.testing.assert_array_equal(tokens, expected)


@pytest.mark.filterwarnings("ignore:.*destroy the mask")
def test_padding_that_would_be_read_is_refused():
    convolution = nested(KERAS.Conv1D(7, 2, padding="causal"))
    model = table(7, convolution, mask_zero=True)
    for row, given in (([0, 4, 2], "no padding"), ([4, 2, 0], "its padding")):
        with pytest.raises(ValueError, match=f"`prompt` must have {given}"):
            streaming.generate(model, [row, [3, 1, 2]], 1)


@pytest.mark.slow
@pytest.mark.once
def test_padding_that_no_layer_reads_is_taken():
    model = streams.language_model(mask_zero=True)
    padded = streaming.generate(model, [[0, 0, 4], [3, 1, 2]], 4)
    alone = streaming.generate(model, [[4]], 4)
    np.testing.assert_array_equal(padded[:1, 2:], alone)


@pytest.mark.slow
@pytest.mark.once
def test_a_sequence_ends_with_its_end_token(model):
    free = streaming.generate(model, ROWS, 12).numpy()
    end = free[0, 8].astype("int64")
    tokens = streaming.generate(model, ROWS, 12, end_token=end).numpy()
    for row, whole in zip(tokens, free, strict=True):
        stop = [*(5 + np.flatnonzero(whole[5:] == end)), 17][0]
        np.testing.assert_array_equal(row[:stop], whole[:stop])
        assert np.all(row[stop:] == end)


@pytest.mark.once
@pytest.mark.parametrize(
    ("name", "reason", "wrong"),
    [
        ("prompt", "`prompt`", [np.zeros([2, 0], int), np.zeros([0, 2], int)]),
        ("prompt", "one length", [[[1, 2], [3]], tf.ragged.range([2]), None]),
        ("prompt", "embeds, 0 to 12", [[[3, 13]], [[-1]], [[2**33]]]),
        ("length", "`length`", [0]),
        ("temperature", "`temperature`", [-1.0, "a", None]),
        ("seed", "`seed`.*seed=", [1 + 2**32, 1.9, "a", True]),
        ("top_k", "`top_k` must be at most", [14]),
        ("end_token", "`end_token`.*0 to 12.*end_token=13", [13]),
        ("end_token", "`end_token`.*0 to 12", [2.0, True]),
    ],
)
def test_wrong_arguments_are_refused(name, reason, wrong):
    model = streams.language_model(30)
    for value in wrong:
        arguments = {"prompt": ROWS, "length": 3, name: value}
        with pytest.raises(ValueError, match=reason):
            streaming.generate(model, **arguments)


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


@pytest.mark.once
def test_what_takes_other_tokens_or_has_no_state_is_refused(tmp_path):
    prompt = np.ones([1, 2], "int8")
    with pytest.raises(ValueError, match="`prompt`.*129 tokens"):
        streaming.generate(table(129), prompt, 1)
    assert streaming.generate(table(128), prompt, 1).dtype == tf.int8
    series = tf.keras.Sequential([tf.keras.Input((8, 4)), KERAS.Dense(3)])
    with pytest.raises(ValueError, match="must map tokens"):
        streaming.generate(series, ROWS, 3)
    with pytest.raises(ValueError, match="has no state"):
        streaming.export(series, tmp_path)
