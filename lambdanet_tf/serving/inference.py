"""The network as a function of tensors: images to features and logits."""

import tensorflow as tf
from tensorflow.python.framework import convert_to_constants

from lambdanet_tf.serving.folding import fold_batch_norm

# What is halved: kernels and tables of this size. Biases keep their precision.
HALVED_ELEMENTS = 256


class Inference(tf.Module):
    """A trained network without anything that only training needs.

    Call it with float32 images; it returns float32 `(features, logits)`: what
    the classifier sees, and what it says. `compute` is the same as a plain
    function, with float32 weights and for images of any batch and size.

    Args:
        model: a functional `tf.keras.Model` that ends in a Dense layer of
            logits or softmax probabilities.
        weights_dtype: "float32" or "bfloat16".
        implementation: the algorithm of the lambda layers; None for theirs.
    """

    def __init__(self, model, weights_dtype="float32", implementation=None):
        super().__init__(name="inference")
        self.input_shape = tuple(_only_input(model).shape[1:])
        images = tf.TensorSpec(
            (None, *self.input_shape), tf.float32, name="images"
        )
        network = _features_and_logits(model, implementation)

        def compute(images):
            features, logits = network(images, training=False)
            return tf.cast(features, tf.float32), tf.cast(logits, tf.float32)

        infer = tf.function(compute, input_signature=[images])
        if weights_dtype == "bfloat16":
            infer, weights = _with_half_weights(infer, images)
        else:
            weights = infer.get_concrete_function().graph.variables
        self.weights = list(weights)
        self.classes = network.outputs[1].shape[-1]
        self.compute = compute
        self._infer = infer

    def __call__(self, images):
        return self._infer(images)


def _only_input(model):
    if len(model.inputs) != 1:
        raise ValueError(
            "`model` must have one input, images. Received: "
            f"{len(model.inputs)} inputs."
        )
    return model.inputs[0]


def classifier_of(model):
    """The Dense layer that a model ends in.

    Raises:
        ValueError: if it ends in anything else, or in neither logits nor
            softmax probabilities.
    """
    last = [
        layer
        for layer in model.layers
        if isinstance(layer, tf.keras.layers.Dense)
        and layer.output is model.outputs[0]
    ]
    if len(model.outputs) != 1 or not last:
        raise ValueError(
            "`model` must end in a Dense layer of logits or softmax "
            f"probabilities. Received: {model.name!r}, whose outputs are "
            f"{[output.name for output in model.outputs]}."
        )
    allowed = tf.keras.activations.linear, tf.keras.activations.softmax
    if last[0].activation not in allowed:
        raise ValueError(
            "`model` must end in logits or softmax probabilities. Received: "
            f"the activation {last[0].activation.__name__!r}."
        )
    return last[0]


def _features_and_logits(model, implementation):
    """A folded copy of a classifier, with what its last layer sees."""
    classifier_of(model)
    folded = fold_batch_norm(model, implementation)
    head = classifier_of(folded)
    head.activation = tf.keras.activations.linear
    return tf.keras.Model(folded.inputs, [head.input, head.output])


def _with_half_weights(infer, images):
    """The same function, reading its large weights from bfloat16."""
    frozen = convert_to_constants.convert_variables_to_constants_v2(
        infer.get_concrete_function(), lower_control_flow=False
    )
    graph = frozen.graph.as_graph_def()
    halved = {}
    for node in [node for node in graph.node if _is_halved(node)]:
        value = tf.make_ndarray(node.attr["value"].tensor)
        halved[f"{node.name}:0"] = tf.Variable(
            tf.cast(value, tf.bfloat16), trainable=False
        )
        graph.node.remove(node)
    names = [tensor.name for tensor in frozen.outputs]

    @tf.function(input_signature=[images])
    def infer_from_half(images):
        whole = {
            name: tf.cast(weight, tf.float32) for name, weight in halved.items()
        }
        return tf.graph_util.import_graph_def(
            graph,
            input_map={frozen.inputs[0].name: images, **whole},
            return_elements=names,
        )

    return infer_from_half, halved.values()


def _is_halved(node):
    """Whether a node holds a kernel or a table that is worth halving."""
    if node.op != "Const":
        return False
    tensor = node.attr["value"].tensor
    shape = tf.TensorShape(tensor.tensor_shape)
    is_float = tensor.dtype == tf.float32.as_datatype_enum
    return (
        is_float and shape.rank >= 2 and shape.num_elements() >= HALVED_ELEMENTS
    )
