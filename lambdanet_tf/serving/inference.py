"""The classifier for inference: images to features and logits."""

import dataclasses

import numpy as np
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import models
from lambdanet_tf import ops
from lambdanet_tf.arguments import UserError
from lambdanet_tf.models.images import PREPROCESSING
from lambdanet_tf.serving.folding import fold_batch_norm
from lambdanet_tf.serving.options import ACTIVATIONS
from lambdanet_tf.serving.options import ExportOptions

# Largest difference to Keras, relative to the largest value of an output, by
# the narrowest type that a layer computes in: float16 keeps 11 bits of a
# number, bfloat16 8.
TOLERANCE = 1e-4
TOLERANCES = {"bfloat16": 5e-2, "float16": 1e-2}


class Inference:
    """A trained classifier without anything that only training needs.

    Batch normalization is folded into the layers before it. Call it with
    images, float32 `(batch, height, width, channels)` in [0, 255]; it returns
    `features` `(batch, units)`, the inputs of the last layer, and `logits`
    `(batch, outputs)`, both float32.

    Args:
        model: a functional `tf.keras.Model` that ends in a `Dense` layer.
        options: of the export; None for the defaults.

    Attributes:
        model: the Keras model.
        options: with the activation of this classifier.
        labels: a name for each class.
        image_shape: (height, width, channels) of decoded images.
        crop: the evaluation preprocessing of encoded images.
        spec: the `tf.TensorSpec` of `images`.
        weights: the variables that inference reads.
        tolerance: largest difference to Keras that rounding explains.

    Raises:
        ValueError: if the model is no such classifier, or an option does not
            fit it.
    """

    def __init__(
        self, model: tf.keras.Model, options: ExportOptions | None = None
    ):
        options = options or ExportOptions()
        self.model = model
        self._head = _last_layer(model)
        self.options = dataclasses.replace(
            options,
            activation=_activation(self._head, options.activation),
        )
        self.labels = _labels(options.labels, self._head.units)
        size = _image_size(model, options.image_size)
        self.image_shape = *size, model.inputs[0].shape[-1]
        self.crop = data.EvaluationCrop(
            size, options.evaluation_crop, options.image_dtype
        )
        self.spec = tf.TensorSpec(model.inputs[0].shape, tf.float32, "images")
        with ops.planning_for(options.device):
            folded = fold_batch_norm(model, options.implementation)
            head = folded.get_layer(self._head.name)
            head.activation = tf.keras.activations.linear
            self._network = tf.keras.Model(
                folded.inputs, {"features": head.input, "logits": head.output}
            )
        self._infer = tf.function(self.compute).get_concrete_function(self.spec)
        self.weights = list(self._infer.graph.variables)
        self.tolerance = max(
            TOLERANCES.get(x.compute_dtype, TOLERANCE) for x in model.layers
        )

    def __call__(self, images: tf.Tensor) -> dict[str, tf.Tensor]:
        return self._infer(tf.convert_to_tensor(images, tf.float32))

    def compute(
        self, images: tf.Tensor, device: str | None = None
    ) -> dict[str, tf.Tensor]:
        """Computes the same as a plain function, planned for a device."""
        with ops.planning_for(device or self.options.device):
            outputs = self._network(images, training=False)
        return {name: tf.cast(x, tf.float32) for name, x in outputs.items()}

    def probabilities(self, logits: tf.Tensor) -> tf.Tensor:
        """Returns the probabilities of logits `(batch, outputs)`."""
        if self.options.activation == "sigmoid":
            return tf.sigmoid(logits)
        return tf.nn.softmax(logits)

    def expected_outputs(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Returns features, logits and probabilities of the Keras model."""
        head = self._head
        network = tf.keras.Model(self.model.inputs, [head.input, head.output])
        found = network.predict(np.asarray(images, np.float32), verbose=0)
        features, outputs = (np.asarray(x, np.float32) for x in found)
        if head.activation is tf.keras.activations.linear:
            logits, probabilities = outputs, self.probabilities(outputs).numpy()
        else:
            kernel, *bias = head.get_weights()
            logits = features @ kernel + (bias[0] if bias else 0.0)
            probabilities = outputs
        return {
            "features": features,
            "logits": logits,
            "probabilities": probabilities,
        }


def scores_of(probabilities: np.ndarray) -> np.ndarray:
    """Returns the score of each class; one output is that of class 1."""
    if probabilities.shape[-1] > 1:
        return probabilities
    return np.concatenate([1.0 - probabilities, probabilities], axis=-1)


def _last_layer(model):
    """Returns the layer of logits or probabilities."""
    models.check_functional(model)
    head, shape = model.layers[-1], tuple(model.inputs[0].shape)
    if (
        len(model.inputs) == len(model.outputs) == 1
        and len(shape) == 4
        and shape[-1] in (1, 3)
        and isinstance(head, tf.keras.layers.Dense)
        and len(model.outputs[0].shape) == 2
    ):
        return head
    raise UserError(
        "`model` must classify images: one input (batch, height, width, "
        "channels) of 1 or 3 channels, and a Dense layer at the end. "
        f"Received: {model.name!r}, whose inputs are {model.inputs} and whose "
        f"last layer is {head.name!r}. Export any other model by Keras' own "
        "`model.export(folder)`."
    )


def _image_size(model, wanted):
    """Returns height and width of the images of a model."""
    own = tuple(model.inputs[0].shape[1:3])
    size = wanted or own
    if None in size or (
        any(x not in (None, y) for x, y in zip(own, size, strict=True))
    ):
        raise UserError(
            "`image_size` must be that of the model, and be given for a model "
            "of any image size: (height, width) of decoded images. Received: "
            f"{wanted} for a model of images {own}."
        )
    names = [layer.name for layer in model.layers]
    if model.name in models.names() and PREPROCESSING not in names:
        raise UserError(
            "`model` must read images in [0, 255]. Received: "
            f"{model.name!r}, built with include_preprocessing=False. Build "
            "it with preprocessing, and give it the weights of this one."
        )
    return size


def _activation(head, wanted):
    """Returns the activation of a last layer, or the one that was given."""
    own = {getattr(tf.keras.activations, name): name for name in ACTIVATIONS}
    found = own.get(head.activation)
    if head.activation is tf.keras.activations.linear:
        found = wanted
    is_constant = found == "softmax" and head.units == 1
    if found is None or wanted not in (None, found) or is_constant:
        raise UserError(
            "`activation` must be that of the model's last layer, 'softmax' "
            "or 'sigmoid' ('sigmoid' for one output), and be given for a model "
            "of logits: what makes probabilities of them. Received: "
            f"activation={wanted!r} for "
            f"{head.name!r} with {head.activation.__name__!r}."
        )
    return found


def _labels(labels, num_outputs):
    """Returns a name for each class; a network of one output has two."""
    num_classes = max(num_outputs, 2)
    if labels is None:
        return tuple(map(str, range(num_classes)))
    if len(labels) != num_classes:
        raise UserError(
            f"`labels` must hold {num_classes} names, one for each class "
            f"of the model. Received: {len(labels)} names."
        )
    return labels
