"""A language model of bytes: causal lambda layers, which stream.

    python -m examples.language_model --folder runs/language_model

trains on the sources of Python's standard library, prints bits per byte on
files that were held out, exports the model as a SavedModel that streams, and
lets it write. It takes some two minutes on two quiet cores, and learns more
with more `--steps`.
"""

import argparse
import math
import pathlib
import sysconfig

import numpy as np
import tensorflow as tf

from lambdanet_tf import streaming
from lambdanet_tf.layers import LambdaLayer

WIDTH, HIDDEN, HEADS, BLOCKS = 128, 704, 4, 4
KEY_DIM, PAST = 16, 63  # a scope of 127, of which 63 positions are past
CONTEXT, BATCH, STEPS = 256, 16, 300
RATE = 1e-2  # what a search chose: docs/study.md
HELD_OUT = 400  # windows


def read_corpus() -> tuple[np.ndarray, np.ndarray]:
    """Returns training and held-out bytes: every tenth file is held out."""
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    files = [path.read_bytes() for path in sorted(folder.glob("*.py"))]
    held_out = [text for i, text in enumerate(files) if i % 10 == 9]
    training = [text for i, text in enumerate(files) if i % 10 != 9]
    return tuple(
        np.frombuffer(b"\n".join(part), np.uint8)
        for part in (training, held_out)
    )


def build() -> tf.keras.Model:
    """Returns a decoder: `(batch, n)` bytes -> `(batch, n, 256)` logits."""
    keras = tf.keras.layers
    tokens = tf.keras.Input((None,), dtype="int32", name="tokens")
    x = keras.Embedding(256, WIDTH)(tokens)
    for block in range(BLOCKS):
        mixer = LambdaLayer(
            WIDTH,
            num_heads=HEADS,
            key_dim=KEY_DIM,
            scope=2 * PAST + 1,
            causal=True,
            name=f"block{block}",
        )
        x = keras.Add()([x, mixer(keras.LayerNormalization()(x))])
        hidden = keras.Dense(HIDDEN, "gelu")(keras.LayerNormalization()(x))
        x = keras.Add()([x, keras.Dense(WIDTH)(hidden)])
    logits = keras.Dense(256)(keras.LayerNormalization()(x))
    return tf.keras.Model(tokens, logits)


def batches(corpus: np.ndarray) -> tf.data.Dataset:
    """Returns endless batches of windows and of what follows each byte."""
    text, last = tf.constant(corpus), len(corpus) - CONTEXT

    def window(number):
        start = number % last
        piece = tf.cast(text[start : start + CONTEXT + 1], tf.int32)
        return piece[:-1], piece[1:]

    numbers = tf.data.Dataset.random(seed=0)
    return numbers.map(window).batch(BATCH, drop_remainder=True).prefetch(2)


def train(model: tf.keras.Model, corpus: np.ndarray, steps: int):
    """Trains a model with a rate that warms up, then falls."""
    epoch = min(steps, 100)
    rates = tf.keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=RATE, warmup_steps=epoch
    )
    model.compile(
        tf.keras.optimizers.Adam(rates, global_clipnorm=1.0),
        tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    model.fit(
        batches(corpus),
        epochs=steps // epoch,
        steps_per_epoch=epoch,
        shuffle=False,
        verbose=2,
    )


def bits_per_byte(model: tf.keras.Model, held_out: np.ndarray) -> float:
    """Returns the mean cross-entropy over windows of the training's length."""
    places = np.linspace(0, len(held_out) - CONTEXT - 1, HELD_OUT).astype(int)
    windows = held_out[places[:, None] + np.arange(CONTEXT + 1)]
    windows = windows.astype(np.int32)
    loss = model.evaluate(windows[:, :-1], windows[:, 1:], BATCH, verbose=0)
    return loss / math.log(2)


def generate(folder, prompt: bytes, count: int, temperature=0.7, seed=0):
    """Lets an exported model go on, with TensorFlow alone."""
    signatures = tf.saved_model.load(str(folder)).signatures
    state = signatures["initial_state"](batch_size=tf.constant(1))
    rng, text = np.random.default_rng(seed), bytearray(prompt)
    for place in range(len(prompt) + count - 1):
        token = tf.constant([[text[place]]])
        state = dict(signatures["step"](inputs=token, **state))
        logits = state.pop("outputs")[0, 0].numpy().astype("float64")
        if place + 1 == len(text):
            chances = np.exp((logits - logits.max()) / temperature)
            text.append(rng.choice(256, p=chances / chances.sum()))
    return bytes(text)


def main(arguments=None):
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args(arguments)
    training, held_out = read_corpus()
    model = build()
    train(model, training, options.steps)
    print(f"{bits_per_byte(model, held_out):.3f} bits a byte, held out")
    exported = options.folder / "exported" / "1"
    streaming.export(model, exported)
    print(generate(exported, b"def read_", 400).decode(errors="replace"))


if __name__ == "__main__":
    main()
