"""THE TABLE: a row for every path of every public layer, tiny ones."""

import dataclasses
import functools

import numpy as np
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import ops


@dataclasses.dataclass(frozen=True)
class Case:
    """A layer and what it is called on, in shapes without the batch axis.

    `attention_mask` is a constant of the model, everything else an input.
    """

    name: str
    layer: type
    arguments: dict
    inputs: tuple
    context: tuple | None = None
    context_mask: tuple | None = None
    embeddings: tuple | None = None
    attention_mask: np.ndarray | None = None
    any_size: bool = False  # spatial sizes may be unknown
    batched: bool = True  # the output has a batch axis
    trainable: int = 0  # trainable weights, counted by hand

    def make(self, **kwargs):
        return self.layer(**self.arguments, **kwargs)

    @property
    def shapes(self):
        names = ("inputs", "context", "context_mask", "embeddings")
        return {n: getattr(self, n) for n in names if getattr(self, n)}

    def data(self, batch):
        rng = np.random.default_rng(0)
        data = {}
        for name, shape in self.shapes.items():
            if name == "context_mask":
                real = rng.integers(0, 2, [batch, *shape]).astype(bool)
                real.reshape(batch, -1)[:, 0] = True
                data[name] = real
            else:
                data[name] = rng.normal(size=[batch, *shape]).astype(np.float32)
        return data

    def call(self, layer, tensors):
        tensors = dict(tensors)
        inputs = tensors.pop("inputs")
        if self.attention_mask is not None:
            tensors["attention_mask"] = self.attention_mask
        if isinstance(inputs, np.ndarray):
            inputs = tf.constant(inputs)
        return layer(inputs, **tensors)

    def keras_inputs(self, free=False):
        """Tensors of Keras by argument; of any size where `free`."""
        tensors = {}
        for name, shape in self.shapes.items():
            if free:
                shape = (*(None for _ in shape[:-1]), shape[-1])
            dtype = "bool" if name == "context_mask" else "float32"
            label = f"{self.name}_{name}"
            tensors[name] = tf.keras.Input(shape, name=label, dtype=dtype)
        return tensors


def _band(size):
    """A mask that permits neighbours; query 1 nothing at all."""
    places = np.arange(size)
    mask = (np.abs(places[:, None] - places) % 4 < 2).astype(int)
    mask[1] = 0
    return mask


_LINE, _IMAGE, _VOLUME = (11, 5), (3, 5, 7), (2, 3, 3, 5)
_SMALL = {"filters": 6, "num_heads": 2, "key_dim": 3}
_OBJECTS = {
    "scope": (3, 5),
    "kernel_regularizer": tf.keras.regularizers.L2(1e-2),
    "embeddings_constraint": tf.keras.constraints.MaxNorm(2.0),
    "query_initializer": tf.keras.initializers.HeNormal(seed=1),
}
_PADDED = {"scope": 3, "context_mask": _IMAGE[:-1]}
_OTHER = {"context": (13, 5), "context_mask": (13,)}
_NORMALIZED = {"key_normalization": "l2", "query_normalization": "softmax"}
_SINGLE = {"filters": None, "num_heads": 5, "use_batch_norm": False}
_EXPLICIT = {"position_embedding": "explicit", "intra_depth": 2}
_GIVEN = {"context": (2, 3, 7), "embeddings": (11, 6, 3, 2)}
_PAST = {"padding": "causal", "dilation_rate": 2}
_TABLE = {"key_dim": 3, "intra_depth": 2, "scope": (3, 5)}
_FIELDS = {field.name for field in dataclasses.fields(Case)}


def _row(layer, name, inputs, trainable=0, **arguments):
    """A case; what is no field of it is an argument of the layer."""
    fields = {key: arguments.pop(key) for key in _FIELDS & arguments.keys()}
    return Case(name, layer, arguments, inputs, trainable=trainable, **fields)


