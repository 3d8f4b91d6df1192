"""The classifier for inference, and the signatures that an export has of it.

Each file of a batch is decoded separately. If one cannot be decoded, the whole
request fails, and the error lists the indices of corrupt files. We read the
size of an image from its header before we allocate memory for its pixels.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf import models
from lambdanet_tf import ops
from lambdanet_tf.arguments import UserError
from lambdanet_tf.models import graph
from lambdanet_tf.models.images import PREPROCESSING
from lambdanet_tf.serving.folding import fold_batch_norm
from lambdanet_tf.serving.options import ACTIVATIONS
from lambdanet_tf.serving.options import ExportOptions

# Largest difference from Keras, relative to the largest value of an output. It
# depends on the narrowest dtype of the layers: float16 keeps 11 bits of a
# number, bfloat16 8.
TOLERANCE = 1e-4
TOLERANCES = {"bfloat16": 5e-2, "float16": 1e-2}
# Number of images of a request that are decoded in parallel.
_PARALLEL = 4


class Inference:
    """A trained classifier without the parts that only training needs.

    Batch normalization is folded into the layers before it. Call it with
    images, float32 `(batch, height, width, channels)` in [0, 255]. It returns
    `features` `(batch, units)`, the inputs of the last layer, and `logits`
    `(batch, outputs)`, both float32.

    Args:
        model: a functional `tf.keras.Model` that ends in a `Dense` layer.
        options: the export options; None for the defaults.

    Attributes:
        model: the Keras model.
        options: the options, with the activation of this classifier.
        labels: a name for each class.
        image_shape: (height, width, channels) of decoded images.
        crop: the evaluation preprocessing of encoded images.
        spec: the `tf.TensorSpec` of `images`.
        weights: the variables that inference reads.
        tolerance: largest difference from Keras that rounding explains.

    Raises:
        ValueError: if the model is not such a classifier, or if an option does
            not fit it.
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
        """Computes the same outputs, planned for a device."""
        with ops.planning_for(device or self.options.device):
            outputs = self._network(images, training=False)
        return {name: tf.cast(x, tf.float32) for name, x in outputs.items()}

    def probabilities(self, logits: tf.Tensor) -> tf.Tensor:
        """Converts logits `(batch, outputs)` to probabilities."""
        if self.options.activation == "sigmoid":
            return tf.sigmoid(logits)
        return tf.nn.softmax(logits)

    def expected_outputs(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Returns features, logits and probabilities of the Keras model."""
        *_, (_, head, call) = graph.calls(self.model)
        features = graph.symbolic(graph.arguments_of(call))
        ends = [*features, *self.model.outputs]
        network = tf.keras.Model(self.model.inputs, ends)
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
    """Returns the score of each class; a single output scores class 1."""
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
        "`model` must classify images: it needs one input (batch, height, "
        "width, channels) with 1 or 3 channels, and a Dense layer at the end. "
        f"Received: {model.name!r} with the inputs {model.inputs} and the last "
        f"layer {head.name!r}. To export any other model, use Keras' own "
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
            "`image_size` must be the (height, width) of the model's images. "
            "Set it if the model takes images of any size. Received: "
            f"{wanted} for a model with images of size {own}."
        )
    names = [layer.name for layer in model.layers]
    if model.name in models.names() and PREPROCESSING not in names:
        raise UserError(
            "`model` must take images in [0, 255]. Received: "
            f"{model.name!r}, built with include_preprocessing=False. Build "
            "it with preprocessing, and load the same weights."
        )
    return size


def _activation(head, wanted):
    """Returns the activation of the last layer, or `wanted` for logits."""
    own = {getattr(tf.keras.activations, name): name for name in ACTIVATIONS}
    found = own.get(head.activation)
    if head.activation is tf.keras.activations.linear:
        found = wanted
    is_constant = found == "softmax" and head.units == 1
    if found is None or wanted not in (None, found) or is_constant:
        raise UserError(
            "`activation` must be 'softmax' or 'sigmoid' ('sigmoid' for one "
            "output), as in the last layer. If this returns logits ('linear'), "
            "pass options=ExportOptions(activation='softmax'). Received: "
            f"{wanted!r} for {head.name!r} with {head.activation.__name__!r}."
        )
    return found


def _labels(labels, num_outputs):
    """Returns a name for each class; a network with one output has two."""
    num_classes = max(num_outputs, 2)
    if labels is None:
        return tuple(map(str, range(num_classes)))
    if len(labels) != num_classes:
        raise UserError(
            f"`labels` must contain {num_classes} name(s), one for each class "
            f"of the model. Received: {len(labels)} name(s)."
        )
    return labels


# The signatures.


def save_signatures(folder: str, network: Inference) -> None:
    """Writes a SavedModel with all signatures into a folder.

    It has the variables that inference reads, and no Keras object, so it loads
    where Keras is not installed.

    If you add one, add its inputs to `verify.requests_of`, Keras' outputs to
    `verify.examples_of`, and a row to the page and to
    examples/serving/pictures.py.
    """

    def of_images(images):
        return _scored(network, network(_checked(images))["logits"])

    def of_files(image_bytes):
        channels, options = network.image_shape[-1], network.options
        pixels = options.max_pixels, options.bits
        images = decode_batch(image_bytes, network.crop, channels, *pixels)
        return _scored(network, network(images)["logits"])

    def features(images):
        return {"features": network(_checked(images))["features"]}

    files = tf.TensorSpec((None,), tf.string, "image_bytes")
    signatures = {
        name: tf.function(function).get_concrete_function(spec)
        for name, function, spec in (
            ("serving_default", of_images, network.spec),
            ("serving_bytes", of_files, files),
            ("features", features, network.spec),
        )
    }
    module = tf.Module()
    module.weights = network.weights
    # An export needs no gradients, and TensorFlow cannot save those of layers
    # that cast their weights.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(module, folder, signatures, options)


def _scored(network, logits):
    """Returns the outputs of a signature, computed from logits."""
    probabilities = network.probabilities(logits)
    # We rank classes by logits, because several probabilities may round to 1.
    scores, of_classes = probabilities, logits
    if logits.shape[-1] == 1:
        scores = tf.concat([1.0 - scores, scores], axis=-1)
        of_classes = tf.concat([tf.zeros_like(logits), logits], axis=-1)
    top = min(network.options.top, len(network.labels))
    scores, indices = tf.math.top_k(scores, top)
    return {
        "logits": logits,
        "probabilities": probabilities,
        "classes": tf.argmax(of_classes, axis=-1),
        "top_labels": tf.gather(tf.constant(network.labels), indices),
        "top_probabilities": scores,
    }


def _checked(images: tf.Tensor) -> tf.Tensor:
    """Clips images to [0, 255] and rejects NaN, infinity and empty batches."""
    finite = tf.reduce_all(tf.math.is_finite(images), axis=[1, 2, 3])
    message = "these images contain NaN or infinity"
    with tf.control_dependencies(_assertions(finite, message)):
        return tf.clip_by_value(images, 0.0, 255.0)


def decode_batch(
    strings: tf.Tensor,
    crop: data.EvaluationCrop,
    channels: int,
    max_pixels: int,
    bits: int = 16,
) -> tf.Tensor:
    """Decodes JPEG and PNG files `(batch,)` to images of one size.

    An error lists the indices of files that cannot be decoded.
    """
    shape = (*crop.size, channels)

    def decode_one(string):
        image = data.EncodedImage(string, channels, max_pixels, bits)
        pixels = tf.cast(crop(image), tf.float32)
        return tf.ensure_shape(pixels, shape), True

    def attempt(string):
        # Only a dataset can catch an error inside a graph.
        decoded = tf.data.Dataset.from_tensors(string).map(decode_one)
        failed = tf.data.Dataset.from_tensors((tf.zeros(shape), False))
        caught = decoded.ignore_errors(log_warning=False)
        return caught.concatenate(failed).take(1).get_single_element()

    images, decoded = tf.map_fn(
        attempt,
        strings,
        fn_output_signature=(
            tf.TensorSpec(shape, tf.float32),
            tf.TensorSpec([], tf.bool),
        ),
        parallel_iterations=_PARALLEL,
    )
    message = f"these are not JPEG or PNG files of at most {max_pixels} pixels"
    with tf.control_dependencies(_assertions(decoded, message)):
        return tf.identity(images)


def _assertions(valid, message):
    """Returns assertions that a batch has images, and that all are valid."""
    invalid = tf.where(~valid)[:, 0]
    return [
        tf.debugging.Assert(
            tf.size(valid) > 0, ["the batch must have at least one image"]
        ),
        tf.debugging.Assert(
            tf.equal(tf.size(invalid), 0),
            [f"{message}, by index:", invalid],
            summarize=16,
        ),
    ]
