"""Signatures of an export: tensors or encoded images to classes.

Each element of a batch is decoded on its own. If one cannot be decoded, the
whole request is refused with the indices of the broken elements. The size of
an image is read from its header before memory is allocated for its pixels.
"""

import pathlib
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from lambdanet_tf import data
from lambdanet_tf.serving.inference import Inference
from lambdanet_tf.serving.inference import probabilities_of
from lambdanet_tf.serving.inference import scores_of
from lambdanet_tf.serving.options import ExportOptions

CLASSIFY_METHOD = "tensorflow/serving/classify"
ENCODED_FEATURE = "image/encoded"

# Images of one request that are decoded at the same time.
_PARALLEL = 4


class ServingModule(tf.Module):
    """A classifier as a `tf.Module` with named signatures.

    It holds the variables that inference reads and the labels, and no Keras
    object, so it loads where Keras is not installed.

    Args:
        network: the classifier.
        labels_file: a text file with one class name per line.
        options: of the export, with a `classifier_activation`.
    """

    def __init__(
        self,
        network: Inference,
        labels_file: pathlib.Path,
        options: ExportOptions,
    ):
        super().__init__(name="serving")
        self.network = network
        self.labels_file = tf.saved_model.Asset(str(labels_file))
        self.labels = tf.lookup.StaticHashTable(
            tf.lookup.TextFileInitializer(
                self.labels_file.asset_path,
                tf.int64,
                tf.lookup.TextFileIndex.LINE_NUMBER,
                tf.string,
                tf.lookup.TextFileIndex.WHOLE_LINE,
            ),
            default_value="",
        )
        self.top = min(options.top, max(network.num_classes, 2))
        self.options = options
        self._functions = self._traced()

    def signatures(self) -> dict[str, Any]:
        """Returns the signatures for `tf.saved_model.save`, by name."""
        return dict(self._functions)

    def _traced(self):
        images = tf.TensorSpec(
            (None, *self.network.input_shape), tf.float32, name="images"
        )

        def strings(name):
            return tf.TensorSpec((None,), tf.string, name=name)

        functions = {
            "serving_default": (self._serving_default, images),
            "serving_bytes": (self._serving_bytes, strings("image_bytes")),
            "classify": (self._classify, strings("inputs")),
            "features": (self._features, images),
        }
        if self.options.xla:
            functions["serving_default_xla"] = (
                self._serving_default_xla,
                images,
            )
        return {
            name: tf.function(function, input_signature=[spec])
            for name, (function, spec) in functions.items()
        }

    def _serving_default(self, images):
        return self._outputs(self.network(check_images(images))[1])

    def _serving_default_xla(self, images):
        network = tf.function(self.network, jit_compile=True)
        return self._outputs(network(check_images(images))[1])

    def _serving_bytes(self, image_bytes):
        images = self._decode(decode_batch, image_bytes)
        return self._outputs(self.network(images)[1])

    def _classify(self, inputs):
        images = self._decode(decode_examples, inputs)
        outputs = self._outputs(self.network(images)[1])
        return {
            "classes": outputs["top_labels"],
            "scores": outputs["top_probabilities"],
        }

    def _features(self, images):
        return {"features": self.network(check_images(images))[0]}

    def _decode(self, decoder, strings):
        return decoder(
            strings,
            self.options.crop(self.network.input_shape),
            self.network.input_shape[-1],
            self.options.max_pixels,
        )

    def _outputs(self, logits):
        probabilities = probabilities_of(
            logits, self.options.classifier_activation
        )
        # Of logits, which differ where probabilities are rounded to 1.
        of_classes = logits
        if logits.shape[-1] == 1:
            of_classes = tf.concat([tf.zeros_like(logits), logits], axis=-1)
        scores, indices = tf.math.top_k(scores_of(probabilities), self.top)
        return {
            "logits": logits,
            "probabilities": probabilities,
            "classes": tf.argmax(of_classes, axis=-1),
            "top_labels": self.labels.lookup(tf.cast(indices, tf.int64)),
            "top_probabilities": scores,
        }


def check_images(images: tf.Tensor) -> tf.Tensor:
    """Clips images to [0, 255] and rejects NaN, infinity and empty batches.

    Args:
        images: float32 `(batch, height, width, channels)`.

    Raises:
        tf.errors.InvalidArgumentError: when run; it names the indices of the
            images that are not finite.
    """
    finite = tf.reduce_all(tf.math.is_finite(images), axis=[1, 2, 3])
    message = "these images hold values that are not finite"
    with tf.control_dependencies(_assertions(finite, message)):
        return tf.clip_by_value(images, 0.0, 255.0)


def decode_batch(
    encoded: tf.Tensor,
    crop: data.EvaluationCrop,
    channels: int,
    max_pixels: int,
) -> tf.Tensor:
    """Decodes a batch of JPEG and PNG images to one size.

    Args:
        encoded: string `(batch,)`.
        crop: evaluation preprocessing.
        channels: 1 for gray, 3 for color; images are converted.
        max_pixels: largest height times width of an image.

    Returns:
        float32 `(batch, height, width, channels)` in [0, 255].

    Raises:
        tf.errors.InvalidArgumentError: when run; it names the indices of the
            images that cannot be decoded.
    """

    def preprocess(image_bytes):
        pixels = crop(data.EncodedImage(image_bytes, channels, max_pixels))
        return tf.cast(pixels, tf.float32)

    shape = (*crop.size, channels)
    return _map_or_refuse(preprocess, encoded, shape, max_pixels)


def decode_examples(
    serialized: tf.Tensor,
    crop: data.EvaluationCrop,
    channels: int,
    max_pixels: int,
) -> tf.Tensor:
    """Decodes the images of a batch of serialized `tf.train.Example`.

    Args:
        serialized: string `(batch,)`; each example has the feature
            `image/encoded`, a JPEG or PNG image.
        crop: as for `decode_batch`, and so are the rest.
        channels: see there.
        max_pixels: see there.

    Returns:
        As `decode_batch`.

    Raises:
        tf.errors.InvalidArgumentError: as `decode_batch`.
    """
    features = {ENCODED_FEATURE: tf.io.FixedLenFeature([], tf.string)}

    def preprocess(example):
        parsed = tf.io.parse_single_example(example, features)
        image = data.EncodedImage(parsed[ENCODED_FEATURE], channels, max_pixels)
        return tf.cast(crop(image), tf.float32)

    shape = (*crop.size, channels)
    return _map_or_refuse(preprocess, serialized, shape, max_pixels)


def _map_or_refuse(
    preprocess: Callable, elements: tf.Tensor, shape: tuple, max_pixels: int
) -> tf.Tensor:
    """Maps a function over a batch and names the elements on which it fails."""

    def attempt(element):
        # Only a dataset can catch an error inside a graph.
        decoded = tf.data.Dataset.from_tensors(element).map(
            lambda element: (tf.ensure_shape(preprocess(element), shape), True)
        )
        failed = tf.data.Dataset.from_tensors((tf.zeros(shape), False))
        caught = decoded.ignore_errors(log_warning=False)
        return caught.concatenate(failed).take(1).get_single_element()

    images, decoded = tf.map_fn(
        attempt,
        elements,
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
    """Assertions that a batch is not empty and all of its images are valid."""
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
