"""Wrong arguments and shapes: a `ValueError` that names and shows them."""

import functools
import re

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import analysis
from lambdanet_tf import layers
from lambdanet_tf import models

_SIZE = {"filters": 8, "num_heads": 2, "key_dim": 3}
# What a layer is given unless a row says otherwise.
USUAL = {
    "LambdaLayer": _SIZE,
    "LambdaConv": {**_SIZE, "kernel_size": 3},
    "RelativeAttention": _SIZE,
    "RelativePositionEmbedding": {"key_dim": 3},
    "Dropout": {"rate": 0.1},
}


def made(layer, **arguments):
    return getattr(layers, layer)(**{**USUAL.get(layer, {}), **arguments})


def refused(*parts):
    """Expects an error that says these patterns and shapes, in this order."""
    patterns = [x if isinstance(x, str) else re.escape(str(x)) for x in parts]
    message = re.compile(".*".join(patterns), re.DOTALL)
    return pytest.raises(ValueError, match=message)


def named(**wrong):
    """Rows of one argument each, which the message names and shows."""
    return [
        ({n: x}, None, f"`{n}`", re.escape(repr(x))) for n, x in wrong.items()
    ]


_FREE, _NO_TABLE = {"use_position": False}, {"position_embedding": None}
_OTHER, _WIDE, _PADDING = (2, 6, 4), (2, 3, 5, 4), "`context_mask`"
_GIVEN = {"position_embedding": "explicit"}
_NO_KEYS, _BIAS = {"use_content": False}, {"use_position_bias": True}
_DILATED = {"dilation_rate": 2}
_VALID = {"kernel_size": 5, "padding": "valid"}
# A layer's arguments, also as other libraries call them; what it is called on
# (inputs (2, 5, 4) if none are named), or None where it cannot be made; and
# what the message says.
ROWS = {
    "LambdaLayer": [
        *named(filters=0, intra_depth=True, scope="7", norm_epsilon=-0.001),
        *named(implementation="fast", key_normalization="max", num_heads=0),
        ({**_FREE, **_NO_KEYS}, None, "`use_content`.*`use_position`"),
        ({**_FREE, **_BIAS}, None, "`use_position_bias`.*=False"),
        ({"num_head": 1}, None, "`num_head`.*Did you mean 'num_heads'"),
        ({"dim_out": 1}, None, "`dim_out` is not an argument.*filters, scope"),
        ({"scope": (3, 3)}, {}, "`scope`", (3, 3)),
        ({"causal": True}, {"inputs": _WIDE}, "`causal.*one spatial axis"),
        ({}, {"context_mask": (2, 6)}, _PADDING, (2, 6)),
        (_FREE, {"context": _OTHER, "context_mask": (2, 5)}, _PADDING, (2, 5)),
        (_FREE, {"context": (2, 6)}, "`context`", (2, 6)),
        (_FREE, {"context": (3, 6, 4)}, "batch.*3.*2"),
        ({}, {"context": _OTHER}, "`context`", _OTHER, (2, 5, 4)),
        (_GIVEN, {"embeddings": (5, 5, 4)}, "`embeddings`", (5, 5, 4)),
        ({}, {"embeddings": (5, 5, 3)}, "`embeddings`.*explicit"),
    ],
    "LambdaConv": [
        *named(kernel_size=None, strides=0, padding="full"),
        ({"filters": 7}, None, "7.*2"),
        ({"dilation_rate": (1, -1)}, None, "`dilation_rate`.*-1"),
        ({"strides": 2, **_DILATED}, None, "`strides`.*`dilation_rate`"),
        ({}, {"inputs": (2, 0, 5, 4)}, (2, 0, 5, 4)),
        ({"kernel_size": (3, 3)}, {}, "`kernel_size`", (3, 3)),
        (_VALID, {"inputs": (2, 3, 9, 4)}, "5.*3|3.*5"),
    ],
    "RelativeAttention": [
        *named(axis=-1, key_dim=-1, position_embedding="relative"),
        ({**_NO_TABLE, **_NO_KEYS}, None, "`use_content=False`.*no scores"),
        ({}, {"attention_mask": (2, 5)}, "`attention_mask`", (2, 5), _PADDING),
        ({}, {"attention_mask": (2, 2, 5, 5)}, "`attention_mask` must have"),
        ({"axis": 3}, {"inputs": _WIDE}, "`axis`.*axis=3"),
    ],
    "RelativePositionEmbedding": [({"scope": 6}, None, "`scope`.*odd.*6")],
    "Dropout": named(rate=1.5),
    "SqueezeExcite": named(ratio="a"),
}


@pytest.mark.parametrize("name", ROWS)
def test_arguments_and_inputs(name):
    for arguments, given, *message in ROWS[name]:
        use = functools.partial(made, name, **arguments)
        if given is not None:
            given = {"inputs": (2, 5, 4), **given}
            tensors = {k: np.ones(x, "float32") for k, x in given.items()}
            use = functools.partial(use(), **tensors)
        with refused(*message):
            use()


_TEXT, _MAP = np.zeros([2, 5, 8], "float32"), np.zeros([2, 5, 5, 8], "float32")
_A_LINE = r"8\).*\(.*5, 5, 8\)"
_LONGER, _NARROWER = np.zeros([1, 6, 8], "float32"), _TEXT[..., :4]
# Layers that were built for `_TEXT`, and what they are called on then.
BUILT = [
    ("LambdaConv", _MAP, _A_LINE),
    ("SqueezeExcite", _NARROWER, "8.*4|4.*8"),
    ("LambdaLayer", _NARROWER, "8.*4|4.*8"),
    ("LambdaLayer", _LONGER, r"\(5,\).*\(6,\).*largest.*`scope`"),
]


@pytest.mark.parametrize(("layer", "x", "message"), BUILT)
def test_other_inputs_than_those_it_was_built_for(layer, x, message):
    layer = made(layer)
    layer(_TEXT)
    for given in (x, tf.keras.Input(x.shape[1:])):
        with refused(message):
            layer(given)


mixing = functools.partial(made, "LambdaLayer")
table = functools.partial(made, "RelativePositionEmbedding")


def unknown():
    inputs = tf.keras.Input([None, 4])
    mixing(scope=3)(inputs, attention_mask=np.ones([5, 5], bool))


_CALL = {"call": lambda self, images: images}
_MINE = type("Subclassed", (tf.keras.Model,), _CALL)(name="mine")
# What is called, and what the message says.
USES = [
    (lambda: mixing(position_embedding=table(scope=3))(_TEXT), "scope.*3"),
    (unknown, "`attention_mask`.*static"),
    (lambda: models.ResNet50(pattern="C", stages="C"), "`pattern`.*`stages`"),
    (lambda: analysis.analyze(_MINE), r"model.call\(images\)"),
]


@pytest.mark.parametrize(("use", "message"), USES)
def test_what_is_refused(use, message):
    with refused(message):
        use()
