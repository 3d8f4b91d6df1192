"""The network for inference: images to features and logits."""

import tensorflow as tf
from tensorflow.python.framework import convert_to_constants

from lambdanet_tf import ops
from lambdanet_tf.serving.folding import fold_batch_norm

# Kernels and tables from this size on are stored in bfloat16; biases and
# other small weights keep their precision.
_BFLOAT16_ELEMENTS = 256


class Inference(tf.Module):
    """A trained classifier without anything that only training needs.

    Batch normalization is folded into the layers before it. Call it with
    float32 images `(batch, height, width, channels)` in [0, 255]; it returns
    float32 features `(batch, units)`, the inputs of the classifier, and
    float32 logits `(batch, classes)`.

    Args:
        model: a functional `tf.keras.Model` that ends in a Dense layer of
            logits or softmax probabilities.
        weights_dtype: "float32" or "bfloat16".
        implementation: algorithm of the lambda layers; None keeps theirs.
        device: key of `ops.DEVICES`. What the algorithms are planned for,
            whichever device this process has.

    Attributes:
        input_shape: (height, width, channels); None is any size.
        num_classes: of the classifier.
        compute: the same as a plain function, with float32 weights, to be
            traced for images of one batch or size, and for any `device`.
        weights: the variables that inference reads.

    Raises:
        ValueError: if the model has several inputs or ends otherwise.
    """

    def __init__(
        self,
        model: tf.keras.Model,
        weights_dtype: str = "float32",
        implementation: str | None = None,
        device: str = "cpu",
    ):
        super().__init__(name="inference")
        self.input_shape = _input_shape(model)
        classifier_of(model)  # an error here names the user's layers
        with ops.planning_for(device):
            folded = fold_batch_norm(model, implementation)
            network = _features_and_logits(folded)
        self.num_classes = network.outputs[1].shape[-1]

        # Only this function holds the Keras model: an attribute of a module
        # would be saved with it.
        def compute(images, device=device):
            with ops.planning_for(device):  # whoever traces it, and when
                features, logits = network(images, training=False)
            return tf.cast(features, tf.float32), tf.cast(logits, tf.float32)

        images = tf.TensorSpec(
            (None, *self.input_shape), tf.float32, name="images"
        )
        infer = tf.function(
            lambda images: compute(images), input_signature=[images]
        )
        if weights_dtype == "bfloat16":
            infer, weights = _with_bfloat16_weights(infer, images)
        else:
            weights = infer.get_concrete_function().graph.variables
        self.weights = list(weights)
        self.compute = compute
        self._infer = infer

    def __call__(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self._infer(images)


def classifier_of(model: tf.keras.Model) -> tf.keras.layers.Dense:
    """Returns the Dense layer that a model ends in.

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


def _input_shape(model):
    if len(model.inputs) != 1:
        raise ValueError(
            "`model` must have one input, images. Received: "
            f"{len(model.inputs)} inputs."
        )
    return tuple(model.inputs[0].shape[1:])


def _features_and_logits(model):
    """A model with two outputs: inputs and logits of the classifier."""
    head = classifier_of(model)
    head.activation = tf.keras.activations.linear
    return tf.keras.Model(model.inputs, [head.input, head.output])


def _with_bfloat16_weights(infer, images):
    """The same function, reading its large weights from bfloat16 variables.

    Args:
        infer: `tf.function` of images.
        images: its `tf.TensorSpec`.

    Returns:
        A `tf.function`, and the variables.
    """
    frozen = convert_to_constants.convert_variables_to_constants_v2(
        infer.get_concrete_function(), lower_control_flow=False
    )
    graph = frozen.graph.as_graph_def()
    variables = {}
    for node in [node for node in graph.node if _is_large_weight(node)]:
        value = tf.make_ndarray(node.attr["value"].tensor)
        variables[f"{node.name}:0"] = tf.Variable(
            tf.cast(value, tf.bfloat16), trainable=False
        )
        graph.node.remove(node)
    names = [tensor.name for tensor in frozen.outputs]

    @tf.function(input_signature=[images])
    def infer_from_bfloat16(images):
        weights = {
            name: tf.cast(variable, tf.float32)
            for name, variable in variables.items()
        }
        return tf.graph_util.import_graph_def(
            graph,
            input_map={frozen.inputs[0].name: images, **weights},
            return_elements=names,
        )

    return infer_from_bfloat16, variables.values()


def _is_large_weight(node):
    """Whether a graph node is a constant that is worth storing in bfloat16."""
    if node.op != "Const":
        return False
    tensor = node.attr["value"].tensor
    shape = tf.TensorShape(tensor.tensor_shape)
    is_float = tensor.dtype == tf.float32.as_datatype_enum
    return (
        is_float
        and shape.rank >= 2
        and shape.num_elements() >= _BFLOAT16_ELEMENTS
    )
