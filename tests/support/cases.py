"""THE TABLE: every public layer of the package, with tiny arguments.

A new public layer needs a row here; `test_conformance.py` insists. The rows
are chosen so that every path of the layers is saved, restored and compiled
once, not so that every formula is checked: `test_layers.py` does that. They
stand side by side in one model, which is traced or saved once.
"""

import dataclasses
import functools
import pathlib
import sys
import typing
import zlib

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import ops
from lambdanet_tf.layers.base import BaseLayer
from tests.support.checks import randomize

# The algorithms are operations of TensorFlow alone.
every_implementation = pytest.mark.parametrize(
    "implementation",
    [
        "auto",
        *(
            pytest.param(name, marks=pytest.mark.once_a_version)
            for name in ops.implementations()
            if name != "auto"
        ),
    ],
)


@dataclasses.dataclass(frozen=True)
class Case:
    """A layer, its arguments, and what it is called on.

    Shapes are without the batch axis. `attention_mask` is a constant of the
    model, everything else an input of it.
    """

    name: str
    layer: type
    arguments: dict
    inputs: tuple
    context: tuple | None = None
    context_mask: tuple | None = None
    embeddings: tuple | None = None
    attention_mask: typing.Any = None
    any_size: bool = False  # spatial sizes may be unknown
    batched: bool = True  # the output has a batch axis
    trainable: int = 0  # trainable weights, counted by hand

    @property
    def has_own_config(self):
        """Whether the layer says itself what it keeps, not Keras."""
        return issubclass(self.layer, BaseLayer)

    def make(self, **kwargs):
        return self.layer(**self.arguments, **kwargs)

    @property
    def shapes(self):
        names = ("inputs", "context", "context_mask", "embeddings")
        shapes = {name: getattr(self, name) for name in names}
        return {name: shape for name, shape in shapes.items() if shape}

    def data(self, batch, seed=0):
        rng = np.random.default_rng(seed)
        data = {}
        for name, shape in self.shapes.items():
            if name == "context_mask":
                real = rng.integers(0, 2, [batch, *shape]).astype(bool)
                real.reshape(batch, -1)[:, 0] = True
                data[name] = real
            else:
                data[name] = rng.normal(size=[batch, *shape]).astype(np.float32)
        return data

    def call(self, layer, tensors, **kwargs):
        tensors = dict(tensors)
        inputs = tensors.pop("inputs")
        if self.attention_mask is not None:
            kwargs["attention_mask"] = self.attention_mask
        if not tf.is_tensor(inputs) and isinstance(inputs, np.ndarray):
            inputs = tf.constant(inputs)
        return layer(inputs, **tensors, **kwargs)

    def keras_inputs(self, free=False, prefix=""):
        """Tensors of Keras by argument; of any size where `free`."""
        tensors = {}
        for name, shape in self.shapes.items():
            if free:
                shape = (*(None for _ in shape[:-1]), shape[-1])
            tensors[name] = tf.keras.Input(
                shape,
                name=prefix + name,
                dtype="bool" if name == "context_mask" else "float32",
            )
        return tensors

    def model(self, layer=None, **kwargs):
        """A functional model of the layer alone, or of one that is given."""
        tensors, layer = self.keras_inputs(), layer or self.make(**kwargs)
        return tf.keras.Model(tensors, self.call(layer, tensors))

    def own(self, data):
        """The arguments of this row, of those of `joint_data`."""
        return {name: data[f"{self.name}_{name}"] for name in self.shapes}


def _band(queries, context):
    """A mask that permits neighbours; query 1 nothing at all."""
    n, m = np.arange(queries)[:, None], np.arange(context)
    mask = (np.abs(n - m) % 4 < 2).astype(int)
    mask[1] = 0
    return mask


_SMALL = {"filters": 6, "num_heads": 2, "key_dim": 3}
_SEQUENCE, _IMAGE, _VOLUME = (11, 5), (3, 5, 7), (2, 3, 3, 5)
_OBJECTS = {
    "kernel_regularizer": tf.keras.regularizers.L2(1e-2),
    "embeddings_constraint": tf.keras.constraints.MaxNorm(2.0),
    "query_initializer": tf.keras.initializers.HeNormal(seed=1),
}


def _row(layer, name, inputs, trainable, arguments=None, **others):
    """A layer with few filters, and what others have beside them."""
    arguments = {**_SMALL, **(arguments or {})}
    return Case(name, layer, arguments, inputs, trainable=trainable, **others)


_lambda = functools.partial(_row, layers.LambdaLayer)
_conv = functools.partial(_row, layers.LambdaConv, any_size=True)
_attention = functools.partial(_row, layers.RelativeAttention)
_local = functools.partial(_attention, any_size=True)