_any = functools.partial(_row, any_size=True)
_lambda = functools.partial(_row, layers.LambdaLayer, **_SMALL)
_window = functools.partial(_lambda, any_size=True)
_conv = functools.partial(_any, layers.LambdaConv, **_SMALL)
_attention = functools.partial(_row, layers.RelativeAttention, **_SMALL)
_local = functools.partial(_attention, any_size=True)
_table = functools.partial(_row, layers.RelativePositionEmbedding)

CASES = [
    _lambda("global", _IMAGE, 8),
    _window("depthwise", _IMAGE, 8, **_OBJECTS, implementation="depthwise"),
    _window("conv2d", _IMAGE, 8, scope=3, implementation="conv2d"),
    _lambda("intra_depth", _IMAGE, 8, scope=3, intra_depth=2),
    _lambda("normalizations", _LINE, 4, **_SINGLE, **_NORMALIZED),
    _window("causal", _LINE, 8, causal=True, scope=5, use_batch_norm=True),
    _lambda("causal_global", (37, 5), 8, causal=True, use_batch_norm=True),
    _lambda("mask", _LINE, 8, attention_mask=_band(11)),
    _lambda("padding", _IMAGE, 8, **_PADDED),
    _lambda("context", _IMAGE, 7, use_position=False, **_OTHER),
    _lambda("explicit", _LINE, 7, **_EXPLICIT, **_GIVEN),
    _lambda("position_only", _IMAGE, 7, use_content=False),
    _lambda("position_bias", _IMAGE, 9, use_position_bias=True, **_PADDED),
    _lambda("volume", _VOLUME, 8, scope=(1, 3, 3)),
    _conv("conv_strided", _IMAGE, 8, kernel_size=3, strides=2),
    _conv("conv_dilated", _IMAGE, 8, kernel_size=(3, 5), dilation_rate=(2, 1)),
    _conv("conv_valid", _VOLUME, 8, kernel_size=(1, 3, 3), padding="valid"),
    _conv("conv_past", _LINE, 4, kernel_size=3, **_PAST),
    _attention("attention_global", _IMAGE, 5),
    _local("attention_local", _IMAGE, 5, **_OBJECTS),
    _attention("attention_padding", _IMAGE, 5, **_PADDED),
    _local("attention_joint", _IMAGE, 4, scope=3, position_embedding="joint"),
    _local("attention_column", _IMAGE, 4, axis=1, scope=3),
    _attention(
        "attention_row", _IMAGE, 4, axis=2, causal=True, attention_mask=_band(5)
    ),
    _attention("cross_attention", _IMAGE, 3, position_embedding=None, **_OTHER),
    _local("attention_past", _LINE, 3, causal=True, scope=5, use_content=False),
    # A single entry would shift all scores alike, which a softmax ignores.
    _local("attention_volume", _VOLUME, 6, scope=(3, 3, 3)),
    _table("embedding", _IMAGE, 1, batched=False, **_TABLE),
    _any(layers.SqueezeExcite, "squeeze_excite", _IMAGE, 4, ratio=0.5),
    _any(layers.StochasticDepth, "stochastic_depth", _IMAGE, rate=0.3),
    _any(layers.BatchNormalization, "norm", _IMAGE, 2, epsilon=0.01),
    _any(layers.Dropout, "dropout", _IMAGE, rate=0.3),
]


# All rows in four models, for tests that are dear; every algorithm in one.
PARTS = [CASES[i::4] for i in range(4)]
_DEEP = {"scope": 3, "intra_depth": 2}
ALGORITHMS = [
    _lambda(name, _IMAGE, 8, **_DEEP, implementation=name)
    for name in ops.implementations(2)
]


def joint(rows=CASES, free=False):
    """A functional model of many layers side by side: outputs by row."""
    tensors, outputs = {}, {}
    for case in rows:
        own = case.keras_inputs(free)
        tensors |= {f"{case.name}_{name}": x for name, x in own.items()}
        outputs[case.name] = case.call(case.make(name=case.name), own)
    return tf.keras.Model(tensors, outputs)


def joint_data(batch=2, rows=CASES):
    return {
        f"{case.name}_{name}": tf.constant(value)
        for case in rows
        for name, value in case.data(batch).items()
    }
