"""Wrong arguments and shapes: `ValueError`, with the argument and the numbers.

Each row names what the message must contain; a message that does not help is
a failure too.
"""

import inspect
import re

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import analysis
from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf import serving
from lambdanet_tf import specs
from lambdanet_tf.environment import KERAS_3

_SIZE = {"num_heads": 2, "key_dim": 3}


def refused(message):
    return pytest.raises(ValueError, match=re.compile(message, re.DOTALL))


def table(**kwargs):
    return layers.RelativePositionEmbedding(3, **kwargs)


# What a constructor needs besides.
REQUIRED = {
    "LambdaConv": {"filters": 8, "kernel_size": 3},
    "Dropout": {"rate": 0.1},
    "StochasticDepth": {"rate": 0.1},
}

# By layer: arguments, also as other libraries call them, and what the message
# says.
CONSTRUCTION = {
    "LambdaLayer": [
        ({"filters": 7, "num_heads": 2}, "`filters`.*7.*2|7.*2"),
        ({"filters": 0}, "`filters`.*0"),
        ({"filters": 8.0}, "`filters`.*8.0"),
        ({"num_heads": 0}, "`num_heads`.*0"),
        ({"key_dim": -1}, "`key_dim`.*-1"),
        ({"intra_depth": True}, "`intra_depth`.*True"),
        ({"scope": 4}, "`scope`.*odd.*4"),
        ({"scope": (3, 4)}, "`scope`.*odd.*4"),
        ({"scope": "7"}, "`scope`.*7"),
        ({"implementation": "fast"}, "`implementation`.*'fast'"),
        ({"key_normalization": "max"}, "`key_norm.*'max'"),
        ({"query_normalization": "l2"}, "`query_norm.*'l2'"),
        (
            {"position_embedding": "absolute"},
            "`position_embedding`.*'absolute'",
        ),
        (
            {"use_content": False, "use_position": False},
            "`use_content`.*`use_position`",
        ),
        (
            {"use_position": False, "use_position_bias": True},
            "`use_position_bias`.*use_position=False",
        ),
        ({"norm_momentum": 2.0}, "`norm_momentum`.*2.0"),
        ({"norm_epsilon": -0.001}, "`norm_epsilon`.*-0.001"),
        ({"heads": 4}, "`heads`.*Did you mean 'num_heads'"),
        ({"activation": "relu"}, "`activation`.*has: filters"),
        ({"kei_dim": 3}, "`kei_dim`.*'key_dim'"),
        ({"num_classes": 10}, "follow it with a Dense"),
        ({"padding": "same"}, "`padding`.*`LambdaConv`"),
        ({"strides": 2}, "`strides`.*`LambdaConv`"),
        ({"stride": 2}, "`stride`.*`LambdaConv`"),
        ({"dilation_rate": 2}, "`dilation_rate`.*`LambdaConv`"),
        ({"activation": "relu"}, "an Activation layer"),
        ({"dropout": 0.1}, "follow the layer with `Dropout`"),
        ({"use_causal_mask": True}, "causal=True"),
        ({"return_sequences": True}, "GlobalAveragePooling1D"),
        ({"use_bias": True}, "no bias"),
        ({"value_dim": 4}, "`filters / num_heads`"),
        ({"kernel_size": 3}, "Did you mean 'scope'"),
        ({"units": 8}, "Did you mean 'filters'"),
        ({"dim_out": 8}, "Did you mean 'filters'"),
        ({"dim": 8}, "channels of the inputs are read"),
        ({"dim_k": 8}, "Did you mean 'key_dim'"),
        ({"dim_head": 8}, "Did you mean 'key_dim'"),
        ({"dim_u": 2}, "Did you mean 'intra_depth'"),
        ({"r": 23}, "Did you mean 'scope'"),
        ({"n": 64}, "scope=None is global"),
        ({"data_format": "channels_first"}, "Permute"),
        ({"kernel_initializer": "zeros"}, "`query_initializer`"),
        ({"return_attention_scores": True}, "No attention scores"),
        ({"attention_mask": None}, "belongs in the call"),
        ({"norm_momentum": None}, "`norm_momentum`.*None"),
        ({"position_embedding": None}, "`position_embedding`.*None"),
        ({"position_embedding": [1]}, "`position_embedding`"),
        ({"scope": ()}, r"`scope`.*\(\)"),
        ({"scope": (3, 3, 3, 3)}, "`scope`.*1 to 3"),
        *(
            ({name: "no"}, f"`{name}`.*True or False.*'no'")
            for name in (
                *("use_content", "use_position", "use_position_bias", "causal"),
                *("multi_head", "use_batch_norm", "use_sync_bn"),
            )
        ),
    ],
    "LambdaConv": [
        ({"filters": 7, "num_heads": 2}, "7.*2"),
        ({"kernel_size": 4}, "`kernel_size`.*odd.*4"),
        ({"kernel_size": None}, "`kernel_size`.*None"),
        ({"strides": 0}, "`strides`.*0"),
        ({"dilation_rate": (1, -1)}, "`dilation_rate`.*-1"),
        (
            {"strides": 2, "dilation_rate": 2},
            "`strides`.*`dilation_rate`.*2.*2",
        ),
        (
            {"strides": (1, 2), "dilation_rate": (2, 1)},
            "`strides`.*`dilation_rate`",
        ),
        ({"padding": "full"}, "`padding`.*'full'"),
        ({"position_embedding": "explicit"}, "explicit"),
        ({"stride": 2}, "'strides'"),
        ({"classes": 2}, "a Dense"),
        ({"use_causal_mask": True}, "padding='causal'"),
        ({"causal": True}, "'causal'"),
        ({"r": 3}, "'kernel_size'"),
        ({"scope": 3}, "'kernel_size'"),
        ({"filters": None}, "`filters`.*None"),
    ],
    "RelativeAttention": [
        ({"filters": 7, "num_heads": 2}, "`filters`.*7.*2"),
        ({"num_heads": 0}, "`num_heads`.*0"),
        ({"key_dim": -1}, "`key_dim`.*-1"),
        ({"scope": 4}, "`scope`.*odd.*4"),
        ({"axis": -1}, "`axis`.*-1"),
        (
            {"position_embedding": "relative"},
            "`position_embedding`.*'per_axis'.*'relative'",
        ),
        (
            {"position_embedding": None, "use_content": False},
            "`use_content`.*`position_embedding`",
        ),
        ({"heads": 4}, "`heads`.*Did you mean 'num_heads'"),
        ({"strides": 2}, "follow it with AveragePooling2D"),
        ({"padding": "same"}, "keeps the sizes"),
        ({"activation": "relu"}, "an Activation layer"),
        ({"dropout": 0.1}, "follow the layer with `Dropout`"),
        ({"use_causal_mask": True}, "causal=True"),
        ({"embed_dim": 8}, "Did you mean 'filters'"),
        ({"attention_axes": 1}, "Did you mean 'axis'"),
        ({"causal": 2}, "`causal`.*True or False.*2"),
        ({"use_content": None}, "`use_content`.*None"),
    ],
    "RelativePositionEmbedding": [
        ({"key_dim": 0}, "`key_dim`.*0"),
        ({"scope": 6}, "`scope`.*odd.*6"),
        ({"num_heads": 0}, "`num_heads`.*0"),
        ({"intra_depth": -2}, "`intra_depth`.*-2"),
        ({"max_distance": 3}, "`scope`"),
    ],
    "Dropout": [
        ({"seed": 1}, "`seed`.*rate"),
        ({"rate": 1.5}, "`rate`.*1.5"),
        ({"noise_shape": [1]}, "`StochasticDepth`"),
    ],
    "SqueezeExcite": [
        ({"ratio": 0}, "`ratio`.*0"),
        ({"ratio": -0.5}, "`ratio`.*-0.5"),
        ({"reduction": 4}, "1 / `ratio`"),
        ({"filters": 4}, "those of the inputs"),
        ({"ratio": "a"}, "`ratio`.*'a'"),
        ({"ratio": True}, "`ratio`.*True"),
        ({"ratio": None}, "`ratio`.*None"),
    ],
    "StochasticDepth": [
        ({"rate": 1.0}, "`rate`.*1.0"),
        ({"rate": -0.1}, "`rate`.*-0.1"),
        ({"survival_probability": 1}, "1 - `rate`"),
        ({"drop_prob": 0.1}, "`drop_prob`.*'rate'"),
    ],
}


