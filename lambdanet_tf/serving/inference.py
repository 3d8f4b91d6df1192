"""The classifier for inference, and the signatures that an export has of it.

Each element of a batch is decoded on its own. If one cannot be decoded, the
whole request is refused with the indices of the broken elements. The size of
an image is read from its header before memory is allocated for its pixels.
"""

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
# Images of one request that are decoded at the same time.
_PARALLEL = 4


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


# The signatures.


def save_signatures(folder: str, network: Inference) -> None:
    """Writes a SavedModel with all signatures into a folder.

    It has the variables that inference reads, and no Keras object, so it loads
    where Keras is not installed.

    A signature that is added here needs its inputs in `verify.requests_of`,
    what Keras computes for them in `verify.examples_of`, and a row on the page
    and in examples/serving/pictures.py.
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
    # Nobody differentiates an export, and TensorFlow cannot save the gradients
    # of layers where weights are cast before they are used.
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=False)
    tf.saved_model.save(module, folder, signatures, options)


def _scored(network, logits):
    """Returns what is answered for logits."""
    probabilities = network.probabilities(logits)
    # Classes are those of logits, which differ where probabilities are rounded
    # to 1.
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
    message = "these images hold values that are not finite"
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

    An error names the indices of those that cannot be decoded.
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
    message = f"these images are no JPEG or PNG of at most {max_pixels} pixels"
    with tf.control_dependencies(_assertions(decoded, message)):
        return tf.identity(images)


def _assertions(valid, message):
    """Returns assertions that a batch has images, and all are valid."""
    invalid = tf.where(~valid)[:, 0]
    return [
        tf.debugging.Assert(
            tf.size(valid) > 0, ["the batch must hold at least one image"]
        ),
        tf.debugging.Assert(
            tf.equal(tf.size(invalid), 0),
            [f"{message}, by index:", invalid],
            summarize=16,
        ),
    ]
