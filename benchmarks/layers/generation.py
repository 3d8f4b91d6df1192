"""Measures what a token costs over the length of the text before it.

    python -m benchmarks.layers.generation      two minutes

One sequence, float32: a step of the export of a decoder of causal lambda
layers; this decoder, and one of attention, called again on the whole text.
"""

import tempfile

import numpy as np
import tensorflow as tf

from benchmarks import records
from benchmarks import timing
from lambdanet_tf import streaming
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention

TOKENS, WIDTH, BLOCKS, SCOPE = 256, 128, 4, 127
LENGTHS = (64, 256, 1024, 4096, 16384)
_PROMPT = 256  # positions that are read at once


def language_model(mixer, **arguments):
    """A decoder of tokens whose positions are mixed by a layer."""
    layers = tf.keras.layers
    tokens = tf.keras.Input((None,), dtype="int32")
    x = layers.Embedding(TOKENS, WIDTH)(tokens)
    for _ in range(BLOCKS):
        mix = mixer(num_heads=4, causal=True, **arguments)
        x = layers.Add()([x, mix(layers.LayerNormalization()(x))])
        y = layers.LayerNormalization()(x)
        y = layers.Dense(4 * WIDTH, activation="gelu")(y)
        x = layers.Add()([x, layers.Dense(WIDTH)(y)])
    return tf.keras.Model(tokens, layers.Dense(TOKENS)(x))


def stepper(step, state, text):
    """A function that reads one token after a text, by its state."""
    for begin in range(0, text.shape[1], _PROMPT):
        state = dict(step(inputs=text[:, begin : begin + _PROMPT], **state))
        del state["outputs"]
    token = text[:, -1:]
    return lambda: np.asarray(step(inputs=token, **state)["outputs"])


def caller(model, text):
    """A function that reads one token more by a call on the whole text."""
    call = tf.function(lambda tokens: model(tokens)[:, -1:])
    return lambda: call(text).numpy()


@records.script("generation", seconds=4.0, lengths=LENGTHS)
def main(recorder, options):
    lambdas = language_model(LambdaLayer, scope=SCOPE)
    attention = language_model(RelativeAttention, position_embedding=None)
    with tempfile.TemporaryDirectory() as folder:
        streaming.export(lambdas, folder)
        served = tf.saved_model.load(folder)
        from_saved_model = tf.lite.TFLiteConverter.from_saved_model
        file = from_saved_model(folder, signature_keys=["step"]).convert()
    interpreter = tf.lite.Interpreter(model_content=file)
    lite = interpreter.get_signature_runner("step")
    state = served.signatures["initial_state"](batch_size=tf.constant(1))
    ways = {
        "a step in TensorFlow Lite": (stepper, lite, state),
        "a step of the SavedModel": (stepper, served.signatures["step"], state),
        "lambda, whole text again": (caller, lambdas),
        "attention, whole text again": (caller, attention),
    }

    def measure(case):
        way, *given = ways[case["way"]]
        rng = np.random.default_rng(0)
        text = rng.integers(0, TOKENS, [1, case["tokens"]])
        run = way(*given, tf.constant(text, tf.int32))
        return timing.turns({"seconds": run}, options.seconds)

    recorder.fill(records.cases(way=ways, tokens=options.lengths), measure)
