"""Initial weights of a network: published ones, or those of a file."""

import os
import pathlib
from collections.abc import Sequence

import tensorflow as tf

from lambdanet_tf import specs
from lambdanet_tf.models.tables import fit_tables
from lambdanet_tf.models.timm.hub import PUBLISHED
from lambdanet_tf.models.timm.hub import read_published
from lambdanet_tf.models.timm.safetensors import read_safetensors
from lambdanet_tf.models.timm.weight_names import from_timm
from lambdanet_tf.models.weight_names import named_weights
from lambdanet_tf.models.weights import HEAD
from lambdanet_tf.models.weights import read_weights
from lambdanet_tf.models.weights import set_weights

_IMAGENET_CLASSES = 1000
# From the name of the network to a file of this package.
_FASHION_MNIST = {
    "LambdaResNetSmall28": pathlib.Path(__file__).with_name("fashion_mnist.npz")
}
_PUBLISHED = {"imagenet": PUBLISHED, "fashion_mnist": _FASHION_MNIST}


def load_initial(
    model: tf.keras.Model,
    spec: specs.ResNetSpec | specs.MobileNetSpec,
    weights: str | os.PathLike,
    skip: Sequence[str] = (),
) -> None:
    """Sets the weights that a builder's `weights` names, all or none."""
    weights = os.fspath(weights)
    arrays, origin = _read(spec, weights)
    if _is_other_classifier(model, arrays, weights == "fashion_mnist"):
        skip = (*skip, f"{HEAD}/")
    set_weights(model, fit_tables(model, arrays), origin, skip)


def _read(spec, weights):
    """Returns arrays by our names, and their origin for messages."""
    if weights in _PUBLISHED and spec.name not in _PUBLISHED[weights]:
        raise ValueError(
            f"`weights={weights!r}` exists only for the networks "
            f"{', '.join(_PUBLISHED[weights])}. Received: {spec.name}."
        )
    if weights == "fashion_mnist":
        return read_weights(_FASHION_MNIST[spec.name])
    if weights == "imagenet":
        state, path = read_published(spec.name)
        return from_timm(state, specs.RESNETS[spec.name]), path
    if weights.endswith(".safetensors"):
        return from_timm(read_safetensors(weights), spec), weights
    return read_weights(weights)


def _is_other_classifier(model, arrays, is_published):
    """Returns whether a published classifier does not fit the model's."""
    key = f"{HEAD}/bias"
    ours, theirs = named_weights(model), arrays.get(key)
    if key not in ours or theirs is None:
        return False
    is_published = is_published or len(theirs) == _IMAGENET_CLASSES
    return is_published and len(theirs) != ours[key].shape[0]
