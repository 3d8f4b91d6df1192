"""Weights in timm's layout, drawn by NumPy: the tests' golden ones.

They stand in for the published weights where nothing can be fetched. Each array
is drawn from a seed that its name gives, see `tests/goldens/README.md`.
"""

import zlib

import numpy as np

from lambdanet_tf.models.timm import weight_names as timm_names
from lambdanet_tf.models.timm.safetensors import write_safetensors


def state_dict(spec, classes=1000, image_size=256):
    """The state dict of a network of timm.

    Args:
        spec: `ResNetSpec` of the network.
        classes: of its classifier.
        image_size: of its color images, for the tables of a global scope.

    Returns:
        Arrays by timm's names.
    """
    tensors = timm_names.timm_tensors(spec, classes, 3, image_size)
    return {tensor.key: _value(tensor.key, tensor.shape) for tensor in tensors}


def write(path, spec):
    """Writes them as a file like the published ones; returns its path."""
    write_safetensors(path, state_dict(spec))
    return path


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
