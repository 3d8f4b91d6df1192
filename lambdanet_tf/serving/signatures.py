"""Signatures of an export: from images or image files to classes or features.

Each file of a batch is decoded separately. If one cannot be decoded, the whole
request fails, and the error lists the indices of corrupt files. We read the
size of an image from its header before we allocate memory for its pixels.
"""

from collections.abc import Callable

import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.serving.inference import Inference

# Number of images of a request that are decoded in parallel.
_PARALLEL = 4


def save(folder: str, network: Inference) -> None:
    """Writes a SavedModel with all signatures into a folder."""
    module = ServingModule(network)
    tf.saved_model.save(
        module,
        folder,
        signatures=module.signatures(),
        # An export needs no gradients, and TensorFlow cannot save those of
        # layers that cast their weights.
        options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
    )


class ServingModule(tf.Module):
    """A classifier as a `tf.Module` with named signatures.

    It has the variables that inference reads, but no Keras object, so it loads
    even if Keras is not installed.
    """

    def __init__(self, network: Inference):
        super().__init__(name="serving")
        self._network = network  # Not a module, so only its weights are saved.
        self.weights = network.weights

    def signatures(self) -> dict[str, Callable]:
        """Returns the signatures for `tf.saved_model.save`, by name.

        If you add one, add its inputs to `verify.requests_of`, Keras' outputs
        to `verify.examples_of`, and a row to the page and to
        examples/serving/pictures.py.
        """
        images = self._network.spec
        files = tf.TensorSpec((None,), tf.string, "image_bytes")
        return {
            name: tf.function(function).get_concrete_function(spec)
            for name, function, spec in (
                ("serving_default", self._of_images, images),
                ("serving_bytes", self._of_files, files),
                ("features", self._features, images),
            )
        }

    def _of_images(self, images):
        return self._scored(self._network(check_images(images))["logits"])

    def _of_files(self, image_bytes):
        network = self._network
        images = decode_batch(
            image_bytes,
            network.crop,
            network.image_shape[-1],
            network.options.max_pixels,
            network.options.bits,
        )
        return self._scored(network(images)["logits"])

    def _features(self, images):
        outputs = self._network(check_images(images))
        return {"features": outputs["features"]}

    def _scored(self, logits):
        """Returns the outputs of a signature, computed from logits."""
        probabilities = self._network.probabilities(logits)
        # We rank classes by logits, because several probabilities may round
        # to 1.
        scores, of_classes = probabilities, logits
        if logits.shape[-1] == 1:
            scores = tf.concat([1.0 - scores, scores], axis=-1)
            of_classes = tf.concat([tf.zeros_like(logits), logits], axis=-1)
        labels = self._network.labels
        top = min(self._network.options.top, len(labels))
        scores, indices = tf.math.top_k(scores, top)
        return {
            "logits": logits,
            "probabilities": probabilities,
            "classes": tf.argmax(of_classes, axis=-1),
            "top_labels": tf.gather(tf.constant(labels), indices),
            "top_probabilities": scores,
        }


def check_images(images: tf.Tensor) -> tf.Tensor:
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