CASES = [
    _lambda("global", _IMAGE, 8),
    _lambda(
        "scope_depthwise",
        _IMAGE,
        8,
        _OBJECTS
        | {"scope": (3, 5), "intra_depth": 2, "implementation": "depthwise"},
        any_size=True,
    ),
    _lambda(
        "scope_conv2d",
        _IMAGE,
        8,
        {"scope": 3, "implementation": "conv2d", "intra_depth": 2},
        any_size=True,
    ),
    _lambda(
        "multi_head",
        _IMAGE,
        8,
        {"multi_head": True, "scope": 3, "intra_depth": 2},
    ),
    Case(
        "normalizations",
        layers.LambdaLayer,
        {
            "num_heads": 5,
            "key_dim": 2,
            "key_normalization": "l2",
            "query_normalization": "softmax",
            "use_batch_norm": False,
        },
        _SEQUENCE,
        trainable=4,
    ),
    _lambda(
        "causal",
        _SEQUENCE,
        8,
        {"causal": True, "scope": 5, "use_batch_norm": True},
        any_size=True,
    ),
    _lambda(
        "causal_global", (37, 5), 8, {"causal": True, "use_batch_norm": True}
    ),
    _lambda("mask", _SEQUENCE, 8, attention_mask=_band(11, 11)),
    _lambda("padding", _IMAGE, 8, {"scope": 3}, context_mask=_IMAGE[:-1]),
    _lambda(
        "context",
        _IMAGE,
        7,
        {"use_position": False},
        context=(13, 5),
        context_mask=(13,),
    ),
    _lambda(
        "explicit",
        _SEQUENCE,
        7,
        {"position_embedding": "explicit", "intra_depth": 2},
        context=(2, 3, 7),
        embeddings=(11, 6, 3, 2),
    ),
    _lambda("position_only", _IMAGE, 7, {"use_content": False}),
    _lambda(
        "position_bias",
        _IMAGE,
        9,
        {"use_position_bias": True, "scope": 3},
        context_mask=_IMAGE[:-1],
    ),
    _lambda("volume", _VOLUME, 8, {"scope": (1, 3, 3)}),
    _conv("conv_strided", _IMAGE, 8, {"kernel_size": 3, "strides": 2}),
    _conv(
        "conv_dilated",
        _IMAGE,
        9,
        {
            "kernel_size": (3, 5),
            "dilation_rate": (2, 1),
            "multi_head": True,
            "use_position_bias": True,
        },
    ),
    _conv(
        "conv_valid",
        _VOLUME,
        8,
        {"kernel_size": (1, 3, 3), "padding": "valid"},
    ),
    _conv(
        "conv_causal",
        _SEQUENCE,
        8,
        {
            "kernel_size": 3,
            "padding": "causal",
            "dilation_rate": 2,
            "use_batch_norm": True,
        },
    ),
    _attention("attention_global", _IMAGE, 5),
    _local("attention_local", _IMAGE, 5, _OBJECTS | {"scope": (3, 5)}),
    _attention(
        "attention_padding", _IMAGE, 5, {"scope": 3}, context_mask=_IMAGE[:-1]
    ),
    Case(
        "attention_joint",
        layers.RelativeAttention,
        {"num_heads": 7, "scope": 3, "position_embedding": "joint"},
        _IMAGE,
        any_size=True,
        trainable=4,
    ),
    _local("attention_height", _IMAGE, 4, {"axis": 1, "scope": 3}),
    _attention(
        "attention_width",
        _IMAGE,
        4,
        {"axis": 2, "causal": True},
        attention_mask=_band(5, 5),
    ),
    _attention(
        "attention_context",
        _IMAGE,
        3,
        {"position_embedding": None},
        context=(13, 5),
        context_mask=(13,),
    ),
    _local(
        "attention_causal",
        _SEQUENCE,
        3,
        {"causal": True, "scope": 5, "use_content": False},
    ),
    _local("attention_volume", _VOLUME, 6, {"scope": (1, 3, 3)}),
    Case(
        "embedding",
        layers.RelativePositionEmbedding,
        {"key_dim": 3, "intra_depth": 2, "scope": (3, 5), "num_heads": 2},
        _IMAGE,
        batched=False,
        trainable=1,
    ),
    Case(
        "squeeze_excite",
        layers.SqueezeExcite,
        {"ratio": 0.5},
        _IMAGE,
        any_size=True,
        trainable=4,
    ),
    Case(
        "stochastic_depth",
        layers.StochasticDepth,
        {"rate": 0.3},
        _IMAGE,
        any_size=True,
    ),
    Case(
        "batch_normalization",
        layers.BatchNormalization,
        {"momentum": 0.8, "epsilon": 0.01},
        _IMAGE,
        any_size=True,
        trainable=2,
    ),
    Case("dropout", layers.Dropout, {"rate": 0.3}, _IMAGE, any_size=True),
]


def in_parts(test):
    """Decorates a test of all rows that is dear: a quarter at once.

    Which, the test's name decides, so that together the tests meet all rows.
    """
    parts = [CASES[i::4] for i in range(4)]
    first = zlib.crc32(test.__name__.encode()) % 4
    rows = pytest.mark.parametrize("rows", parts[first:] + parts[:first])
    return pytest.mark.representatives(1)(rows(test))


def joint(rows=CASES, free=False, **kwargs):
    """A functional model of many layers side by side: outputs by row."""
    tensors, outputs = {}, {}
    for case in rows:
        own = case.keras_inputs(free, prefix=f"{case.name}_")
        tensors |= {f"{case.name}_{name}": x for name, x in own.items()}
        layer = case.make(name=case.name, **kwargs)
        outputs[case.name] = case.call(layer, own)
    return tf.keras.Model(tensors, outputs)


def joint_data(batch=2, seed=0, rows=CASES):
    """Tensors for that model."""
    return {
        f"{case.name}_{name}": tf.constant(value)
        for case in rows
        for name, value in case.data(batch, seed).items()
    }


def write(folder):
    """Writes weights, inputs and outputs of every case, for another Keras."""
    model, data = joint(), joint_data()
    randomize(model, np.random.default_rng(1))
    folder = pathlib.Path(folder)
    model.save_weights(str(folder / "layers.weights.h5"))
    np.savez(folder / "layers.npz", **data, **model(data))


if __name__ == "__main__":
    write(sys.argv[1])