@pytest.mark.parametrize(
    ("layer", "arguments", "message"),
    [
        pytest.param(layer, arguments, message, id=f"{layer}-{arguments}")
        for layer, rows in CONSTRUCTION.items()
        for arguments, message in rows
    ],
)
def test_construction(layer, arguments, message):
    arguments = {**REQUIRED.get(layer, {}), **arguments}
    with refused(message):
        getattr(layers, layer)(**arguments)


# (layer, what stands there without a name, what the message says)
POSITIONS = [
    ("LambdaLayer", (48, 3), "`filters` by position.*3.*scope=.*num_heads"),
    ("LambdaLayer", (64, 8, 7), "8, 7.*scope, causal, num_heads, key_dim"),
    ("LambdaConv", (8, 3, 2), "`filters`, `kernel_size`.*2.*strides="),
    ("RelativeAttention", (8, 2), "`filters`.*2.*num_heads="),
    ("RelativePositionEmbedding", (3, 1), "`key_dim`.*1.*intra_depth="),
    ("SqueezeExcite", (0.5, "silu"), "`ratio`.*'silu'.*activation="),
    ("StochasticDepth", (0.5, None, 1), "`rate`.*None, 1"),
    ("Dropout", (0.5, None), "`rate`.*None"),
    ("LambdaConv", (8,), "needs `kernel_size`"),
    ("LambdaConv", (), "needs `filters` and `kernel_size`"),
    ("Dropout", (), "needs `rate`"),
    ("StochasticDepth", (), "needs `rate`"),
]


