"""Weights in timm's layout, drawn by NumPy: the tests' golden ones.

They stand in for the published weights where nothing can be fetched. Each array
is drawn from a seed that its name gives, see `tests/goldens/README.md`.
"""

import re
import zlib

import numpy as np

from lambdanet_tf import models
from lambdanet_tf.environment import require
from lambdanet_tf.models.timm.weight_names import MODULES

_MODULES = {ours: theirs for theirs, ours in MODULES.items()}
_WEIGHTS = {
    "kernel": "weight",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "moving_variance": "running_var",
}


def state_dict(spec, classes=1000, image_size=256):
    """The state dict of a network of timm.

    Args:
        spec: `ResNetSpec` of the network.
        classes: of its classifier.
        image_size: of its color images, for the tables of a global scope.

    Returns:
        Arrays by timm's names.
    """
    model = models.ResNet(
        spec,
        input_shape=(image_size, image_size, 3),
        classes=classes,
        kernel_initializer="zeros",  # quick to draw
    )
    shapes = {}
    for name, weight in models.named_weights(model).items():
        key, shape = _in_timm(name, tuple(weight.shape), spec.scope)
        if key.endswith("qkv.weight"):  # one kernel for three of ours
            before = shapes.get(key, (0,))
            shape = (before[0] + shape[0], *shape[1:], 1, 1)
        shapes[key] = shape
        if key.endswith("running_var"):
            module = key.removesuffix("running_var")
            shapes[f"{module}num_batches_tracked"] = ()
    return {key: _value(key, shape) for key, shape in shapes.items()}


def write(path, spec, **arguments):
    """Writes them as a file like the published ones; returns its path."""
    save_file = require("safetensors.numpy", extra="pretrained").save_file
    save_file(state_dict(spec, **arguments), path, metadata={"format": "pt"})
    return path


def _in_timm(name, shape, scope):
    """Returns timm's name and shape of one of our weights."""
    layer, weight = name.split("/", 1)
    if layer == "predictions":
        return f"head.fc.{_WEIGHTS.get(weight, weight)}", shape[::-1]
    if stem := re.fullmatch(r"stem_(conv\d+)(_norm)?", layer):
        module = f"stem.{stem[1]}.{'bn' if stem[2] else 'conv'}"
        return f"{module}.{_WEIGHTS[weight]}", _shape(shape)
    stage, block, layer = re.fullmatch(
        r"stage(\d+)_block(\d+)_(.+)", layer
    ).groups()
    module = f"stages.{int(stage) - 2}.{int(block) - 1}"
    if layer == "lambda":
        *inside, weight = weight.split("/")
        if inside and inside[0] in ("query", "key", "value"):
            return f"{module}.self_attn.qkv.weight", shape[::-1]
        if weight in ("embeddings", "position_bias"):
            return _table(f"{module}.self_attn", weight, shape, scope)
        layer = "/".join(["lambda", *inside])
    return f"{module}.{_MODULES[layer]}.{_WEIGHTS[weight]}", _shape(shape)


def _table(module, weight, shape, scope):
    """The same of a table of positions, or of its bias."""
    if weight == "position_bias":
        return f"{module}.conv_lambda.bias", shape
    rows, columns, key_dim, _ = shape
    if scope is None:
        return f"{module}.pos_emb", (rows, columns, key_dim)
    return f"{module}.conv_lambda.weight", (key_dim, 1, rows, columns, 1)


def _shape(shape):
    if len(shape) < 4:
        return shape
    height, width, inputs, outputs = shape
    return outputs, inputs, height, width


def _value(key, shape):
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    if key.endswith("num_batches_tracked"):
        return np.zeros(shape, np.int64)
    if key.endswith("running_var"):
        value = rng.uniform(0.5, 1.5, shape)
    elif key.endswith(("running_mean", ".bias")):
        value = 0.1 * rng.standard_normal(shape)
    elif len(shape) == 1:
        value = rng.uniform(0.5, 1.5, shape)
    elif key.endswith("pos_emb") or "conv_lambda" in key:
        value = 0.05 * rng.standard_normal(shape)
    else:
        value = rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
    return value.astype(np.float32)
