"""Signatures of an export: images, decoded or not, to classes or features.

Each element of a batch is decoded on its own. If one cannot be decoded, the
whole request is refused with the indices of the broken elements. The size of
an image is read from its header before memory is allocated for its pixels.
"""

from collections.abc import Callable

import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.serving.inference import Inference

# Images of one request that are decoded at the same time.
_PARALLEL = 4


def save(folder: str, network: Inference) -> None:
    """Writes a SavedModel with all signatures into a folder."""
    module = ServingModule(network)
    tf.saved_model.save(
        module,
        folder,
        signatures=module.signatures(),
        # Nobody differentiates an export, and TensorFlow cannot save the
        # gradients of layers where weights are cast before they are used.
        options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
    )


class ServingModule(tf.Module):
    """A classifier as a `tf.Module` with named signatures.

    It holds the variables that inference reads, and no Keras object, so it
    loads where Keras is not installed.
    """

    def __init__(self, network: Inference):
        super().__init__(name="serving")
        self._network = network  # No module: nothing of it is saved but these:
        self.weights = network.weights

    def signatures(self) -> dict[str, Callable]:
        """Returns the signatures for `tf.saved_model.save`, by name.

        One that is added here needs its inputs in `verify.requests_of`, what
        Keras computes for them in `verify.examples_of`, and a row on the page
        and in examples/serving/pictures.py.
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
        """Returns what is answered for logits."""
        probabilities = self._network.probabilities(logits)
        # Classes are those of logits, which differ where probabilities are
        # rounded to 1.
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