@pytest.mark.parametrize(("layer", "given", "message"), POSITIONS)
def test_arguments_without_names(layer, given, message):
    with refused(message):
        getattr(layers, layer)(*given)


def zeros(*shape):
    return tf.zeros(shape)


def mask(*shape):
    return np.ones(shape, bool)


def conv(filters=8, kernel_size=3, **kwargs):
    return layers.LambdaConv(filters, kernel_size, **_SIZE, **kwargs)


def lambda_layer(**kwargs):
    return layers.LambdaLayer(**{"filters": 8, **_SIZE, **kwargs})


def content_layer():
    return lambda_layer(use_position=False)


def explicit(**kwargs):
    return lambda_layer(position_embedding="explicit", **kwargs)


def attention(**kwargs):
    return layers.RelativeAttention(**{"filters": 8, **_SIZE, **kwargs})


_LINE, _OTHER, _IMAGE = zeros(2, 5, 4), zeros(2, 6, 4), zeros(2, 5, 7, 4)

# (a call on wrong shapes, what the message says)
CALLS = [
    (lambda: lambda_layer()(zeros(2, 7)), r"\(2, 7\)"),
    (lambda: lambda_layer()(zeros(2, 2, 2, 2, 2, 7)), r"\(2, 2, 2, 2, 2, 7\)"),
    (lambda: lambda_layer(filters=None, num_heads=3)(zeros(2, 5, 7)), "7.*3"),
    (lambda: lambda_layer(scope=(3, 3, 3))(_IMAGE), r"`scope`.*\(3, 3, 3\)"),
    (lambda: lambda_layer(scope=(3, 3))(_LINE), r"`scope`.*\(3, 3\)"),
    (lambda: lambda_layer()(zeros(2, 0, 4)), r"\(2, 0, 4\)"),
    (lambda: conv()(zeros(2, 0, 5, 4)), r"\(2, 0, 5, 4\)"),
    (lambda: content_layer()(_LINE, context=zeros(3, 6, 4)), "batch.*2.*3"),
    (lambda: lambda_layer(causal=True)(_IMAGE), "`causal.*one spatial axis"),
    (lambda: conv(padding="causal")(_IMAGE), "causal.*one spatial axis"),
    (lambda: conv(kernel_size=(3, 3))(_LINE), r"`kernel_size`.*\(3, 3\)"),
    (
        lambda: conv(strides=(2, 2, 2))(zeros(2, 5, 5, 4)),
        r"`strides`.*\(2, 2, 2\)",
    ),
    (
        lambda: conv(dilation_rate=(2, 2, 2))(zeros(2, 5, 5, 4)),
        r"`dilation_rate`.*\(2, 2, 2\)",
    ),
    (
        lambda: conv(kernel_size=5, padding="valid")(zeros(2, 3, 9, 4)),
        "5.*3|3.*5",
    ),
    (
        lambda: content_layer()(
            _LINE, context=_OTHER, attention_mask=mask(6, 5)
        ),
        r"`attention_mask`.*\(5, 6\).*\(6, 5\)",
    ),
    (
        lambda: lambda_layer()(_LINE, attention_mask=mask(3, 5, 5)),
        r"`attention_mask`.*\(5, 5\).*\(3, 5, 5\)",
    ),
    (
        lambda: lambda_layer()(_LINE, attention_mask=mask(2, 3, 5, 5)),
        r"`attention_mask`.*\(2, 2, 5, 5\).*\(2, 3, 5, 5\)",
    ),
    (
        lambda: lambda_layer()(_LINE, attention_mask=mask(5)),
        r"`attention_mask`.*\(5, 5\).*\(5,\)",
    ),
    (
        lambda: attention()(_LINE, attention_mask=mask(2, 5)),
        r"`attention_mask`.*\(2, 5\).*`context_mask`",
    ),
    (
        lambda: lambda_layer()(_LINE, context_mask=mask(2, 6)),
        r"`context_mask`.*\(2, 6\)",
    ),
    (
        lambda: content_layer()(_LINE, context=_OTHER, context_mask=mask(2, 5)),
        r"`context_mask`.*\(2, 5\)",
    ),
    (
        lambda: lambda_layer()(zeros(2, 3, 5, 4), context_mask=mask(2, 5, 3)),
        r"`context_mask`.*\(2, 5, 3\)",
    ),
    (
        lambda: lambda_layer()(_LINE, context=_OTHER),
        r"`context`.*\(5,\).*\(6,\)",
    ),
    (
        lambda: lambda_layer()(zeros(2, 3, 5, 4), context=zeros(2, 5, 3, 4)),
        r"`context`.*\(3, 5\).*\(5, 3\)",
    ),
    (
        lambda: lambda_layer(scope=3)(
            zeros(2, 4, 4, 4), context=zeros(2, 16, 4)
        ),
        r"`context`.*\(4, 4\).*\(16,\)",
    ),
    (
        lambda: content_layer()(_LINE, context=zeros(2, 6)),
        r"`context`.*\(2, 6\)",
    ),
    (lambda: explicit()(_LINE), "`embeddings`"),
    (
        lambda: lambda_layer()(_LINE, embeddings=zeros(5, 5, 3)),
        "`embeddings`.*explicit",
    ),
    (lambda: content_layer()(_LINE, embeddings=zeros(5, 5, 3)), "`embeddings`"),
    (
        lambda: explicit()(_LINE, embeddings=zeros(5, 5, 4)),
        r"`embeddings`.*\(5, 5, 4\)",
    ),
    (
        lambda: explicit()(_LINE, context=_OTHER, embeddings=zeros(6, 5, 3)),
        r"`embeddings`.*\(6, 5, 3\)",
    ),
    (
        lambda: explicit()(_LINE, embeddings=zeros(3, 5, 5, 3)),
        r"`embeddings`.*\(3, 5, 5, 3\)",
    ),
    (
        lambda: explicit(intra_depth=2)(_LINE, embeddings=zeros(5, 5, 3)),
        r"`embeddings`.*\(5, 5, 3\)",
    ),
    (
        lambda: explicit()(_LINE, embeddings=zeros(2, 5, 5, 3, 1)),
        r"`embeddings`.*\(2, 5, 5, 3, 1\)",
    ),
    (
        lambda: explicit(multi_head=True)(_LINE, embeddings=zeros(5, 5, 3)),
        r"`embeddings`.*\(5, 5, 3\)",
    ),
    (
        lambda: lambda_layer(key_dim=4, position_embedding=table())(_LINE),
        "`key_dim`|key_dim.*4.*3|key_dim.*3.*4",
    ),
    (
        lambda: lambda_layer(scope=3, position_embedding=table(scope=5))(_LINE),
        "scope.*3.*5|scope.*5.*3",
    ),
    (
        lambda: lambda_layer(position_embedding=table(intra_depth=2))(_LINE),
        "intra_depth.*1.*2|intra_depth.*2.*1",
    ),
    (
        lambda: lambda_layer(multi_head=True, position_embedding=table())(
            _LINE
        ),
        "num_heads",
    ),
    (
        lambda: lambda_layer(position_embedding=table(num_heads=2))(_LINE),
        "num_heads",
    ),
    (lambda: attention(scope=(3, 3, 3))(_IMAGE), r"`scope`.*\(3, 3, 3\)"),
    (lambda: attention(scope=(3, 3), axis=1)(_IMAGE), r"`scope`.*\(3, 3\)"),
    (lambda: attention(axis=3)(_IMAGE), "`axis`.*axis=3"),
    (lambda: attention(causal=True)(_IMAGE), "`causal.*one spatial axis"),
    (
        lambda: attention(axis=1, position_embedding=None)(
            zeros(2, 5, 3, 4), context=zeros(2, 5, 4, 4)
        ),
        r"`context`.*\(5, 3\).*\(5, 4\)",
    ),
    (
        lambda: attention(axis=1)(
            zeros(2, 3, 5, 4), attention_mask=mask(15, 15)
        ),
        r"`attention_mask`.*\(3, 3\).*\(15, 15\)",
    ),
    (
        lambda: attention(key_dim=4, position_embedding=table())(_LINE),
        "key_dim.*4.*3",
    ),
    (
        lambda: attention(position_embedding=table(scope=5))(_LINE),
        "scope.*None.*5",
    ),
    (
        lambda: attention(position_embedding=table(num_heads=2))(_LINE),
        "num_heads.*None.*2",
    ),
    (lambda: table(scope=(3, 3))(_LINE), r"`scope`.*\(3, 3\)"),
]


