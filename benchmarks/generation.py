"""Measures what a token costs over the length of the text before it.

    python -m benchmarks.generation --write docs        # about 10 minutes
    python -m benchmarks.generation --seconds 1 --lengths 64 256  # a look

A decoder whose positions are mixed by causal lambda layers, by local attention
or by global attention with its cache, by `streaming.step`; and two of them
called again on the whole text for each token. Medians, one sequence, float32.
Written are a record, `generation.json`, and from it a table and a picture.
"""

import argparse
import json
import os
import pathlib
import statistics
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf

from benchmarks import report
from lambdanet_tf import streaming
from lambdanet_tf.environment import require
from lambdanet_tf.environment import versions
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention

TOKENS, WIDTH, BLOCKS, SCOPE, HEADS = 256, 128, 4, 127, 4
LENGTHS = (64, 256, 1024, 4096, 16384)
_PROMPT = 256  # positions that are read at once
MIXERS = {
    "lambda": lambda: LambdaLayer(
        num_heads=HEADS, scope=SCOPE, causal=True, use_batch_norm=False
    ),
    "local attention": lambda: RelativeAttention(
        num_heads=HEADS, scope=SCOPE, causal=True
    ),
    "attention": lambda: RelativeAttention(
        num_heads=HEADS, causal=True, position_embedding=None
    ),
}


def language_model(mixer) -> tf.keras.Model:
    """A decoder of tokens whose positions are mixed by `mixer()`."""
    layers = tf.keras.layers
    tokens = tf.keras.Input((None,), dtype="int32")
    x = layers.Embedding(TOKENS, WIDTH)(tokens)
    for _ in range(BLOCKS):
        x = layers.Add()([x, mixer()(layers.LayerNormalization()(x))])
        hidden = layers.Dense(4 * WIDTH, activation="gelu")(
            layers.LayerNormalization()(x)
        )
        x = layers.Add()([x, layers.Dense(WIDTH)(hidden)])
    return tf.keras.Model(tokens, layers.Dense(TOKENS)(x))


def stepper(model, text):
    """A function that reads one token after a text, by its state."""
    spec = streaming.state_spec(model)
    step = tf.function(
        lambda tokens, state: streaming.step(model, tokens, state),
        input_signature=[tf.TensorSpec([1, None], tf.int32), spec],
    )
    state = streaming.initial_state(model, 1)
    for begin in range(0, text.shape[1], _PROMPT):
        _, state = step(text[:, begin : begin + _PROMPT], state)
    return lambda: step(text[:, -1:], state)[0]


def caller(model, text):
    """A function that reads one token more by a call on the whole text."""
    call = tf.function(lambda tokens: model(tokens)[:, -1:])
    return lambda: call(text)


def milliseconds(run, seconds) -> list[float]:
    """The times of a function, for some seconds, after a call to trace it."""
    run().numpy()
    times, end = [], time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        begin = time.perf_counter()
        run().numpy()
        times.append(1000 * (time.perf_counter() - begin))
    return times


def measure(lengths, seconds, print_fn=print) -> dict[str, list]:
    """Returns `[median, least, most]` ms for a token, by way and length."""
    models = {name: language_model(mixer) for name, mixer in MIXERS.items()}
    ways = {name: (stepper, model) for name, model in models.items()}
    for name in ("lambda", "attention"):
        ways[f"{name}, whole text again"] = caller, models[name]
    rng, found = np.random.default_rng(0), {name: [] for name in ways}
    for length in lengths:
        text = tf.constant(rng.integers(0, TOKENS, [1, length]), tf.int32)
        for name, (way, model) in ways.items():
            times = milliseconds(way(model, text), seconds)
            row = statistics.median(times), min(times), max(times)
            found[name].append([round(time, 3) for time in row])
            print_fn(
                f"{length:6} tokens  {name:28} {row[0]:10.2f} ms, "
                f"{row[1]:.2f} to {row[2]:.2f} of {len(times)}"
            )
    return found


def table(record):
    """Medians by length, and their range."""
    heads = [f"{length:,} tokens" for length in record["lengths"]]
    lines = [f"| ms for a token, after | {' | '.join(heads)} |"]
    lines.append("|" + "---|" * (1 + len(heads)))
    for name, rows in record["milliseconds"].items():
        cells = [f"{a:.1f} ({b:.1f} to {c:.1f})" for a, b, c in rows]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def picture(record):
    """A figure: milliseconds for a token over the length."""
    figures = require("matplotlib.figure", extra="plot")
    figure = figures.Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for name, rows in record["milliseconds"].items():
        style = "--" if "again" in name else "-"
        times = [median for median, *_ in rows]
        axes.loglog(
            record["lengths"], times, style, base=2, marker="o", label=name
        )
    axes.set_yscale("log", base=10)
    axes.set(xlabel="tokens before it", ylabel="milliseconds for a token")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    return figure


def main():
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument(
        "--seconds", type=float, default=6.0, help="for each measurement"
    )
    parser.add_argument("--write", type=pathlib.Path, metavar="FOLDER")
    flags = parser.parse_args()
    found = measure(flags.lengths, flags.seconds)
    record = {
        "lengths": list(flags.lengths),
        "milliseconds": found,
        "versions": versions(),
    }
    if folder := flags.write:
        text = json.dumps(record, indent=1) + "\n"
        (folder / "generation.json").write_text(text)
        report.insert(folder, "generation", table(record), "streaming.md")
        picture(record).savefig(folder / "generation.png", dpi=110)


if __name__ == "__main__":
    main()
