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


def table(**kwargs):
    return layers.RelativePositionEmbedding(3, **kwargs)


# (layer, arguments, what the message says)
CONSTRUCTION = [
    ("LambdaLayer", {"filters": 7, "num_heads": 2}, "`filters`.*7.*2|7.*2"),
    ("LambdaLayer", {"filters": 0}, "`filters`.*0"),
    ("LambdaLayer", {"filters": -8}, "`filters`.*-8"),
    ("LambdaLayer", {"filters": 8.0}, "`filters`.*8.0"),
    ("LambdaLayer", {"num_heads": 0}, "`num_heads`.*0"),
    ("LambdaLayer", {"key_dim": -1}, "`key_dim`.*-1"),
    ("LambdaLayer", {"key_dim": None}, "`key_dim`.*None"),
    ("LambdaLayer", {"intra_depth": 0}, "`intra_depth`.*0"),
    ("LambdaLayer", {"intra_depth": True}, "`intra_depth`.*True"),
    ("LambdaLayer", {"scope": 4}, "`scope`.*odd.*4"),
    ("LambdaLayer", {"scope": (3, 4)}, "`scope`.*odd.*4"),
    ("LambdaLayer", {"scope": 0}, "`scope`.*0"),
    ("LambdaLayer", {"scope": -3}, "`scope`.*-3"),
    ("LambdaLayer", {"scope": "7"}, "`scope`.*7"),
    ("LambdaLayer", {"scope": 3.0}, "`scope`.*3.0"),
    ("LambdaLayer", {"implementation": "fast"}, "`implementation`.*'fast'"),
    ("LambdaLayer", {"key_normalization": "max"}, "`key_norm.*'max'"),
    ("LambdaLayer", {"query_normalization": "l2"}, "`query_norm.*'l2'"),
    (
        "LambdaLayer",
        {"position_embedding": "absolute"},
        "`position_embedding`.*'absolute'",
    ),
    (
        "LambdaLayer",
        {"use_content": False, "use_position": False},
        "`use_content`.*`use_position`",
    ),
    (
        "LambdaLayer",
        {"use_position": False, "use_position_bias": True},
        "`use_position_bias`.*use_position=False",
    ),
    ("LambdaConv", {"filters": 7, "kernel_size": 3, "num_heads": 2}, "7.*2"),
    ("LambdaConv", {"filters": 8, "kernel_size": 4}, "`kernel_size`.*odd.*4"),
    ("LambdaConv", {"filters": 8, "kernel_size": 0}, "`kernel_size`.*0"),
    ("LambdaConv", {"filters": 8, "kernel_size": None}, "`kernel_size`.*None"),
    (
        "LambdaConv",
        {"filters": 8, "kernel_size": 3, "strides": 0},
        "`strides`.*0",
    ),
    (
        "LambdaConv",
        {"filters": 8, "kernel_size": 3, "dilation_rate": (1, -1)},
        "`dilation_rate`.*-1",
    ),
    (
        "LambdaConv",
        {"filters": 8, "kernel_size": 3, "strides": 2, "dilation_rate": 2},
        "`strides`.*`dilation_rate`.*2.*2",
    ),
    (
        "LambdaConv",
        {
            "filters": 8,
            "kernel_size": 3,
            "strides": (1, 2),
            "dilation_rate": (2, 1),
        },
        "`strides`.*`dilation_rate`",
    ),
    (
        "LambdaConv",
        {"filters": 8, "kernel_size": 3, "padding": "full"},
        "`padding`.*'full'",
    ),
    (
        "LambdaConv",
        {"filters": 8, "kernel_size": 3, "position_embedding": "explicit"},
        "explicit",
    ),
    ("RelativeAttention", {"filters": 7, "num_heads": 2}, "`filters`.*7.*2"),
    ("RelativeAttention", {"num_heads": 0}, "`num_heads`.*0"),
    ("RelativeAttention", {"key_dim": -1}, "`key_dim`.*-1"),
    ("RelativeAttention", {"scope": 4}, "`scope`.*odd.*4"),
    ("RelativeAttention", {"axis": 0}, "`axis`.*0"),
    ("RelativeAttention", {"axis": -1}, "`axis`.*-1"),
    (
        "RelativeAttention",
        {"position_embedding": "relative"},
        "`position_embedding`.*'per_axis'.*'relative'",
    ),
    (
        "RelativeAttention",
        {"position_embedding": None, "use_content": False},
        "`use_content`.*`position_embedding`",
    ),
    ("RelativeAttention", {"heads": 4}, "`heads`.*Did you mean 'num_heads'"),
    ("RelativePositionEmbedding", {"key_dim": 0}, "`key_dim`.*0"),
    ("RelativePositionEmbedding", {"scope": 6}, "`scope`.*odd.*6"),
    ("RelativePositionEmbedding", {"num_heads": 0}, "`num_heads`.*0"),
    ("RelativePositionEmbedding", {"intra_depth": -2}, "`intra_depth`.*-2"),
    ("LambdaLayer", {"norm_momentum": 2.0}, "`norm_momentum`.*2.0"),
    ("LambdaLayer", {"norm_epsilon": -1e-3}, "`norm_epsilon`.*-0.001"),
    ("LambdaLayer", {"heads": 4}, "`heads`.*Did you mean 'num_heads'"),
    ("LambdaLayer", {"activation": "relu"}, "`activation`.*has: filters"),
    ("LambdaLayer", {"kei_dim": 3}, "`kei_dim`.*'key_dim'"),
    ("LambdaConv", {"filters": 8, "kernel_size": 3, "stride": 2}, "'strides'"),
    ("Dropout", {"rate": 0.1, "seed": 1}, "`seed`.*rate"),
    ("SqueezeExcite", {"ratio": 0}, "`ratio`.*0"),
    ("SqueezeExcite", {"ratio": -0.5}, "`ratio`.*-0.5"),
    ("StochasticDepth", {"rate": 1.0}, "`rate`.*1.0"),
    ("StochasticDepth", {"rate": -0.1}, "`rate`.*-0.1"),
    ("Dropout", {"rate": 1.5}, "`rate`.*1.5"),
    # What other libraries call it, or have and lambda layers do not.
    ("LambdaLayer", {"num_classes": 10}, "follow it with a Dense"),
    ("LambdaConv", {"filters": 8, "kernel_size": 3, "classes": 2}, "a Dense"),
    ("LambdaLayer", {"padding": "same"}, "`padding`.*`LambdaConv`"),
    ("LambdaLayer", {"strides": 2}, "`strides`.*`LambdaConv`"),
    ("LambdaLayer", {"stride": 2}, "`stride`.*`LambdaConv`"),
    ("LambdaLayer", {"dilation_rate": 2}, "`dilation_rate`.*`LambdaConv`"),
    ("RelativeAttention", {"strides": 2}, "follow it with AveragePooling2D"),
    ("RelativeAttention", {"padding": "same"}, "keeps the sizes"),
    ("LambdaLayer", {"activation": "relu"}, "an Activation layer"),
    ("RelativeAttention", {"activation": "relu"}, "an Activation layer"),
    ("LambdaLayer", {"dropout": 0.1}, "follow the layer with `Dropout`"),
    ("RelativeAttention", {"dropout": 0.1}, "follow the layer with `Dropout`"),
    ("LambdaLayer", {"use_causal_mask": True}, "causal=True"),
    ("RelativeAttention", {"use_causal_mask": True}, "causal=True"),
    (
        "LambdaConv",
        {"filters": 8, "kernel_size": 3, "use_causal_mask": True},
        "padding='causal'",
    ),
    (
        "LambdaConv",
        {"filters": 8, "kernel_size": 3, "causal": True},
        "'causal'",
    ),
    ("LambdaLayer", {"return_sequences": True}, "GlobalAveragePooling1D"),
    ("LambdaLayer", {"use_bias": True}, "no bias"),
    ("LambdaLayer", {"value_dim": 4}, "`filters / num_heads`"),
    ("LambdaLayer", {"kernel_size": 3}, "Did you mean 'scope'"),
    ("LambdaLayer", {"units": 8}, "Did you mean 'filters'"),
    ("LambdaLayer", {"dim_out": 8}, "Did you mean 'filters'"),
    ("LambdaLayer", {"dim": 8}, "channels of the inputs are read"),
    ("LambdaLayer", {"dim_k": 8}, "Did you mean 'key_dim'"),
    ("LambdaLayer", {"dim_head": 8}, "Did you mean 'key_dim'"),
    ("LambdaLayer", {"dim_u": 2}, "Did you mean 'intra_depth'"),
    ("LambdaLayer", {"r": 23}, "Did you mean 'scope'"),
    ("LambdaLayer", {"n": 64}, "scope=None is global"),
    ("LambdaConv", {"filters": 8, "kernel_size": 3, "r": 3}, "'kernel_size'"),
    (
        "LambdaConv",
        {"filters": 8, "kernel_size": 3, "scope": 3},
        "'kernel_size'",
    ),
    ("LambdaLayer", {"data_format": "channels_first"}, "Permute"),
    ("LambdaLayer", {"kernel_initializer": "zeros"}, "`query_initializer`"),
    ("LambdaLayer", {"return_attention_scores": True}, "No attention scores"),
    ("LambdaLayer", {"attention_mask": None}, "belongs in the call"),
    ("RelativeAttention", {"embed_dim": 8}, "Did you mean 'filters'"),
    ("RelativeAttention", {"attention_axes": 1}, "Did you mean 'axis'"),
    ("RelativePositionEmbedding", {"max_distance": 3}, "`scope`"),
    ("SqueezeExcite", {"reduction": 4}, "1 / `ratio`"),
    ("SqueezeExcite", {"filters": 4}, "those of the inputs"),
    ("StochasticDepth", {"rate": 0.1, "survival_probability": 1}, "1 - `rate`"),
    ("StochasticDepth", {"drop_prob": 0.1}, "`rate`"),
    ("Dropout", {"rate": 0.1, "noise_shape": [1]}, "`StochasticDepth`"),
    # Flags are True or False.
    *(
        ("LambdaLayer", {name: "no"}, f"`{name}`.*True or False.*'no'")
        for name in (
            *("use_content", "use_position", "use_position_bias", "causal"),
            *("multi_head", "use_batch_norm", "use_sync_bn"),
        )
    ),
    ("RelativeAttention", {"causal": 2}, "`causal`.*True or False.*2"),
    ("RelativeAttention", {"use_content": None}, "`use_content`.*None"),
    ("SqueezeExcite", {"ratio": "a"}, "`ratio`.*'a'"),
    ("SqueezeExcite", {"ratio": True}, "`ratio`.*True"),
    ("SqueezeExcite", {"ratio": float("nan")}, "`ratio`.*nan"),
    ("SqueezeExcite", {"ratio": None}, "`ratio`.*None"),
    ("LambdaLayer", {"norm_momentum": None}, "`norm_momentum`.*None"),
    ("LambdaConv", {"filters": None, "kernel_size": 3}, "`filters`.*None"),
    ("LambdaLayer", {"position_embedding": None}, "`position_embedding`.*None"),
    ("LambdaLayer", {"position_embedding": [1]}, "`position_embedding`"),
    ("LambdaLayer", {"scope": ()}, r"`scope`.*\(\)"),
    ("LambdaLayer", {"scope": (3, 3, 3, 3)}, "`scope`.*1 to 3"),
]


