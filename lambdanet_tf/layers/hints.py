"""What to write in place of an argument of another library."""

from collections.abc import Iterable

from lambdanet_tf.arguments import did_you_mean

# An argument, and what Keras, timm, lucidrains' layers and PyTorch call it.
_SYNONYMS = {
    "filters": ("units", "dim_out", "out_dim", "out_channels", "out_features")
    + ("output_dim", "output_shape", "embed_dim", "d_model", "hidden_size"),
    "num_heads": ("heads", "n_heads", "num_head", "n_head", "nhead")
    + ("num_query_heads",),
    "key_dim": ("dim_k", "dim_head", "qk_dim", "head_dim", "dim_key")
    + ("size_per_head", "head_size"),
    "intra_depth": ("dim_u", "u"),
    "scope": ("r", "kernel_size", "window_size", "window", "local_context")
    + ("receptive_field", "kernel"),
    "kernel_size": ("r", "scope", "window_size", "window", "size", "kernel"),
    "strides": ("stride",),
    "dilation_rate": ("dilation",),
    "axis": ("attention_axes",),
    "norm_momentum": ("momentum", "bn_momentum"),
    "norm_epsilon": ("epsilon", "eps", "bn_epsilon"),
    "rate": ("p", "prob", "drop_prob", "drop_rate", "drop_path_rate")
    + ("dropout", "dropout_rate"),
    "ratio": ("rd_ratio", "se_ratio", "squeeze_ratio"),
    "attention_mask": ("attn_mask", "masks"),
    "context_mask": ("key_padding_mask", "padding_mask", "value_mask")
    + ("key_mask", "src_key_padding_mask"),
    "context": ("memory", "encoder_hidden_states", "kv"),
    "mask": ("query_mask",),
}

_CONV = "Use `LambdaConv`, which has it; this layer keeps the sizes of its maps"
_DENSE = "A layer has no classes: follow it with a Dense layer of so many units"
_DROPOUT = "Nothing is dropped inside: follow the layer with `Dropout`"
_CHANNELS = "Leave it out: the channels of the inputs are read from the inputs"
_SIZES = (
    "Leave it out: the sizes of a map are read from the inputs, and "
    "scope=None is global"
)
_VALUES = (
    "The values of a head have `filters / num_heads` channels: give `filters`"
)
_BIAS = "The projections have no bias: batch normalization follows or adds one"
_SEQUENCES = (
    "Outputs have a position for each of the inputs: for one of all, follow "
    "with GlobalAveragePooling1D"
)
_KERNELS = (
    "Each projection has its own: `query_initializer`, `key_initializer`, "
    "`value_initializer`"
)
_CHANNELS_LAST = (
    "Layers take inputs channels last: put a Permute layer before and after"
)
_STRIDED_ATTENTION = (
    "Attention keeps the sizes of its maps: follow it with AveragePooling2D"
)
_SCORES = "No attention scores are formed that could be returned"
_QUERIES = (
    "`inputs` are the queries, and `context` is what keys and values are made "
    "of: layer(query, context=value)"
)
_SHARED = "All heads share keys and values, unless multi_head=True"
_CAUSAL_LAYER = "Give causal=True to the constructor"
_CAUSAL_CONV = "Give padding='causal' to the constructor"

# Of layers with `filters`, by argument: what to do in place of it.
_REMEDIES = {
    **dict.fromkeys(("num_classes", "classes", "n_classes"), _DENSE),
    **dict.fromkeys(("padding", "strides", "stride"), _CONV),
    **dict.fromkeys(("dilation_rate", "dilation"), _CONV),
    "activation": "Follow the layer with an Activation layer",
    **dict.fromkeys(("dropout", "dropout_rate", "attn_drop"), _DROPOUT),
    **dict.fromkeys(("attention_dropout", "proj_drop"), _DROPOUT),
    **dict.fromkeys(("drop_rate", "recurrent_dropout"), _DROPOUT),
    **dict.fromkeys(("use_causal_mask", "is_causal"), _CAUSAL_LAYER),
    **dict.fromkeys(("causal", "causal_mask"), _CAUSAL_LAYER),
    **dict.fromkeys(("return_sequences", "return_state"), _SEQUENCES),
    **dict.fromkeys(("use_bias", "bias", "qkv_bias"), _BIAS),
    **dict.fromkeys(("bias_initializer", "bias_regularizer"), _BIAS),
    **dict.fromkeys(("bias_constraint", "out_bias"), _BIAS),
    **dict.fromkeys(("value_dim", "dim_v", "v_dim"), _VALUES),
    **dict.fromkeys(("dim", "in_channels", "input_channels"), _CHANNELS),
    **dict.fromkeys(("n", "m", "feat_size", "input_size"), _SIZES),
    "kernel_initializer": _KERNELS,
    "depthwise_initializer": _KERNELS,
    "data_format": _CHANNELS_LAST,
    "return_attention_scores": _SCORES,
    **dict.fromkeys(("need_weights", "output_attentions"), _SCORES),
    **dict.fromkeys(("query", "key", "value"), _QUERIES),
    **dict.fromkeys(("queries", "keys", "values"), _QUERIES),
    **dict.fromkeys(("num_key_value_heads", "groups"), _SHARED),
}
# The same where it differs, by layer.
_REMEDIES_OF = {
    "LambdaConv": dict.fromkeys(
        ("causal", "causal_mask", "use_causal_mask", "is_causal"), _CAUSAL_CONV
    ),
    "RelativeAttention": {
        **dict.fromkeys(("padding", "strides", "stride"), _STRIDED_ATTENTION),
        **dict.fromkeys(("dilation_rate", "dilation"), _STRIDED_ATTENTION),
        "groups": "Every head has keys and values of its own",
    },
    "Dropout": {
        "seed": "Draws follow tf.keras.utils.set_random_seed",
        "noise_shape": "To drop whole branches use `StochasticDepth`",
    },
    "StochasticDepth": {
        "survival_probability": "It is 1 - `rate`",
        "seed": "Draws follow tf.keras.utils.set_random_seed",
    },
    "SqueezeExcite": {
        **dict.fromkeys(
            ("reduction", "reduction_ratio", "squeeze_factor"),
            "It is 1 / `ratio`",
        ),
        **dict.fromkeys(
            ("filters", "units", "channels", "bottleneck_filters"),
            "Channels are those of the inputs; the bottleneck has `ratio` "
            "times as many",
        ),
    },
    "RelativePositionEmbedding": {
        "max_distance": "`scope` is how many relative positions there are",
        "input_length": "Leave it out: sizes are read from the inputs",
        "output_dim": "It is `key_dim`",
    },
}


def instead_of(name: str, layer: str, names: Iterable[str]) -> str:
    """Returns " Did you mean ...?" or another remedy, or "".

    Args:
        name: of an argument that a layer does not have.
        layer: the name of its class.
        names: what it does have.
    """
    names = list(names)
    own = _REMEDIES_OF.get(layer, {})
    if remedy := own.get(name):
        return f" {remedy}."
    for argument, synonyms in _SYNONYMS.items():
        if argument in names and name in synonyms:
            return f" Did you mean {argument!r}?"
    remedy = _REMEDIES.get(name)
    if remedy and layer in ("LambdaLayer", "LambdaConv", "RelativeAttention"):
        return f" {remedy}."
    return did_you_mean(name, names)