_TEXT, _MAP = np.zeros([2, 5, 8], "float32"), np.zeros([2, 5, 5, 8], "float32")


def built(layer, x=_TEXT):
    layer(tf.constant(x))
    return layer


def several(make):
    return lambda: make()([tf.constant(_TEXT)] * 3)


# (what is called, what the message says)
USES = [
    (several(lambda_layer), "list of 3.*context=value"),
    (several(attention), "3.*context=value"),
    (several(conv), "one tensor.*list of 3"),
    (several(table), "one tensor.*list of 3"),
    (several(layers.SqueezeExcite), "list of 3"),
    (several(layers.BatchNormalization), "one tensor.*list of 3"),
    (
        several(lambda: layers.StochasticDepth(0.5)),
        r"list of 3.*shortcut \+ layer\(branch\)",
    ),
    (
        lambda: layers.StochasticDepth(0.5)(_TEXT, _TEXT),
        r"2 arguments.*shortcut \+ layer\(branch\)",
    ),
    (several(lambda: layers.Dropout(0.5)), "list of 3"),
    (lambda: lambda_layer()({"x": _TEXT}), "one tensor.*dict"),
    (
        lambda: lambda_layer()(_TEXT, _TEXT, _TEXT),
        "`inputs` and `context` by position.*3 arguments.*context=value",
    ),
    (
        lambda: layers.LambdaLayer(8, **{"filters": 8}),
        "`filters` is given twice",
    ),
    (
        lambda: lambda_layer()(_LINE, **{"inputs": _LINE}),
        "`inputs` is given twice",
    ),
    (lambda: lambda_layer()(), "must be called on `inputs`"),
    (lambda: conv()(None), "must be called on `inputs`"),
    (
        lambda: lambda_layer()(query=_TEXT, value=_TEXT),
        "`query`.*`inputs` are the queries",
    ),
    (
        lambda: lambda_layer()([[[1.0], [2.0]], [[1.0]]]),
        "`inputs`.*equal lengths",
    ),
    (
        lambda: lambda_layer()(_TEXT, context_mask=[[1, 1], [1]]),
        "`context_mask`.*equal lengths",
    ),
    (
        lambda: lambda_layer()(tf.ragged.constant([[[1.0]], [[1.0], [2.0]]])),
        "dense.*to_tensor",
    ),
    (
        lambda: lambda_layer()(_TEXT, use_causal_mask=True),
        "`use_causal_mask`.*causal=True",
    ),
    (
        lambda: attention()(_TEXT, use_causal_mask=True),
        "`use_causal_mask`.*causal=True",
    ),
    (
        lambda: conv()(_TEXT, use_causal_mask=True),
        "`use_causal_mask`.*padding='causal'",
    ),
    (
        lambda: lambda_layer()(_TEXT, return_attention_scores=True),
        r"`return_attention_scores`.*No attention scores.*layer\.read\(",
    ),
    (
        lambda: attention()(_TEXT, need_weights=True),
        "`need_weights`.*Did you mean 'return_attention_scores'",
    ),
    (
        lambda: lambda_layer()(_TEXT, scope=3),
        "`scope`.*belongs in the constructor",
    ),
    (
        lambda: lambda_layer()(_TEXT, context_masks=_TEXT),
        "`context_masks`.*Did you mean 'context_mask'",
    ),
    (
        lambda: conv()(_TEXT, context_mask=np.ones([2, 5])),
        "`context_mask`.*has: inputs, mask",
    ),
    (lambda: layers.SqueezeExcite()(_MAP, axis=1), "`axis`.*has: inputs"),
    *(
        (
            lambda make=make: built(make())(_MAP),
            "built for inputs with 1 spatial axis.*2",
        )
        for make in (
            lambda_layer,
            lambda: lambda_layer(scope=3),
            conv,
            attention,
            lambda: attention(scope=3),
            lambda: attention(position_embedding="joint"),
            table,
        )
    ),
    *(
        (lambda make=make: built(make())(_TEXT[..., :4]), "8.*4|4.*8")
        for make in (
            conv,
            layers.SqueezeExcite,
            lambda: lambda_layer(scope=3),
        )
    ),
    (
        lambda: built(lambda_layer())(np.zeros([1, 6, 8], "float32")),
        r"\(5,\).*\(6,\).*largest.*`scope`",
    ),
    (
        lambda: built(attention())(np.zeros([1, 6, 8], "float32")),
        r"\(5,\).*\(6,\).*largest.*`scope`",
    ),
    (lambda: lambda_layer().build(), "`inputs_shape`"),
    (
        lambda: attention().build((None, 5, 4), shape=3),
        "`inputs_shape`.*shape=",
    ),
    (lambda: lambda_layer().build([(None, 5, 4), (None, 5, 4)]), "one tensor"),
    (lambda: conv().build((None, 5)), r"\(None, 5\)"),
    (lambda: table().build((None, 5)), r"\(None, 5\)"),
    (lambda: lambda_layer().plan, "`plan` before it is"),
    (lambda: conv().inference_plan, "`inference_plan` before it is"),
    (lambda: lambda_layer().value_dim, "`value_dim`"),
    (lambda: attention().key_depth, "`key_depth`"),
    (lambda: attention().value_dim, "`value_dim`"),
    (lambda: attention().tables(), "`tables`"),
    (lambda: lambda_layer().state_spec(), "has no `state` before it is built"),
    (lambda: table().entries_for((5,)), "before it is"),
    (
        lambda: lambda_layer(scope=3)(
            tf.keras.Input([None, 4]), attention_mask=mask(5, 5)
        ),
        "`attention_mask`.*static",
    ),
    (
        lambda: attention(scope=3, axis=1)(
            tf.keras.Input([None, 4]), attention_mask=mask(5, 5)
        ),
        "`attention_mask`.*static",
    ),
    *(
        (
            lambda make=make: make()(tf.keras.Input([5, 7, None])),
            "channels|last",
        )
        for make in (lambda_layer, conv, attention)
    ),
]