@pytest.mark.parametrize(
    ("layer", "arguments", "message"),
    CONSTRUCTION,
    ids=[f"{layer}-{arguments}" for layer, arguments, _ in CONSTRUCTION],
)
def test_construction(layer, arguments, message):
    with pytest.raises(ValueError, match=re.compile(message, re.DOTALL)):
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
    with pytest.raises(ValueError, match=re.compile(message, re.DOTALL)):
        getattr(layers, layer)(*given)


def test_arguments_given_twice():
    with pytest.raises(ValueError, match="`filters` is given twice"):
        layers.LambdaLayer(8, **{"filters": 8})
    with pytest.raises(ValueError, match="`inputs` is given twice"):
        lambda_layer()(tf.zeros([2, 5, 4]), **{"inputs": tf.zeros([2, 5, 4])})


def conv(filters=8, kernel_size=3, **kwargs):
    return layers.LambdaConv(filters, kernel_size, **_SIZE, **kwargs)


def lambda_layer(**kwargs):
    return layers.LambdaLayer(**{"filters": 8, **_SIZE, **kwargs})


def attention(**kwargs):
    return layers.RelativeAttention(**{"filters": 8, **_SIZE, **kwargs})


# name: (layer, call arguments as shapes, what the message says)
CALLS = {
    "rank_2": (lambda_layer, {"inputs": [2, 7]}, r"\(2, 7\)"),
    "rank_6": (
        lambda_layer,
        {"inputs": [2, 2, 2, 2, 2, 7]},
        r"\(2, 2, 2, 2, 2, 7\)",
    ),
    "channels_not_divisible": (
        lambda: lambda_layer(filters=None, num_heads=3),
        {"inputs": [2, 5, 7]},
        "7.*3",
    ),
    "scope_of_wrong_length": (
        lambda: lambda_layer(scope=(3, 3, 3)),
        {"inputs": [2, 5, 7, 4]},
        r"`scope`.*\(3, 3, 3\)",
    ),
    "scope_for_two_axes_on_one": (
        lambda: lambda_layer(scope=(3, 3)),
        {"inputs": [2, 5, 4]},
        r"`scope`.*\(3, 3\)",
    ),
    "no_positions": (lambda_layer, {"inputs": [2, 0, 4]}, r"\(2, 0, 4\)"),
    "no_rows": (conv, {"inputs": [2, 0, 5, 4]}, r"\(2, 0, 5, 4\)"),
    "batch_of_the_context": (
        lambda: lambda_layer(use_position=False),
        {"inputs": [2, 5, 4], "context": [3, 6, 4]},
        "batch.*2.*3",
    ),
    "causal_image": (
        lambda: lambda_layer(causal=True),
        {"inputs": [2, 5, 7, 4]},
        "`causal.*one spatial axis",
    ),
    "causal_padding_of_an_image": (
        lambda: conv(padding="causal"),
        {"inputs": [2, 5, 7, 4]},
        "causal.*one spatial axis",
    ),
    "kernel_of_wrong_length": (
        lambda: conv(kernel_size=(3, 3)),
        {"inputs": [2, 5, 4]},
        r"`kernel_size`.*\(3, 3\)",
    ),
    "strides_of_wrong_length": (
        lambda: conv(strides=(2, 2, 2)),
        {"inputs": [2, 5, 5, 4]},
        r"`strides`.*\(2, 2, 2\)",
    ),
    "dilation_of_wrong_length": (
        lambda: conv(dilation_rate=(2, 2, 2)),
        {"inputs": [2, 5, 5, 4]},
        r"`dilation_rate`.*\(2, 2, 2\)",
    ),
    "window_larger_than_the_image": (
        lambda: conv(kernel_size=5, padding="valid"),
        {"inputs": [2, 3, 9, 4]},
        "5.*3|3.*5",
    ),
    "mask_transposed": (
        lambda: lambda_layer(use_position=False),
        {"inputs": [2, 5, 4], "context": [2, 6, 4], "attention_mask": [6, 5]},
        r"`attention_mask`.*\(5, 6\).*\(6, 5\)",
    ),
    "mask_of_another_batch": (
        lambda_layer,
        {"inputs": [2, 5, 4], "attention_mask": [3, 5, 5]},
        r"`attention_mask`.*\(5, 5\).*\(3, 5, 5\)",
    ),
    "mask_of_other_heads": (
        lambda_layer,
        {"inputs": [2, 5, 4], "attention_mask": [2, 3, 5, 5]},
        r"`attention_mask`.*\(2, 2, 5, 5\).*\(2, 3, 5, 5\)",
    ),
    "mask_without_an_axis_of_queries": (
        lambda_layer,
        {"inputs": [2, 5, 4], "attention_mask": [5]},
        r"`attention_mask`.*\(5, 5\).*\(5,\)",
    ),
    "mask_of_padding": (
        attention,
        {"inputs": [2, 5, 4], "attention_mask": [2, 5]},
        r"`attention_mask`.*\(2, 5\).*`context_mask`",
    ),
    "context_mask_of_wrong_length": (
        lambda_layer,
        {"inputs": [2, 5, 4], "context_mask": [2, 6]},
        r"`context_mask`.*\(2, 6\)",
    ),
    "context_mask_of_the_inputs": (
        lambda: lambda_layer(use_position=False),
        {"inputs": [2, 5, 4], "context": [2, 6, 4], "context_mask": [2, 5]},
        r"`context_mask`.*\(2, 5\)",
    ),
    "context_mask_transposed": (
        lambda_layer,
        {"inputs": [2, 3, 5, 4], "context_mask": [2, 5, 3]},
        r"`context_mask`.*\(2, 5, 3\)",
    ),
    "context_on_another_grid": (
        lambda_layer,
        {"inputs": [2, 5, 4], "context": [2, 6, 4]},
        r"`context`.*\(5,\).*\(6,\)",
    ),
    "context_transposed": (
        lambda_layer,
        {"inputs": [2, 3, 5, 4], "context": [2, 5, 3, 4]},
        r"`context`.*\(3, 5\).*\(5, 3\)",
    ),
    "context_of_another_rank": (
        lambda: lambda_layer(scope=3),
        {"inputs": [2, 4, 4, 4], "context": [2, 16, 4]},
        r"`context`.*\(4, 4\).*\(16,\)",
    ),
    "context_of_rank_2": (
        lambda: lambda_layer(use_position=False),
        {"inputs": [2, 5, 4], "context": [2, 6]},
        r"`context`.*\(2, 6\)",
    ),
    "explicit_embeddings_missing": (
        lambda: lambda_layer(position_embedding="explicit"),
        {"inputs": [2, 5, 4]},
        "`embeddings`",
    ),
    "embeddings_for_an_own_table": (
        lambda_layer,
        {"inputs": [2, 5, 4], "embeddings": [5, 5, 3]},
        "`embeddings`.*explicit",
    ),
    "embeddings_without_positions": (
        lambda: lambda_layer(use_position=False),
        {"inputs": [2, 5, 4], "embeddings": [5, 5, 3]},
        "`embeddings`",
    ),
    "embeddings_of_wrong_key_dim": (
        lambda: lambda_layer(position_embedding="explicit"),
        {"inputs": [2, 5, 4], "embeddings": [5, 5, 4]},
        r"`embeddings`.*\(5, 5, 4\)",
    ),
    "embeddings_transposed": (
        lambda: lambda_layer(position_embedding="explicit"),
        {
            "inputs": [2, 5, 4],
            "context": [2, 6, 4],
            "embeddings": [6, 5, 3],
        },
        r"`embeddings`.*\(6, 5, 3\)",
    ),
    "embeddings_of_another_batch": (
        lambda: lambda_layer(position_embedding="explicit"),
        {"inputs": [2, 5, 4], "embeddings": [3, 5, 5, 3]},
        r"`embeddings`.*\(3, 5, 5, 3\)",
    ),
    "embeddings_without_intra_depth": (
        lambda: lambda_layer(position_embedding="explicit", intra_depth=2),
        {"inputs": [2, 5, 4], "embeddings": [5, 5, 3]},
        r"`embeddings`.*\(5, 5, 3\)",
    ),
    "embeddings_with_idle_intra_depth": (
        lambda: lambda_layer(position_embedding="explicit"),
        {"inputs": [2, 5, 4], "embeddings": [2, 5, 5, 3, 1]},
        r"`embeddings`.*\(2, 5, 5, 3, 1\)",
    ),
    "embeddings_without_heads": (
        lambda: lambda_layer(position_embedding="explicit", multi_head=True),
        {"inputs": [2, 5, 4], "embeddings": [5, 5, 3]},
        r"`embeddings`.*\(5, 5, 3\)",
    ),
    "shared_table_of_another_depth": (
        lambda: lambda_layer(key_dim=4, position_embedding=table()),
        {"inputs": [2, 5, 4]},
        "`key_dim`|key_dim.*4.*3|key_dim.*3.*4",
    ),
    "shared_table_of_another_scope": (
        lambda: lambda_layer(scope=3, position_embedding=table(scope=5)),
        {"inputs": [2, 5, 4]},
        "scope.*3.*5|scope.*5.*3",
    ),
    "shared_table_of_another_intra_depth": (
        lambda: lambda_layer(position_embedding=table(intra_depth=2)),
        {"inputs": [2, 5, 4]},
        "intra_depth.*1.*2|intra_depth.*2.*1",
    ),
    "shared_table_without_heads": (
        lambda: lambda_layer(multi_head=True, position_embedding=table()),
        {"inputs": [2, 5, 4]},
        "num_heads",
    ),
    "shared_table_with_heads": (
        lambda: lambda_layer(position_embedding=table(num_heads=2)),
        {"inputs": [2, 5, 4]},
        "num_heads",
    ),
    "attention_rank_2": (attention, {"inputs": [2, 7]}, r"\(2, 7\)"),
    "attention_channels_not_divisible": (
        lambda: attention(filters=None, num_heads=3),
        {"inputs": [2, 5, 7]},
        "7.*3",
    ),
    "attention_scope_of_wrong_length": (
        lambda: attention(scope=(3, 3, 3)),
        {"inputs": [2, 5, 7, 4]},
        r"`scope`.*\(3, 3, 3\)",
    ),
    "attention_scope_of_two_axes_along_one": (
        lambda: attention(scope=(3, 3), axis=1),
        {"inputs": [2, 5, 7, 4]},
        r"`scope`.*\(3, 3\)",
    ),
    "attention_along_the_channels": (
        lambda: attention(axis=3),
        {"inputs": [2, 5, 7, 4]},
        "`axis`.*axis=3",
    ),
    "attention_causal_image": (
        lambda: attention(causal=True),
        {"inputs": [2, 5, 7, 4]},
        "`causal.*one spatial axis",
    ),
    "attention_context_on_another_grid": (
        attention,
        {"inputs": [2, 5, 4], "context": [2, 6, 4]},
        r"`context`.*\(5,\).*\(6,\)",
    ),
    "attention_lines_of_another_context": (
        lambda: attention(axis=1, position_embedding=None),
        {"inputs": [2, 5, 3, 4], "context": [2, 5, 4, 4]},
        r"`context`.*\(5, 3\).*\(5, 4\)",
    ),
    "attention_batch_of_the_context": (
        lambda: attention(position_embedding=None),
        {"inputs": [2, 5, 4], "context": [3, 6, 4]},
        "batch.*2.*3",
    ),
    "attention_mask_of_the_whole_map_along_an_axis": (
        lambda: attention(axis=1),
        {"inputs": [2, 3, 5, 4], "attention_mask": [15, 15]},
        r"`attention_mask`.*\(3, 3\).*\(15, 15\)",
    ),
    "attention_context_mask_transposed": (
        attention,
        {"inputs": [2, 3, 5, 4], "context_mask": [2, 5, 3]},
        r"`context_mask`.*\(2, 5, 3\)",
    ),
    "attention_with_a_table_of_another_depth": (
        lambda: attention(key_dim=4, position_embedding=table()),
        {"inputs": [2, 5, 4]},
        "key_dim.*4.*3",
    ),
    "attention_with_a_table_of_another_scope": (
        lambda: attention(position_embedding=table(scope=5)),
        {"inputs": [2, 5, 4]},
        "scope.*None.*5",
    ),
    "attention_with_a_table_of_heads": (
        lambda: attention(position_embedding=table(num_heads=2)),
        {"inputs": [2, 5, 4]},
        "num_heads.*None.*2",
    ),
    "table_of_an_image_with_too_many_axes": (
        lambda: table(scope=(3, 3)),
        {"inputs": [2, 5, 4]},
        r"`scope`.*\(3, 3\)",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_call(name):
    make, shapes, message = CALLS[name]
    arguments = {
        key: np.ones(shape, bool if "mask" in key else np.float32)
        for key, shape in shapes.items()
    }
    inputs = tf.constant(arguments.pop("inputs"))
    with pytest.raises(ValueError, match=re.compile(message, re.DOTALL)):
        make()(inputs, **arguments)


_TEXT, _MAP = np.zeros([2, 5, 8], "float32"), np.zeros([2, 5, 5, 8], "float32")


def built(layer, x=_TEXT):
    layer(tf.constant(x))
    return layer


def several(make):
    return lambda: make()([tf.constant(_TEXT)] * 3)


# name: (what is called, what the message says)
USES = {
    "query_key_value": (several(lambda_layer), "list of 3.*context=value"),
    "attention_query_key_value": (several(attention), "3.*context=value"),
    "several_to_a_convolution": (several(conv), "one tensor.*list of 3"),
    "several_to_a_table": (several(table), "one tensor.*list of 3"),
    "several_to_squeeze_excite": (several(layers.SqueezeExcite), "list of 3"),
    "several_to_batch_normalization": (
        several(layers.BatchNormalization),
        "one tensor.*list of 3",
    ),
    "shortcut_and_branch": (
        several(lambda: layers.StochasticDepth(0.5)),
        r"list of 3.*shortcut \+ layer\(branch\)",
    ),
    "shortcut_and_branch_as_arguments": (
        lambda: layers.StochasticDepth(0.5)(_TEXT, _TEXT),
        r"2 arguments.*shortcut \+ layer\(branch\)",
    ),
    "several_to_dropout": (several(lambda: layers.Dropout(0.5)), "list of 3"),
    "dictionary": (lambda: lambda_layer()({"x": _TEXT}), "one tensor.*dict"),
    "three_positions": (
        lambda: lambda_layer()(_TEXT, _TEXT, _TEXT),
        "`inputs` and `context` by position.*3 arguments.*context=value",
    ),
    "nothing": (lambda: lambda_layer()(), "must be called on `inputs`"),
    "none": (lambda: conv()(None), "must be called on `inputs`"),
    "query_by_name": (
        lambda: lambda_layer()(query=_TEXT, value=_TEXT),
        "`query`.*`inputs` are the queries",
    ),
    "rows_of_different_lengths": (
        lambda: lambda_layer()([[[1.0], [2.0]], [[1.0]]]),
        "`inputs`.*equal lengths",
    ),
    "mask_of_different_lengths": (
        lambda: lambda_layer()(_TEXT, context_mask=[[1, 1], [1]]),
        "`context_mask`.*equal lengths",
    ),
    "ragged": (
        lambda: lambda_layer()(tf.ragged.constant([[[1.0]], [[1.0], [2.0]]])),
        "dense.*to_tensor",
    ),
    "causal_mask_in_a_call": (
        lambda: lambda_layer()(_TEXT, use_causal_mask=True),
        "`use_causal_mask`.*causal=True",
    ),
    "causal_mask_in_a_call_of_attention": (
        lambda: attention()(_TEXT, use_causal_mask=True),
        "`use_causal_mask`.*causal=True",
    ),
    "causal_mask_in_a_call_of_a_convolution": (
        lambda: conv()(_TEXT, use_causal_mask=True),
        "`use_causal_mask`.*padding='causal'",
    ),
    "attention_scores": (
        lambda: lambda_layer()(_TEXT, return_attention_scores=True),
        r"`return_attention_scores`.*No attention scores.*layer\.read\(",
    ),
    "attention_weights": (
        lambda: attention()(_TEXT, need_weights=True),
        "`need_weights`.*Did you mean 'return_attention_scores'",
    ),
    "constructor_argument_in_a_call": (
        lambda: lambda_layer()(_TEXT, scope=3),
        "`scope`.*belongs in the constructor",
    ),
    "misspelt_argument_of_a_call": (
        lambda: lambda_layer()(_TEXT, context_masks=_TEXT),
        "`context_masks`.*Did you mean 'context_mask'",
    ),
    "mask_for_a_convolution": (
        lambda: conv()(_TEXT, context_mask=np.ones([2, 5])),
        "`context_mask`.*has: inputs, mask",
    ),
    "argument_of_a_call_of_squeeze_excite": (
        lambda: layers.SqueezeExcite()(_MAP, axis=1),
        "`axis`.*has: inputs",
    ),
    **{
        f"{name}_built_for_sequences": (
            lambda make=make: built(make())(_MAP),
            "built for inputs with 1 spatial axis.*2",
        )
        for name, make in {
            "global": lambda_layer,
            "local": lambda: lambda_layer(scope=3),
            "convolution": conv,
            "attention": attention,
            "local_attention": lambda: attention(scope=3),
            "joint_attention": lambda: attention(position_embedding="joint"),
            "table": table,
        }.items()
    },
    "channels_of_a_convolution": (
        lambda: built(conv())(_TEXT[..., :4]),
        "8.*4|4.*8",
    ),
    "channels_of_squeeze_excite": (
        lambda: built(layers.SqueezeExcite())(_TEXT[..., :4]),
        "8.*4|4.*8",
    ),
    "longer_than_built_for": (
        lambda: built(lambda_layer())(np.zeros([1, 6, 8], "float32")),
        r"\(5,\).*\(6,\).*largest.*`scope`",
    ),
    "attention_longer_than_built_for": (
        lambda: built(attention())(np.zeros([1, 6, 8], "float32")),
        r"\(5,\).*\(6,\).*largest.*`scope`",
    ),
    "build_without_a_shape": (lambda: lambda_layer().build(), "`inputs_shape`"),
    "build_with_another_name": (
        lambda: attention().build((None, 5, 4), shape=3),
        "`inputs_shape`.*shape=",
    ),
    "build_for_several": (
        lambda: lambda_layer().build([(None, 5, 4), (None, 5, 4)]),
        "one tensor",
    ),
    "build_of_a_matrix": (lambda: conv().build((None, 5)), r"\(None, 5\)"),
    "build_of_a_table": (lambda: table().build((None, 5)), r"\(None, 5\)"),
    "plan_before_build": (lambda: lambda_layer().plan, "`plan` before it is"),
    "inference_plan_before_build": (
        lambda: conv().inference_plan,
        "`inference_plan` before it is",
    ),
    "value_dim_before_build": (lambda: lambda_layer().value_dim, "`value_dim`"),
    "key_depth_before_build": (lambda: attention().key_depth, "`key_depth`"),
    "attention_value_dim": (lambda: attention().value_dim, "`value_dim`"),
    "tables_before_build": (lambda: attention().tables(), "`tables`"),
    "state_before_build": (
        lambda: lambda_layer().state_spec(),
        "has no `state` before it is built",
    ),
    "entries_before_build": (lambda: table().entries_for((5,)), "before it is"),
}


@pytest.mark.parametrize("name", USES)
def test_use(name):
    use, message = USES[name]
    with pytest.raises(ValueError, match=re.compile(message, re.DOTALL)):
        use()


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


def test_unknown_number_of_channels():
    for layer in (lambda_layer(), conv(), attention()):
        with pytest.raises(ValueError, match="channels|last"):
            layer(tf.keras.Input([5, 7, None]))


@pytest.mark.parametrize("shape", [[None, 7], [5, None, 7], [None, None, 7]])
def test_unknown_size_under_a_global_scope(shape):
    with pytest.raises(ValueError, match=re.compile("scope.*None", re.DOTALL)):
        lambda_layer()(tf.keras.Input(shape))
    with pytest.raises(ValueError, match=re.compile("scope.*None", re.DOTALL)):
        table()(tf.keras.Input(shape))
    with pytest.raises(ValueError, match=re.compile("scope.*None", re.DOTALL)):
        attention()(tf.keras.Input(shape))
    attention(position_embedding=None)(tf.keras.Input(shape))
    lambda_layer(use_position=False)(tf.keras.Input(shape))


def test_unknown_size_for_an_algorithm_that_needs_it():
    with pytest.raises(ValueError, match="einsum.*static"):
        lambda_layer(scope=3, implementation="einsum")(
            tf.keras.Input([None, 7])
        )


def test_global_table_on_a_larger_grid():
    shared = table()
    layers.LambdaLayer(8, **_SIZE, position_embedding=shared)(
        tf.zeros([1, 5, 4])
    )
    larger = layers.LambdaLayer(8, **_SIZE, position_embedding=shared)
    with pytest.raises(ValueError, match=re.compile("9.*6", re.DOTALL)):
        larger(tf.zeros([1, 6, 4]))


@pytest.mark.parametrize("make", [lambda_layer, attention])
def test_global_layer_called_on_a_larger_image(make):
    layer = make()
    layer(tf.zeros([1, 5, 4]))
    with pytest.raises(ValueError, match=re.compile("5.*6|6.*5|9", re.DOTALL)):
        layer(tf.zeros([1, 6, 4]))


def test_other_channels_than_built_for():
    layer = lambda_layer(scope=3)
    layer(tf.zeros([1, 5, 4]))
    with pytest.raises(ValueError, match=re.compile("4.*6|6.*4", re.DOTALL)):
        layer(tf.zeros([1, 5, 6]))


def test_integers_are_accepted_as_numpy_gives_them():
    layer = layers.LambdaLayer(
        filters=np.int64(8),
        num_heads=np.int32(2),
        key_dim=np.int64(3),
        scope=np.array([3, 5]).tolist(),
    )
    assert layer(tf.zeros([1, 5, 5, 4])).shape == (1, 5, 5, 8)


def test_masks_of_unknown_sizes():
    inputs = tf.keras.Input([None, 4])
    with pytest.raises(ValueError, match="`attention_mask`.*static"):
        lambda_layer(scope=3)(inputs, attention_mask=np.ones([5, 5]))
    for layer in (attention(scope=3), attention(scope=3, axis=1)):
        with pytest.raises(ValueError, match="`attention_mask`.*static"):
            layer(inputs, attention_mask=np.ones([5, 5]))


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


# name: (what is called, what the message says)
FUNCTIONS = {
    "pattern_and_stages": (
        lambda: models.ResNet50(pattern="CCLL", stages=("C",) * 4),
        "`pattern` and `stages`.*give one",
    ),
    "parameters": (lambda: small(parameters=5), "`parameters` is not an.*5"),
    "crop": (lambda: small(evaluation_crop=-1.0), "`evaluation_crop`.*-1.0"),
    "crop_of_a_row": (
        lambda: specs.Preset(
            specs.RESNETS["ResNet50"], 25_557_032, evaluation_crop=-1.0
        ),
        "`evaluation_crop`.*-1.0",
    ),
    "two_sizes": (
        lambda: models.LambdaResNet50(
            image_size=64, input_shape=(96, 96, 3), endpoints=("c2",)
        ),
        "`image_size` would change nothing.*image_size=64.*96",
    ),
    "size_of_the_small_one": (
        lambda: models.LambdaResNetSmall(image_size=16),
        "`image_size` would change nothing.*16",
    ),
    "positional_pattern": (
        lambda: models.ResNet50("LLLL"),
        "`include_top`.*'LLLL'.*by keyword",
    ),
    "twice": (
        lambda: models.LambdaResNet50(False, include_top=True),
        "`include_top` is given twice",
    ),
    "no_size": (lambda: small(image_size=0), "`image_size`.*0"),
    "even_scope_of_a_row": (
        lambda: specs.ResNetSpec(
            "mine", ("L",), scope=4, widths=(8,), strides=(1,)
        ),
        "`scope`.*odd.*4",
    ),
    "pooling_with_a_top": (
        lambda: small(pooling="banana"),
        "`pooling`.*banana",
    ),
    "classes_without_a_top": (
        lambda: small(include_top=False, classes=-1),
        "`classes`.*-1",
    ),
    "preprocessing": (
        lambda: small(include_preprocessing="no"),
        "`include_preprocessing`.*True or False",
    ),
    "synchronized": (lambda: small(use_sync_bn=2), "`use_sync_bn`.*2"),
    "mean_of_gray_images": (
        lambda: small(image_mean=(1.0, 2.0, 3.0)),
        "`image_mean`.*color",
    ),
    "dropout_of_no_classifier": (
        lambda: small(dropout_rate=0.1, include_top=False),
        "`dropout_rate` would change nothing.*no classifier.*0.1",
    ),
    "dropout_of_feature_maps": (
        lambda: small(dropout_rate=0.1, endpoints=("c2",)),
        "`dropout_rate` would change nothing.*no classifier.*0.1",
    ),
    "num_classes": (lambda: small(num_classes=3), "Did you mean 'classes'"),
    "num_class": (lambda: small(num_class=3), "Did you mean 'classes'"),
    "pretrained": (lambda: small(pretrained=True), "Did you mean 'weights'"),
    "drop_rate": (lambda: small(drop_rate=0.1), "'dropout_rate'"),
    "built_by_name": (
        lambda: models.build("MobileNetV2", scope=3),
        "`scope` is not an argument of MobileNetV2",
    ),
    "no_spec": (lambda: models.ResNet(), "ResNet needs `spec`"),
    "name_for_a_spec": (lambda: models.ResNet("x"), "`spec`.*ResNetSpec.*'x'"),
    "weights_behind_a_layer": (behind_weights, "`weights`.*`input_tensor`"),
    "analyze_a_subclass": (
        lambda: analysis.analyze(Subclassed()),
        r"'mine'.*model.call\(images\)",
    ),
    "export_a_subclass": (
        lambda: serving.export_model(Subclassed(), "unused", "mine"),
        r"'mine'.*model.call\(images\)",
    ),
    "clone_a_subclass": (
        lambda: models.clone_network(Subclassed()),
        "functional.*'mine'",
    ),
    "analyze_no_model": (lambda: analysis.analyze("x"), "`model`.*str"),
    "analyze_without_inputs": (
        lambda: analysis.analyze(tf.keras.Sequential([conv()])),
        "functional.*without inputs",
    ),
    "no_probes": (lambda: field(probes=0), "`probes`.*0"),
    "no_examples": (lambda: field(inputs=_TEXT[:0]), "`inputs`.*none"),
    "no_layer": (lambda: field(layer=None), "`layer`.*None"),
    "field_of_an_embedding": (
        lambda: field(words(), np.zeros([2, 5], "int32")),
        "Embedding.*source='layer'",
    ),
    "part_of_an_unbuilt_layer": (
        lambda: analysis.layer_part(lambda_layer(), "content"),
        "`layer` must be built",
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name):
    use, message = FUNCTIONS[name]
    with pytest.raises(ValueError, match=re.compile(message, re.DOTALL)):
        use()


def test_a_subclass_is_wrapped_by_what_the_error_says(tmp_path):
    model, images = Subclassed(), tf.keras.Input((5, 5, 3))
    wrapped = tf.keras.Model(images, model.call(images))
    kinds = [row.kind for row in analysis.analyze(wrapped).layers]
    assert "LambdaLayer" in kinds
    options = serving.ExportOptions(classifier_activation="softmax")
    assert serving.export_model(
        wrapped, tmp_path, "mine", options=options
    ).is_dir()


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
