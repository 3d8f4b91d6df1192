"""Weights that a network begins with: published ones, or those of a file."""

import os
from collections.abc import Sequence

import tensorflow as tf

from lambdanet_tf import specs
from lambdanet_tf.models.fashion_mnist import FASHION_MNIST
from lambdanet_tf.models.fashion_mnist import read_fashion_mnist
from lambdanet_tf.models.sizes import fit_tables
from lambdanet_tf.models.timm import weight_names
from lambdanet_tf.models.timm.expressible import check_expressible
from lambdanet_tf.models.timm.hub import IMAGENET_CLASSES
from lambdanet_tf.models.timm.hub import PUBLISHED
from lambdanet_tf.models.timm.hub import read_published
from lambdanet_tf.models.timm.safetensors import read_safetensors
from lambdanet_tf.models.weight_names import HEAD
from lambdanet_tf.models.weight_names import named_weights
from lambdanet_tf.models.weight_names import set_weights
from lambdanet_tf.models.weights import as_path
from lambdanet_tf.models.weights import existing
from lambdanet_tf.models.weights import read_weights


def load_initial(
    model: tf.keras.Model,
    spec: specs.ResNetSpec | specs.MobileNetSpec,
    weights: str | os.PathLike,
    skip: Sequence[str] = (),
) -> None:
    """Sets the weights that `weights=` of a builder names, or none and raises.

    The classifier of published weights is left out of a network with another
    number of classes. Tables of a global scope are cropped to a smaller map,
    exactly, and interpolated, with a warning, to a larger one.

    Args:
        model: what the builder has built.
        spec: of the network.
        weights: "imagenet", "fashion_mnist", a `.safetensors` file of timm, or
            what `load_weights` takes.
        skip: beginnings of the names of weights that the model lacks.

    Raises:
        ValueError: if there are no such weights, or they do not fit.
        OSError: if published weights cannot be fetched.
    """
    arrays, origin = read_initial(spec, weights)
    ours = named_weights(model)
    if _is_other_classifier(ours, arrays, weights == FASHION_MNIST):
        skip = (*skip, f"{HEAD}/")
    set_weights(model, fit_tables(model, arrays), origin, skip)


def read_initial(spec, weights):
    """Reads what `weights=` names.

    Returns:
        Arrays by our names, and where they are from, for messages.

    Raises:
        ValueError: see `load_initial`.
        OSError: likewise.
    """
    weights = as_path(weights)
    if weights == "imagenet":
        return _published(spec)
    if weights == FASHION_MNIST:
        return read_fashion_mnist(spec)
    if not weights.endswith(".safetensors"):
        return read_weights(weights)
    tensors = weight_names.timm_tensors(spec)
    state = read_safetensors(existing(weights))
    return weight_names.from_timm(tensors, state, weights), weights


def _published(spec):
    """The arrays of published weights."""
    if spec.name not in PUBLISHED:
        raise ValueError(
            "`weights='imagenet'` is there for the networks "
            f"{', '.join(PUBLISHED)}. Received: {spec.name}. The paper's "
            "author published no weights."
        )
    check_expressible(spec)
    state, path = read_published(spec.name)
    tensors = weight_names.timm_tensors(specs.RESNETS[spec.name])
    return weight_names.from_timm(tensors, state, path), path


def _is_other_classifier(ours, arrays, published):
    """Whether a classifier is a published one, and the model's another."""
    key, imagenet = f"{HEAD}/bias", (IMAGENET_CLASSES,)
    if key not in ours or key not in arrays:
        return False
    shape = arrays[key].shape
    return (published or shape == imagenet) and shape != tuple(ours[key].shape)