def test_a_failed_call_leaves_nothing_behind():
    for make in (lambda_layer, attention):
        layer = make()
        with pytest.raises(ValueError, match="`context`"):
            layer(_TEXT, context=np.zeros([2, 6, 3], "float32"))
        layer.build((None, 5, 8))
        assert layer(_TEXT).shape == (2, 5, 8)


@pytest.mark.parametrize("make", [lambda_layer, attention, conv])
def test_build_takes_the_name_of_other_layers(make):
    layer = make()
    layer.build(input_shape=(None, 5, 8))
    assert layer(_TEXT).shape == (2, 5, 8)


def test_channels_first():
    tf.keras.backend.set_image_data_format("channels_first")
    try:
        for make in (lambda_layer, attention, conv, layers.SqueezeExcite):
            with pytest.raises(
                ValueError, match=r"set_image_data_format\('channels_last'\)"
            ):
                make()(_MAP)
            make()(_TEXT)  # Their channels are last in either format.
    finally:
        tf.keras.backend.set_image_data_format("channels_last")


@pytest.mark.parametrize("shape", [[None, 7], [5, None, 7], [None, None, 7]])
def test_unknown_size_under_a_global_scope(shape):
    for make in (lambda_layer, table, attention):
        with refused("scope.*None"):
            make()(tf.keras.Input(shape))
    attention(position_embedding=None)(tf.keras.Input(shape))
    lambda_layer(use_position=False)(tf.keras.Input(shape))


