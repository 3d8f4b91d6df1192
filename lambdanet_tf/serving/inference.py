"""The network for inference: images to features and logits."""

import dataclasses

import numpy as np
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import models
from lambdanet_tf import ops
from lambdanet_tf.arguments import UserError
from lambdanet_tf.serving.classifier import classifier_of
from lambdanet_tf.serving.folding import fold_batch_norm
from lambdanet_tf.serving.options import ExportOptions

# Kernels and tables from this size on are stored in bfloat16; biases and
# other small weights keep their precision.
_BFLOAT16_ELEMENTS = 256


class Inference:
    """A trained classifier without anything that only training needs.

    Batch normalization is folded into the layers before it. Call it with
    float32 images `(batch, height, width, channels)` in [0, 255]; it returns
    float32 features `(batch, units)`, the inputs of the classifier, and
    float32 logits `(batch, classes)`.

    Args:
        model: a functional `tf.keras.Model` that ends in a Dense layer of
            logits, or of probabilities by softmax or sigmoid.
        options: of the export; None for the defaults.

    Attributes:
        model: the Keras model.
        classifier: its end, which makes probabilities of features.
        options: with the activation of this classifier.
        input_shape: (height, width, channels); None is any size.
        image_shape: the same of decoded images.
        crop: the evaluation preprocessing of encoded images.
        labels: a name for each class; two for one output.
        compute: the same as a plain function, with float32 weights, to be
            traced for images of one batch or size, and for any `device`.
        weights: the variables that inference reads.

    Raises:
        ValueError: if the model has several inputs or ends otherwise, or an
            option does not fit it.
    """

    def __init__(
        self, model: tf.keras.Model, options: ExportOptions | None = None
    ):
        options = options or ExportOptions()
        self.model = model
        self.input_shape = _input_shape(model)
        # Of the model, not of its folded copy: errors name the user's layers.
        self.classifier = classifier_of(model, options.classifier_activation)
        self.options = dataclasses.replace(
            options, classifier_activation=self.classifier.activation
        )
        self.labels = _labels(options.labels, self.classifier.dense.units)
        self.image_shape = _image_shape(options.image_size, self.input_shape)
        self.crop = data.EvaluationCrop(
            self.image_shape[:2], options.evaluation_crop, options.image_dtype
        )
        with ops.planning_for(options.device):
            network = _features_and_logits(
                fold_batch_norm(model, options.implementation),
                self.classifier.dense.name,
            )

        def compute(images, device=options.device):
            with ops.planning_for(device):  # whoever traces it, and when
                features, logits = network(images, training=False)
            return tf.cast(features, tf.float32), tf.cast(logits, tf.float32)

        infer = tf.function(
            lambda images: compute(images), input_signature=[self.images_spec]
        )
        concrete = infer.get_concrete_function()
        weights = list(concrete.graph.variables)
        if options.weights_dtype == "bfloat16":
            infer, weights = _with_bfloat16_weights(concrete)
        self.compute = compute
        self.weights = weights
        self._infer = infer

    def __call__(self, images: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return self._infer(images)

    @property
    def images_spec(self) -> tf.TensorSpec:
        """A batch of images."""
        return tf.TensorSpec((None, *self.input_shape), tf.float32, "images")

    def expected_outputs(
        self, images: np.ndarray | tf.Tensor
    ) -> dict[str, np.ndarray]:
        """Returns features, logits and probabilities of the Keras model.

        Args:
            images: in [0, 255].
        """
        head = self.classifier.dense
        network = tf.keras.Model(self.model.inputs, head.input)
        features = network.predict(tf.cast(images, tf.float32), verbose=0)
        kernel, *bias = head.get_weights()
        logits = features @ kernel + sum(bias)
        return {
            "features": features,
            "logits": logits,
            "probabilities": self.classifier.probabilities(logits).numpy(),
        }


def _input_shape(model):
    models.check_functional(model)
    if len(model.inputs) != 1:
        raise UserError(
            "`model` must have one input, images. Received: "
            f"{len(model.inputs)} inputs."
        )
    shape = tuple(model.inputs[0].shape)
    if len(shape) != 4:
        raise UserError(
            "`model` must take images, (batch, height, width, channels). "
            f"Received: an input of shape {shape}. A model of text, series or "
            "volumes is exported by Keras: `model.export(folder)`."
        )
    return shape[1:]


def _labels(labels, num_outputs):
    """A name for each class; two for a network of one output."""
    num_classes = max(num_outputs, 2)
    if labels is None:
        return tuple(map(str, range(num_classes)))
    if len(labels) != num_classes:
        raise UserError(
            f"`labels` must hold {num_classes} names, one for each class "
            f"of the model. Received: {len(labels)} names."
        )
    return tuple(labels)


def _image_shape(image_size, input_shape):
    """(height, width, channels) of decoded images."""
    *size, channels = input_shape
    if channels not in (1, 3):
        raise UserError(
            "`model` must take images of 1 or 3 channels. Received: an "
            f"input of shape {input_shape}."
        )
    height, width = image_size or size
    if height is None or width is None:
        raise UserError(
            "`image_size` must be given for a model of any image size: "
            "(height, width) of decoded images. Received: None."
        )
    if any(
        fixed not in (None, wanted)
        for fixed, wanted in zip(size, (height, width), strict=True)
    ):
        raise UserError(
            f"`image_size` must be the model's, {tuple(size)}. Received: "
            f"{(height, width)}."
        )
    return height, width, channels


def _features_and_logits(model, name):
    """A model of two outputs: inputs and logits of the Dense of this name."""
    head = model.get_layer(name)
    head.activation = tf.keras.activations.linear
    # Without a layer of an activation behind it.
    return tf.keras.Model(model.inputs, [head.input, head.output])


def _with_bfloat16_weights(concrete):
    """The same function, reading its large weights from bfloat16 variables.

    Args:
        concrete: the concrete function of images.

    Returns:
        A `tf.function`, and the variables that it reads.
    """
    graph = concrete.graph.as_graph_def()
    weights = {id(weight.handle): weight for weight in concrete.graph.variables}
    captured = {
        inner.op.name: outer for outer, inner in concrete.graph.captures
    }
    read_elsewhere = {
        name
        for node in graph.node
        for name in node.input
        if node.op != "ReadVariableOp"
    }
    halved = {
        name: tf.Variable(
            tf.cast(weights.pop(id(handle)), tf.bfloat16), trainable=False
        )
        for name, handle in captured.items()
        if name not in read_elsewhere and _is_large(weights.get(id(handle)))
    }
    for node in graph.node:
        if node.name in halved:  # a tensor in place of a variable
            node.attr["dtype"].type = tf.float32.as_datatype_enum
        elif node.op == "ReadVariableOp" and node.input[0] in halved:
            node.op = "Identity"
            node.attr["T"].CopyFrom(node.attr["dtype"])
            del node.attr["dtype"]
    names = [tensor.name for tensor in concrete.outputs]

    @tf.function(input_signature=concrete.structured_input_signature[0])
    def infer_from_bfloat16(images):
        capture = tf.compat.v1.get_default_graph().capture
        inputs = {
            name: tf.cast(halved[name], tf.float32)
            if name in halved
            else capture(handle)
            for name, handle in captured.items()
        }
        inputs[concrete.inputs[0].op.name] = images
        return tf.graph_util.import_graph_def(
            graph, input_map=inputs, return_elements=names
        )

    return infer_from_bfloat16, [*halved.values(), *weights.values()]


def _is_large(weight):
    """Whether a weight is worth storing in bfloat16."""
    return (
        weight is not None
        and weight.dtype == tf.float32
        and weight.shape.rank >= 2
        and weight.shape.num_elements() >= _BFLOAT16_ELEMENTS
    )
