"""Weights of timm's lambda networks: their names and layouts, and ours.

timm (PyTorch Image Models) builds its lambda networks, such as
`lambda_resnet26t`, as a `ByobNet` of bottleneck and self-attention blocks. The
names in its state dicts correspond to ours:

    stem.conv1.conv.weight                  stem_conv1/kernel
    stem.conv1.bn.running_mean              stem_conv1_norm/moving_mean
    stages.2.0.conv1_1x1.conv.weight        stage4_block1_conv1/kernel
    stages.2.0.conv2_kxk.conv.weight        stage4_block1_conv2/kernel
    stages.2.0.conv3_1x1.bn.weight          stage4_block1_conv3_norm/gamma
    stages.2.0.shortcut.conv.weight         stage4_block1_shortcut/kernel
    stages.2.1.self_attn.qkv.weight         stage4_block2_lambda/query/kernel,
                                            .../key/kernel, .../value/kernel
    stages.2.1.self_attn.norm_q.bias        .../query_norm/beta
    stages.2.1.self_attn.conv_lambda.weight .../position_embedding/embeddings
    stages.2.1.self_attn.conv_lambda.bias   .../position_bias
    stages.2.1.self_attn.pos_emb            .../position_embedding/embeddings
    stages.2.1.post_attn.weight             stage4_block2_lambda_norm/gamma
    head.fc.weight                          predictions/kernel

We only permute axes. timm's batch normalizations also count batches
(`num_batches_tracked`), which we ignore.
"""

import re
from collections.abc import Mapping

import numpy as np

from lambdanet_tf import specs

# From the modules of a block to our layers.
MODULES = {
    "shortcut.conv": "shortcut",
    "shortcut.bn": "shortcut_norm",
    "conv1_1x1.conv": "conv1",
    "conv1_1x1.bn": "conv1_norm",
    "conv2_kxk.conv": "conv2",
    "conv2_kxk.bn": "conv2_norm",
    "self_attn.qkv": "lambda",
    "self_attn.norm_q": "lambda/query_norm",
    "self_attn.norm_v": "lambda/value_norm",
    "self_attn.conv_lambda": "lambda",
    "self_attn": "lambda",
    "post_attn": "lambda_norm",
    "conv3_1x1.conv": "conv3",
    "conv3_1x1.bn": "conv3_norm",
}
_NORM = {
    "weight": "gamma",
    "bias": "beta",
    "running_mean": "moving_mean",
    "running_var": "moving_variance",
}
_TABLE = "position_embedding/embeddings"
_LAMBDA = {"weight": _TABLE, "bias": "position_bias", "pos_emb": _TABLE}
_PLAIN = {"weight": "kernel"}


def from_timm(
    state: Mapping[str, np.ndarray], spec: specs.ResNetSpec
) -> dict[str, np.ndarray]:
    """Converts a timm state dict to float32 arrays by our names."""
    arrays = {}
    for key, array in state.items():
        module, _, name = key.rpartition(".")
        layer, ours = _our_layer(module), _in_our_layout(array)
        if name == "num_batches_tracked":
            continue
        if module.endswith("self_attn.qkv"):
            queries = spec.num_heads * spec.key_dim
            kernels = np.split(ours[0, 0], [queries, queries + spec.key_dim], 1)
            for part, kernel in zip(
                ("query", "key", "value"), kernels, strict=True
            ):
                arrays[f"{layer}/{part}/kernel"] = kernel
            continue
        names = _PLAIN
        if layer.endswith("_norm"):
            names = _NORM
        elif layer.endswith("_lambda"):
            names = _LAMBDA
        arrays[f"{layer}/{names.get(name, name)}"] = ours
    return arrays


def _our_layer(module):
    """Returns our name for a module of timm, or its own if unknown."""
    if match := re.fullmatch(r"stages\.(\d+)\.(\d+)\.(.+)", module):
        stage, block, part = match.groups()
        prefix = f"stage{int(stage) + 2}_block{int(block) + 1}"
        return f"{prefix}_{MODULES.get(part, part)}"
    if match := re.fullmatch(r"stem\.(conv\d+)\.(conv|bn)", module):
        return f"stem_{match[1]}{'_norm' if match[2] == 'bn' else ''}"
    return "predictions" if module == "head.fc" else module


def _in_our_layout(array):
    """Permutes the axes of an array; its rank tells what it is."""
    array = np.asarray(array, np.float32)
    if array.ndim == 2:  # (outputs, inputs)
        array = array.T
    elif array.ndim == 3:  # (entries, entries, key_dim)
        array = array[..., None]
    elif array.ndim == 4:  # (outputs, inputs, height, width)
        array = array.transpose(2, 3, 1, 0)
    elif array.ndim == 5:  # (key_dim, 1, height, width, 1)
        array = array[:, 0, :, :, 0].transpose(1, 2, 0)[..., None]
    return array
