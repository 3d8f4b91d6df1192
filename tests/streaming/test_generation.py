"""`streaming.generate`, and models exported with their state."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import streaming
from tests.support import checks
from tests.support import streams

ROWS = [[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]]


# The latter has lambdas, too.
@pytest.fixture(
    scope="module",
    params=[
        pytest.param("lambdas", marks=pytest.mark.thorough),
        "attention",
    ],
)
def model(request):
    arguments = {"scope": None} if request.param == "attention" else {}
    return streams.language_model(30, dtype="float64", **arguments)


def with_whole_calls(model, prompt, length, pick=np.argmax):
    """The same as `generate`, by calls on all that there is so far."""
    tokens = np.array(prompt)
    whole = model.inputs[0].shape[1]
    for _ in range(length):
        there = tokens.shape[1]
        filled = np.pad(tokens, [(0, 0), (0, whole - there)])
        logits = np.asarray(model(filled))[:, there - 1]
        new = [pick(row) for row in logits]
        tokens = np.concatenate([tokens, np.transpose([new])], axis=1)
    return tokens


@pytest.mark.slow
def test_greedy_text_is_that_of_whole_calls(model):
    for prompt, length in ((ROWS, 9), ([[7], [0], [2]], 3)):
        tokens = streaming.generate(model, prompt, length)
        np.testing.assert_array_equal(
            tokens, with_whole_calls(model, prompt, length)
        )
    assert tokens.dtype == tf.int32
    wide = streaming.generate(model, np.array(ROWS, "int64"), 2)
    assert wide.dtype == tf.int64


@pytest.mark.once
def test_draws_are_those_of_their_seed(model):
    prompt = np.tile(ROWS[:1], [40, 1])
    first, again, other = (
        streaming.generate(
            model, prompt, 4, temperature=20.0, top_k=3, seed=seed
        ).numpy()
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
    tf.keras.utils.set_random_seed(0)
    first = streaming.generate(model, prompt, 4, temperature=2.0)
    tf.keras.utils.set_random_seed(0)
    again = streaming.generate(model, prompt, 4, temperature=2.0)
    np.testing.assert_array_equal(first, again)


@pytest.mark.slow
@pytest.mark.once
def test_draws_follow_the_softmax():
    model = streams.language_model()
    prompt, temperature = np.tile(ROWS[:1], [4000, 1]), 5.0
    tokens = streaming.generate(
        model, prompt, 1, temperature=temperature, seed=3
    )
    expected = tf.nn.softmax(model(prompt[:1])[0, -1] / temperature)
    counts = np.bincount(tokens[:, -1], minlength=streams.TOKENS)
    deviation = np.sqrt(expected * (1 - expected) / 4000)
    assert np.all(np.abs(counts / 4000 - expected) < 4.5 * deviation + 1e-3)


@pytest.mark.once
def test_probabilities_are_drawn_as_logits_are():
    plain = streams.language_model()
    ends = streams.language_model(activation="softmax")
    tokens = [
        streaming.generate(m, ROWS, 8, temperature=1.5, seed=5)
        for m in (plain, ends)
    ]
    np.testing.assert_array_equal(*tokens)


@pytest.mark.slow
@pytest.mark.once
def test_a_sequence_ends_with_its_end_token(model):
    free = streaming.generate(model, ROWS, 12).numpy()
    end = int(free[0, 8])
    tokens = streaming.generate(model, ROWS, 12, end_token=end).numpy()
    for row, whole in zip(tokens, free, strict=True):
        found = np.flatnonzero(whole[5:] == end)
        stop = 5 + found[0] if len(found) else 17
        np.testing.assert_array_equal(row[:stop], whole[:stop])
        assert np.all(row[stop:] == end)


@pytest.mark.slow
@pytest.mark.once
def test_generation_is_traced_once_for_a_prompt(model, monkeypatch):
    streaming.generate(model, ROWS, 3)

    def refuse(*_):
        raise AssertionError("traced again")

    monkeypatch.setattr("lambdanet_tf.streaming.stream.Stream.step", refuse)
    for length in (1, 6):
        tokens = streaming.generate(model, ROWS[::-1], length)
        assert tokens.shape == (2, 5 + length)


WRONG = {
    "an empty prompt": ({"prompt": np.zeros([2, 0], int)}, "`prompt`"),
    "a flat prompt": ({"prompt": [1, 2]}, "`prompt`"),
    "floats": ({"prompt": [[1.0, 2.0]]}, "`prompt` must be integers"),
    "no length": ({"length": 0}, "`length`"),
    "a temperature": ({"temperature": -1.0}, "`temperature`"),
    "no tokens": ({"top_k": 0}, "`top_k`"),
    "too many tokens": ({"top_k": 14}, "`top_k` must be at most"),
    "a long text": ({"length": 27}, "`length`.*30 positions.*length=27"),
}


@pytest.mark.once
@pytest.mark.parametrize("name", WRONG)
def test_wrong_arguments_are_refused(name):
    given, reason = WRONG[name]
    model = streams.language_model(30, scope=None)
    arguments = {"prompt": ROWS, "length": 3, **given}
    with pytest.raises(ValueError, match=reason):
        streaming.generate(model, **arguments)


@pytest.mark.once
def test_models_of_series_do_not_generate():
    series = tf.keras.Sequential(
        [tf.keras.Input((8, 4)), tf.keras.layers.Dense(3)]
    )
    with pytest.raises(ValueError, match="must map tokens"):
        streaming.generate(series, ROWS, 3)


SERVER = """
import sys
for name in ("keras", "tf_keras", "lambdanet_tf"):
    sys.modules[name] = None  # cannot be imported
import numpy as np
import tensorflow as tf
signatures = tf.saved_model.load(sys.argv[1]).signatures
tokens = np.load(sys.argv[2])
states = [
    signatures["initial_state"](batch_size=tf.constant(1)) for _ in tokens
]
outputs = [[] for _ in tokens]
for begin, end in ((0, 9), (9, 10), (10, 11), (11, 20)):
    for client, row in enumerate(tokens):  # in turns, each with its state
        piece = tf.constant(row[None, begin:end])
        answer = dict(signatures["step"](inputs=piece, **states[client]))
        outputs[client].append(answer.pop("outputs"))
        states[client] = answer
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
def test_an_export_has_the_documented_signatures(tmp_path):
    model = streams.language_model(scope=None, position_embedding=None)
    streaming.export(model, tmp_path / "1")
    signatures = tf.saved_model.load(str(tmp_path / "1")).signatures
    assert set(signatures) == {"initial_state", "step", "serving_default"}
    inputs = signatures["step"].structured_input_signature[1]
    spec = streaming.state_spec(model)
    assert inputs.pop("inputs").shape.as_list() == [None, None]
    assert {k: (x.shape, x.dtype) for k, x in inputs.items()} == {
        k: (x.shape, x.dtype) for k, x in spec.items()
    }
    stateless = tf.keras.Sequential(
        [tf.keras.Input((8, 4)), tf.keras.layers.Dense(2)]
    )
    with pytest.raises(ValueError, match="has no state"):
        streaming.export(stateless, tmp_path / "2")
