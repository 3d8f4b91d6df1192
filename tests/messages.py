"""The most likely errors: `python -m tests.messages` prints them as a table."""

import contextlib
import io
import os
import pathlib
import re
import shlex
import sys
import tempfile

import numpy as np
import tensorflow as tf

from lambdanet_tf import analysis
from lambdanet_tf import cli
from lambdanet_tf import data
from lambdanet_tf import layers
from lambdanet_tf import markdown
from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf import streaming
from lambdanet_tf.serving import export_model

# A line with an arrow is a row: an expression or a command, and parts of its
# message, with " ... " between them.
_FILE = pathlib.Path(__file__).with_suffix(".txt")
_LINES = _FILE.read_text(encoding="utf-8").splitlines()
ROWS = [tuple(line.split(" => ")) for line in _LINES if " => " in line]
_ERRORS = ValueError, TypeError, OSError


def x(*shape):
    return np.ones(shape, "float32")


def built(layer, inputs):
    layer(inputs)
    return layer


def small(**arguments):
    return models.LambdaResNetSmall(**arguments)


def subclassed():
    call = {"call": lambda self, images: images}
    return type("Subclassed", (tf.keras.Model,), call)(name="mine")


def writer(*more):
    first = tf.keras.Input([None], dtype="int32")
    mixing = layers.LambdaLayer(8, scope=7, causal=True)
    parts = first, tf.keras.layers.Embedding(13, 8), mixing, *more
    return tf.keras.Sequential([*parts, tf.keras.layers.Dense(13)])


_PARTS = analysis, data, models, specs, streaming
_FUNCTIONS = x, built, small, subclassed, writer, export_model
_NAMES = {
    "tf": tf,
    **{name: getattr(layers, name) for name in layers.__all__},
    **{part.__name__.split(".")[-1]: part for part in _PARTS},
    **{function.__name__: function for function in _FUNCTIONS},
}


def message(row):
    """Returns what a person reads, in one line."""
    if row.startswith("lambdanet "):
        with contextlib.redirect_stderr(io.StringIO()) as stream:
            assert cli.main(shlex.split(row)[1:]) == 2, row
        text = stream.getvalue()
    else:
        try:
            eval(row, _NAMES)
        except _ERRORS as error:
            text = f"{error}"
        else:
            raise AssertionError(f"No error: {row}")
    text = re.sub(r"\x1b\[\dm|Arguments received by [^$]*", "", text)
    return " ".join(text.split())


def main():
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        rows = [(markdown.code(row), message(row)) for row, _ in ROWS]
    print(markdown.table(rows, ("input", "message")))


if __name__ == "__main__":
    sys.exit(main())