def test_global_table_on_a_larger_grid():
    shared = table()
    lambda_layer(position_embedding=shared)(_LINE)
    with refused("9.*6"):
        lambda_layer(position_embedding=shared)(_OTHER)


def test_integers_are_accepted_as_numpy_gives_them():
    layer = layers.LambdaLayer(
        filters=np.int64(8),
        num_heads=np.int32(2),
        key_dim=np.int64(3),
        scope=np.array([3, 5]).tolist(),
    )
    assert layer(tf.zeros([1, 5, 5, 4])).shape == (1, 5, 5, 8)


def test_training_as_a_tensor(rng):
    layer = lambda_layer()
    x = tf.constant(rng.normal(size=[2, 5, 4]), tf.float32)
    expected = layer(x, training=False)
    np.testing.assert_array_equal(
        layer(x, training=tf.constant(False)), expected
    )
    call = tf.function(lambda x, training: layer(x, training=training))
    if KERAS_3:
        with pytest.raises(ValueError, match="`training`.*True, False or None"):
            call(x, tf.constant(False))
    else:
        np.testing.assert_allclose(call(x, tf.constant(False)), expected, 1e-5)


class Subclassed(tf.keras.Model):
    def __init__(self):
        super().__init__(name="mine")
        self.mixing = layers.LambdaLayer(8, **_SIZE, scope=3)
        self.pool = tf.keras.layers.GlobalAveragePooling2D()
        self.head = tf.keras.layers.Dense(3)

    def call(self, images):
        return self.head(self.pool(self.mixing(images)))


