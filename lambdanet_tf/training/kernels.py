"""The variables behind weights: their size, and which are kernels."""

from lambdanet_tf import layers

_TABLES = (layers.RelativePositionEmbedding,)


def decayed_weights(model):
    """The kernels of a model: the weights that weight decay pulls to zero.

    Every trainable weight of two or more axes is a kernel, except the position
    embeddings, of which the paper says nothing: a table entry is used at few
    positions, and the paper starts it at a scale of 1 on purpose.

    Args:
        model: built `tf.keras.Model`.

    Returns:
        A list of weights.
    """
    tables = set()
    for layer in model._flatten_layers():
        if isinstance(layer, _TABLES) and hasattr(layer, "embeddings"):
            tables.add(id(raw_variable(layer.embeddings)))
    return [
        weight
        for weight in model.trainable_weights
        if len(weight.shape) > 1 and id(raw_variable(weight)) not in tables
    ]


def raw_variable(weight):
    """The TensorFlow variable of a weight of either Keras."""
    # The type is asked: asking a variable of several machines for an attribute
    # that it lacks makes it read its value, which takes all of them.
    return weight.value if hasattr(type(weight), "path") else weight


def size_in_bytes(weights):
    """The memory of weights or variables; their values are not read."""
    variables = [raw_variable(weight) for weight in weights]
    return sum(v.shape.num_elements() * v.dtype.size for v in variables)
