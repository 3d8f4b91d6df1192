"""Weights and outputs of timm's networks, as `tests/goldens/README.md` says."""

import functools
import pathlib
import zlib

import numpy as np

from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.models import timm_layout

TIMM_NAMES = {
    "LambdaResNet26T": "lambda_resnet26t",
    "LambdaResNet50TS": "lambda_resnet50ts",
    "LambdaResNet26RPT256": "lambda_resnet26rpt_256",
}


def outputs(name):
    """timm's outputs for the golden weights and image, by quantity."""
    path = pathlib.Path(__file__).parent / "goldens" / "timm.npz"
    prefix = f"{TIMM_NAMES[name]}/"
    with np.load(path) as archive:
        return {
            key.removeprefix(prefix): archive[key]
            for key in archive
            if key.startswith(prefix)
        }


def image(height, width):
    rng = np.random.default_rng(7)
    return rng.standard_normal((1, height, width, 3)).astype(np.float32)


def tensors(spec, classes=1000, image_size=256):
    return timm_layout.timm_tensors(spec, classes, 3, image_size)


def state_dict(spec, **arguments):
    """The golden weights of a network of timm, by its keys."""
    return {
        tensor.key: _value(tensor.key, tensor.shape)
        for tensor in tensors(spec, **arguments)
    }


@functools.cache
def weights(spec):
    """The same by our names."""
    return timm_layout.from_timm(tensors(spec), state_dict(spec), "golden")


def network(name, **arguments):
    """A published network with the golden weights, for the golden image."""
    height, width = outputs(name)["hw"]
    model = models.build(
        name,
        **{
            "input_shape": (height, width, 3),
            "classifier_activation": None,
            "include_preprocessing": False,
            "kernel_initializer": "zeros",  # quick to draw
            **arguments,
        },
    )
    models.set_weights(model, weights(specs.RESNETS[name]), "golden")
    return model


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