def words():
    tokens = tf.keras.Input((5,), dtype="int32")
    x = tf.keras.layers.Embedding(7, 8)(tokens)
    return tf.keras.Model(tokens, lambda_layer(name="mixing")(x))


def field(model=None, inputs=_TEXT, layer="mixing", **kwargs):
    if model is None:
        x = tf.keras.Input((5, 8))
        model = tf.keras.Model(x, lambda_layer(name="mixing")(x))
    return analysis.receptive_field(model, layer, inputs, **kwargs)


def small(**kwargs):
    return models.LambdaResNetSmall(**kwargs)


def behind_weights():
    images = tf.keras.Input((8, 8, 1))
    return small(
        input_tensor=tf.keras.layers.Conv2D(1, 1)(images), weights="x.npz"
    )


# (what is called, what the message says)
FUNCTIONS = [
    (
        lambda: models.ResNet50(pattern="CCLL", stages=("C",) * 4),
        "`pattern` and `stages`.*give one",
    ),
    (lambda: small(parameters=5), "`parameters` is not an.*5"),
    (lambda: small(evaluation_crop=-1.0), "`evaluation_crop`.*-1.0"),
    (
        lambda: specs.Preset(
            specs.RESNETS["ResNet50"], 25_557_032, evaluation_crop=-1.0
        ),
        "`evaluation_crop`.*-1.0",
    ),
    (
        lambda: models.LambdaResNet50(
            image_size=64, input_shape=(96, 96, 3), endpoints=("c2",)
        ),
        "`image_size` would change nothing.*image_size=64.*96",
    ),
    (
        lambda: models.LambdaResNetSmall(image_size=16),
        "`image_size` would change nothing.*16",
    ),
    (lambda: models.ResNet50("LLLL"), "`include_top`.*'LLLL'.*by keyword"),
    (
        lambda: models.LambdaResNet50(False, include_top=True),
        "`include_top` is given twice",
    ),
    (lambda: small(image_size=0), "`image_size`.*0"),
    (
        lambda: specs.ResNetSpec(
            "mine", ("L",), scope=4, widths=(8,), strides=(1,)
        ),
        "`scope`.*odd.*4",
    ),
    (lambda: small(pooling="banana"), "`pooling`.*banana"),
    (lambda: small(include_top=False, classes=-1), "`classes`.*-1"),
    (
        lambda: small(include_preprocessing="no"),
        "`include_preprocessing`.*True or False",
    ),
    (lambda: small(use_sync_bn=2), "`use_sync_bn`.*2"),
    (lambda: small(image_mean=(1.0, 2.0, 3.0)), "`image_mean`.*color"),
    (
        lambda: small(dropout_rate=0.1, include_top=False),
        "`dropout_rate` would change nothing.*no classifier.*0.1",
    ),
    (
        lambda: small(dropout_rate=0.1, endpoints=("c2",)),
        "`dropout_rate` would change nothing.*no classifier.*0.1",
    ),
    (lambda: small(num_classes=3), "Did you mean 'classes'"),
    (lambda: small(num_class=3), "Did you mean 'classes'"),
    (lambda: small(pretrained=True), "Did you mean 'weights'"),
    (lambda: small(drop_rate=0.1), "'dropout_rate'"),
    (
        lambda: models.build("MobileNetV2", scope=3),
        "`scope` is not an argument of MobileNetV2",
    ),
    (lambda: models.ResNet(), "ResNet needs `spec`"),
    (lambda: models.ResNet("x"), "`spec`.*ResNetSpec.*'x'"),
    (behind_weights, "`weights`.*`input_tensor`"),
    (lambda: analysis.analyze(Subclassed()), r"'mine'.*model.call\(images\)"),
    (
        lambda: serving.export_model(Subclassed(), "unused", "mine"),
        r"'mine'.*model.call\(images\)",
    ),
    (lambda: models.clone_network(Subclassed()), "functional.*'mine'"),
    (lambda: analysis.analyze("x"), "`model`.*str"),
    (
        lambda: analysis.analyze(tf.keras.Sequential([conv()])),
        "functional.*without inputs",
    ),
    (lambda: field(probes=0), "`probes`.*0"),
    (lambda: field(inputs=_TEXT[:0]), "`inputs`.*none"),
    (lambda: field(layer=None), "`layer`.*None"),
    (
        lambda: field(words(), np.zeros([2, 5], "int32")),
        "Embedding.*source='layer'",
    ),
    (
        lambda: analysis.layer_part(lambda_layer(), "content"),
        "`layer` must be built",
    ),
]


