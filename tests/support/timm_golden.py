"""Weights and outputs of timm's networks, as `tests/goldens/README.md` says."""

import dataclasses
import functools
import pathlib

import numpy as np

from examples.golden_weights import state_dict
from lambdanet_tf.models.timm import PUBLISHED
from lambdanet_tf.models.timm.weight_names import from_timm
from tests.support import networks

TIMM_NAMES = {
    name: x.timm_name.partition(".")[0] for name, x in PUBLISHED.items()
}


def outputs(name):
    """timm's outputs for the golden weights and image, by quantity."""
    path = pathlib.Path(__file__).parents[1] / "goldens" / "timm.npz"
    with np.load(path) as file:
        keys = [key.split("/") for key in file]
        return {k: file[f"{n}/{k}"] for n, k in keys if n == TIMM_NAMES[name]}


def image(height, width):
    rng = np.random.default_rng(7)
    return rng.standard_normal((1, height, width, 3)).astype(np.float32)


@functools.cache
def weights(spec):
    return from_timm(state_dict(spec), spec)


# Networks of `ResNet` that timm has, too, each another part of its layout.
TINY = dataclasses.replace(
    networks.TINY,
    stem_filters=(8, 16),
    stem_strides=(2, 1),
    stem_pool=True,
    shortcut="conv",
    num_heads=2,
    use_position_bias=True,
    lambda_pool=2,
    norm_epsilon=1e-5,
    padding="symmetric",
)
VARIANTS = {
    "local": {},
    "global": {"use_position_bias": False, "scope": None},
    "strided_stem": {"stem_pool": False, "stem_strides": (2, 2)},
    "convolutions": dict(
        stages=("CC", "C"), widths=(8, 24), strides=(1, 2), expansion=2
    ),
}
