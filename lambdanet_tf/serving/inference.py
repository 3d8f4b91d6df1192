"""The network for inference: images to features and logits."""

import tensorflow as tf
from tensorflow.python.framework import convert_to_constants

from lambdanet_tf import models
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
            logits, or of probabilities by softmax or sigmoid.
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
            probabilities by softmax or sigmoid.
    """
    dense, activations = None, []
    if len(model.outputs) == 1:
        dense, activations = _end(model, model.outputs[0])
    if dense is None:
        raise ValueError(
            "`model` must end in a Dense layer of logits or probabilities. "
            f"Received: {model.name!r}, whose outputs are "
            f"{[output.name for output in model.outputs]}. Any other model is "
            "exported by Keras: `model.export(folder)`."
        )
    if len(activations) > 1 or not set(activations) <= {"softmax", "sigmoid"}:
        raise ValueError(
            "`model` must end in logits, or in probabilities by one softmax "
            f"or sigmoid. Received: {' and '.join(activations)}."
        )
    return dense


def activation_of(model: tf.keras.Model, wanted: str | None = None) -> str:
    """Returns what makes probabilities of a classifier's logits.

    Args:
        model: see `Inference`.
        wanted: "softmax", "sigmoid", or None for what the model says: its own
            activation; for logits the loss that it was compiled with, or else
            a sigmoid of one output and a softmax of several.

    Raises:
        ValueError: as `classifier_of`; if the model has another activation;
            if it is a softmax of one output; if a model of one output was
            compiled with a loss of another kind.
    """
    units = classifier_of(model).units
    _, activations = _end(model, model.outputs[0])
    own = activations[0] if activations else None
    if wanted and own and wanted != own:
        raise ValueError(
            "`classifier_activation` must be the model's own, where it has "
            f"one. Received: {wanted!r} for a model that ends in {own!r}."
        )
    known = wanted or own or _activation_of_loss(model, units)
    known = known or ("sigmoid" if units == 1 else "softmax")
    if known == "softmax" and units == 1:
        raise ValueError(
            "A softmax of one output is 1, whatever the image. Received: a "
            "model of one output. Give `classifier_activation='sigmoid'` for "
            "one logit of two classes, or a Dense of 2 units."
        )
    return known


def probabilities_of(logits: tf.Tensor, activation: str) -> tf.Tensor:
    """Returns the probabilities of logits `(batch, outputs)`."""
    return (
        tf.sigmoid(logits) if activation == "sigmoid" else tf.nn.softmax(logits)
    )


def scores_of(probabilities: tf.Tensor) -> tf.Tensor:
    """Returns the score of each class `(batch, classes)`.

    They are the probabilities; one of a single output is that of class 1, and
    what is left is that of class 0.
    """
    if probabilities.shape[-1] > 1:
        return probabilities
    return tf.concat([1.0 - probabilities, probabilities], axis=-1)


def _end(model, output):
    """The Dense before an output, or None, and names of what follows it."""
    makers = {id(layer.output): layer for layer in _made_once(model)}
    layer, names = makers.get(id(output)), []
    while isinstance(
        layer, tf.keras.layers.Activation | tf.keras.layers.Softmax
    ):
        names.append(_activation_name(layer))
        layer = makers.get(id(layer.input))
    if not isinstance(layer, tf.keras.layers.Dense):
        return None, []
    names.append(_activation_name(layer))
    return layer, [name for name in names if name != "linear"]


def _made_once(model):
    """The layers that have one output."""
    for layer in model.layers:
        try:
            single = layer.output is not None
        except (AttributeError, ValueError):  # called twice, or never
            continue
        if single:
            yield layer


def _activation_name(layer):
    if isinstance(layer, tf.keras.layers.Softmax):
        return "softmax" if layer.axis == -1 else "softmax of another axis"
    for name in ("linear", "softmax", "sigmoid"):
        if layer.activation is getattr(tf.keras.activations, name):
            return name
    return getattr(layer.activation, "__name__", str(layer.activation))


def _activation_of_loss(model, units):
    """What the loss of a compiled model takes logits for, or None."""
    losses = tf.nest.flatten(getattr(model, "loss", None))
    names = [
        loss
        if isinstance(loss, str)
        else getattr(loss, "__name__", type(loss).__name__)
        for loss in losses
        if loss is not None
    ]
    plain = [name.lower().replace("_", "") for name in names]
    if any(name.startswith(("binary", "bce")) for name in plain):
        return "sigmoid"
    if any("categorical" in name for name in plain):
        return "softmax"
    if names and units == 1:
        raise ValueError(
            "A model of one output must be compiled with a binary loss to be "
            f"exported as a classifier. Received: {names[0]!r}. Give "
            "`classifier_activation='sigmoid'` if it is the logit of a class; "
            "anything else is exported by Keras: `model.export(folder)`."
        )
    return None


def _input_shape(model):
    models.check_functional(model)
    if len(model.inputs) != 1:
        raise ValueError(
            "`model` must have one input, images. Received: "
            f"{len(model.inputs)} inputs."
        )
    shape = tuple(model.inputs[0].shape)
    if len(shape) != 4:
        raise ValueError(
            "`model` must take images, (batch, height, width, channels). "
            f"Received: an input of shape {shape}. A model of text, series or "
            "volumes is exported by Keras: `model.export(folder)`."
        )
    return shape[1:]


def _features_and_logits(model):
    """A model with two outputs: inputs and logits of the classifier."""
    head = classifier_of(model)
    head.activation = tf.keras.activations.linear
    # Without a layer of an activation behind it.
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