REFUSED = [*CALLS, *USES, *FUNCTIONS]


@pytest.mark.parametrize(
    ("use", "message"), REFUSED, ids=[message for _, message in REFUSED]
)
def test_what_is_refused(use, message):
    with refused(message):
        use()


@pytest.mark.slow
def test_a_subclass_is_wrapped_by_what_the_error_says(tmp_path):
    model, images = Subclassed(), tf.keras.Input((5, 5, 3))
    wrapped = tf.keras.Model(images, model.call(images))
    kinds = [row.kind for row in analysis.analyze(wrapped).layers]
    assert "LambdaLayer" in kinds
    options = serving.ExportOptions(classifier_activation="softmax")
    assert serving.export_model(
        wrapped, tmp_path, "mine", options=options
    ).is_dir()


@pytest.mark.slow
def test_a_network_documents_what_it_has():
    text = models.MobileNetV2.__doc__
    assert '"head"' in text
    assert "letters A, X" not in text
    shown = inspect.signature(models.MobileNetV2).parameters
    assert "lambda_blocks" in shown
    assert not {"stages", "scope", "image_mean"} & set(shown)
    assert models.LambdaResNetSmall().output_shape == (None, 10)
    shown = inspect.signature(models.LambdaResNetSmall).parameters
    assert shown["classes"].default == 10
    for name in models.names():
        assert "as published" not in getattr(models, name).__doc__
