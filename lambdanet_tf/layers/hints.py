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
    + ("size_per_head", "head_size", "qk_ratio"),
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
    "return_attention_scores": ("need_weights", "output_attentions"),
}

_CAUSAL = ("causal", "causal_mask", "use_causal_mask", "is_causal")

# Of layers with `filters`: what to do in place of which arguments.
_REMEDIES = {
    "A layer has no classes: follow it with a Dense layer of so many units": (
        *("num_classes", "classes", "n_classes"),
    ),
    "Use `LambdaConv`, which has it; this layer keeps the sizes of its maps": (
        *("padding", "strides", "stride", "dilation_rate", "dilation"),
    ),
    "Follow the layer with an Activation layer": ("activation",),
    "Nothing is dropped inside: follow the layer with `Dropout`": (
        *("dropout", "dropout_rate", "attn_drop", "attention_dropout"),
        *("proj_drop", "drop_rate", "recurrent_dropout"),
    ),
    "Give causal=True to the constructor": _CAUSAL,
    "Outputs have a position for each of the inputs: for one of all, follow "
    "with GlobalAveragePooling1D": ("return_sequences", "return_state"),
    "The projections have no bias: batch normalization follows or adds one": (
        *("use_bias", "bias", "qkv_bias", "bias_initializer"),
        *("bias_regularizer", "bias_constraint", "out_bias"),
    ),
    "The values of a head have `filters / num_heads` channels: give "
    "`filters`": ("value_dim", "dim_v", "v_dim"),
    "Leave it out: the channels of the inputs are read from the inputs": (
        *("dim", "in_channels", "input_channels"),
    ),
    "Leave it out: the sizes of a map are read from the inputs, and "
    "scope=None is global": ("n", "m", "feat_size", "input_size"),
    "Each projection has its own: `query_initializer`, `key_initializer`, "
    "`value_initializer`": ("kernel_initializer", "depthwise_initializer"),
    "Layers take inputs channels last: put a Permute layer before and after": (
        "data_format",
    ),
    "No attention scores are formed; those that are implied: layer.read("
    "inputs, position)": (
        *("return_attention_scores", "need_weights", "output_attentions"),
    ),
    "`inputs` are the queries, and `context` is what keys and values are made "
    "of: layer(query, context=value)": (
        *("query", "key", "value", "queries", "keys", "values"),
    ),
    "All heads share keys and values": (*("num_key_value_heads", "groups"),),
}
# The same where it differs, by layer.
_REMEDIES_OF = {
    "LambdaConv": {"Give padding='causal' to the constructor": _CAUSAL},
    "RelativeAttention": {
        "Attention keeps the sizes of its maps: follow it with "
        "AveragePooling2D": (
            *("padding", "strides", "stride", "dilation_rate", "dilation"),
        ),
        "Every head has keys and values of its own": ("groups",),
    },
    "Dropout": {
        "Draws follow tf.keras.utils.set_random_seed": ("seed",),
        "To drop whole branches use `StochasticDepth`": ("noise_shape",),
    },
    "StochasticDepth": {
        "It is 1 - `rate`": ("survival_probability",),
        "Draws follow tf.keras.utils.set_random_seed": ("seed",),
    },
    "SqueezeExcite": {
        "It is 1 / `ratio`": (
            *("reduction", "reduction_ratio", "squeeze_factor"),
        ),
        "Channels are those of the inputs; the bottleneck has `ratio` times as "
        "many": ("filters", "units", "channels", "bottleneck_filters"),
    },
    "RelativePositionEmbedding": {
        "`scope` is how many relative positions there are": ("max_distance",),
        "Leave it out: sizes are read from the inputs": ("input_length",),
        "It is `key_dim`": ("output_dim",),
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
    for remedy, arguments in _REMEDIES_OF.get(layer, {}).items():
        if name in arguments:
            return f" {remedy}."
    for argument, synonyms in _SYNONYMS.items():
        if argument in names and name in synonyms:
            return f" Did you mean {argument!r}?"
    if layer in ("LambdaLayer", "LambdaConv", "RelativeAttention"):
        for remedy, arguments in _REMEDIES.items():
            if name in arguments:
                return f" {remedy}."
    return did_you_mean(name, names)
