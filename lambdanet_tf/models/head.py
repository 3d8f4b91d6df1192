"""Classification head, pooling, or feature maps."""

import tensorflow as tf

from lambdanet_tf.arguments import one_of
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.layers import Dropout
from lambdanet_tf.models.images import check_range
from lambdanet_tf.models.pretrained import load_initial
from lambdanet_tf.models.weights import HEAD


def finish(
    inputs,
    images,
    maps,
    last,
    name,
    spec,
    *,
    include_top,
    weights,
    pooling,
    classes,
    classifier_activation,
    endpoints,
    kernel_regularizer,
):
    """Makes the model of a graph: head, and weights if given.

    Args:
        inputs: Keras inputs of the model.
        images: Keras tensor of the images, which the network begins with.
        maps: dict of the last map of each stage, `"c2"` to `"c5"`.
        last: the map that the classifier sees.
        name: of the model.
        spec: of the network.
        include_top: whether there is a classifier.
        weights: None, or what `load_initial` takes.
        pooling: without a classifier: None, `"avg"` or `"max"`.
        classes: number of classes.
        classifier_activation: of the classifier; None for logits.
        endpoints: None, or the names of the maps to return instead.
        kernel_regularizer: of the classifier.
    """
    if not isinstance(include_top, bool):
        raise ValueError(
            "`include_top` must be True or False. Received: include_top="
            f"{include_top!r}. The arguments of a network, such as `pattern`, "
            "are given by keyword."
        )
    one_of("pooling", pooling, (None, "avg", "max"))
    positive_int("classes", classes)
    _check_source(inputs, images, weights, name)
    if endpoints is not None:
        outputs = {name: maps[name] for name in _known(endpoints, maps)}
    elif include_top:
        x = _pooled(last, "avg")
        if spec.dropout_rate > 0:
            x = Dropout(spec.dropout_rate, name="dropout")(x)
        outputs = tf.keras.layers.Dense(
            classes,
            activation=classifier_activation,
            kernel_initializer=tf.keras.initializers.RandomNormal(stddev=0.01),
            kernel_regularizer=kernel_regularizer,
            dtype="float32",  # Under any precision.
            name=HEAD,
        )(x)
    else:
        outputs = last if pooling is None else _pooled(last, pooling)
    model = tf.keras.Model(inputs, outputs, name=name)
    check_range(model)
    if weights is not None:
        load_initial(model, spec, weights, _absent(endpoints, maps))
    return model


def _check_source(inputs, images, weights, name):
    """Raises a ValueError if weights would have to fit layers of somebody."""
    if weights is None or inputs is images:
        return
    before = tf.keras.Model(inputs, images)
    owners = [layer.name for layer in before.layers if layer.weights]
    if owners:
        raise ValueError(
            f"`weights` are those of {name} alone, and `input_tensor` comes "
            f"out of layers with weights. Received: an output of {owners}. "
            "Build the network by itself, and call it on the tensor: "
            f"{name}(weights=...)(input_tensor)."
        )


def _known(endpoints, maps):
    if not endpoints or set(endpoints) - set(maps):
        raise ValueError(
            f"`endpoints` must be names among {tuple(maps)}. Received: "
            f"endpoints={endpoints!r}."
        )
    return endpoints


def _pooled(x, pooling):
    if pooling == "avg":
        # tf_keras would add up half precisions in half precision.
        dtype = "float32" if tf.as_dtype(x.dtype).size < 4 else None
        return tf.keras.layers.GlobalAveragePooling2D(name="pool", dtype=dtype)(
            x
        )
    return tf.keras.layers.GlobalMaxPooling2D(name="pool")(x)


def _absent(endpoints, maps):
    """Beginnings of the names of layers that endpoints cut off."""
    if endpoints is None:
        return ()
    cut = max(list(maps).index(name) for name in endpoints)
    rest = (name.replace("c", "stage") for name in list(maps)[cut + 1 :])
    return (HEAD, *(f"{name}_" for name in rest))
