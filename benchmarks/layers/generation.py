"""Measures what a token costs over the length of the text before it.

    python -m benchmarks.layers.generation      ten minutes

One sequence, float32: a decoder of causal lambda layers by `streaming.step`;
the same and one of attention, called again on the whole text for each token.
"""

import functools

import numpy as np
import tensorflow as tf

from benchmarks import records
from benchmarks import timing
from lambdanet_tf import streaming
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention

TOKENS, WIDTH, BLOCKS, SCOPE, HEADS = 256, 128, 4, 127, 4
LENGTHS = (64, 256, 1024, 4096, 16384)
_PROMPT = 256  # positions that are read at once
MIXERS = {
    "lambda": (LambdaLayer, {"scope": SCOPE}),
    "attention": (RelativeAttention, {"position_embedding": None}),
}


def language_model(mixer, arguments):
    """A decoder of tokens whose positions are mixed by a layer."""
    layers = tf.keras.layers
    tokens = tf.keras.Input((None,), dtype="int32")
    x = layers.Embedding(TOKENS, WIDTH)(tokens)
    for _ in range(BLOCKS):
        mix = mixer(num_heads=HEADS, causal=True, **arguments)
        x = layers.Add()([x, mix(layers.LayerNormalization()(x))])
        y = layers.LayerNormalization()(x)
        y = layers.Dense(4 * WIDTH, activation="gelu")(y)
        x = layers.Add()([x, layers.Dense(WIDTH)(y)])
    return tf.keras.Model(tokens, layers.Dense(TOKENS)(x))


def stepper(model, text):
    """A function that reads one token after a text, by its state."""
    specs = tf.TensorSpec([1, None], tf.int32), streaming.state_spec(model)
    step = functools.partial(streaming.step, model)
    step = tf.function(step, input_signature=specs)
    state = streaming.initial_state(model, 1)
    for begin in range(0, text.shape[1], _PROMPT):
        _, state = step(text[:, begin : begin + _PROMPT], state)
    return lambda: step(text[:, -1:], state)[0]


def caller(model, text):
    """A function that reads one token more by a call on the whole text."""
    call = tf.function(lambda tokens: model(tokens)[:, -1:])
    return lambda: call(text)


@records.script("generation", seconds=6.0, lengths=LENGTHS)
def main(recorder, options):
    models = {name: language_model(*row) for name, row in MIXERS.items()}
    ways = {"lambda": (stepper, models["lambda"])}
    for name, model in models.items():
        ways[f"{name}, whole text again"] = caller, model

    def measure(case):
        way, model = ways[case["way"]]
        rng = np.random.default_rng(0)
        text = rng.integers(0, TOKENS, [1, case["tokens"]])
        run = way(model, tf.constant(text, tf.int32))
        taken = timing.turns({"": lambda: run().numpy()}, options.seconds)
        return {"seconds": taken[""]}

    recorder.fill(records.cases(way=ways, tokens=options.lengths), measure)
