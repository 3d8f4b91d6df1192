"""Signatures of an export: tensors by name, or images to classes.

Each element of a batch is decoded on its own. If one cannot be decoded, the
whole request is refused with the indices of the broken elements. The size of
an image is read from its header before memory is allocated for its pixels.
"""

import functools
import pathlib
import tempfile
from collections.abc import Callable

import tensorflow as tf
from tensorflow.python.saved_model import fingerprinting_utils

from lambdanet_tf import data
from lambdanet_tf.serving.classifier import ImageClassifier
from lambdanet_tf.serving.classifier import scores_of
from lambdanet_tf.serving.inference import Inference
from lambdanet_tf.serving.standalone import XLA_SIGNATURE

LABELS_FILE = "labels.txt"
CLASSIFY_METHOD = "tensorflow/serving/classify"
ENCODED_FEATURE = "image/encoded"

# Images of one request that are decoded at the same time.
_PARALLEL = 4


def save(folder: pathlib.Path, network: Inference) -> None:
    """Writes a SavedModel with all signatures into a version folder."""
    with tempfile.TemporaryDirectory() as scratch:
        module = ServingModule(network)
        if network.classifier is not None:
            module = ImageModule(
                network, network.classifier, pathlib.Path(scratch, LABELS_FILE)
            )
        tf.saved_model.save(
            module,
            str(folder),
            signatures=module.signatures(),
            # Nobody differentiates an export, and TensorFlow cannot save the
            # gradients of layers where weights are cast before they are used.
            options=tf.saved_model.SaveOptions(
                experimental_custom_gradients=False
            ),
        )
    if network.classifier is None:
        return
    v1 = tf.compat.v1.saved_model.signature_def_utils
    methods = v1.MethodNameUpdater(str(folder))
    methods.replace_method_name("classify", CLASSIFY_METHOD)
    methods.save()
    # `tf.saved_model.save` wrote that of the file before this change. No public
    # function writes it.
    fingerprinting_utils.write_fingerprint(str(folder))


class ServingModule(tf.Module):
    """A network as a `tf.Module` with named signatures.

    It holds the variables that inference reads, and no Keras object, so it
    loads where Keras is not installed.

    Args:
        network: for inference.
    """

    def __init__(self, network: Inference):
        super().__init__(name="serving")
        self.network = network  # No module: nothing of it is saved but these:
        self.weights = network.weights
        self.tables = network.tables

    def signatures(self) -> dict[str, Callable]:
        """Returns the signatures for `tf.saved_model.save`, by name."""
        return {
            name: tf.function(function).get_concrete_function(**specs)
            for name, (function, specs) in self._functions().items()
        }

    def _functions(self):
        """A function and the specs of its inputs for each signature."""
        network, specs = self.network, self.network.specs
        default = functools.partial(self._answer, network)
        if not network.options.xla:
            return {"serving_default": (default, specs)}
        compiled = functools.partial(self._answer, network.compiled())
        return {
            "serving_default": (default, specs),
            XLA_SIGNATURE: (compiled, specs),
        }

    def _answer(self, network, /, **inputs):
        """What the network, compiled or not, answers."""
        return network(**inputs)


class ImageModule(ServingModule):
    """A classifier of images, which decodes them and names their classes.

    Args:
        network: for inference.
        classifier: its own.
        labels_file: to write: a text file with one class name per line.
    """

    def __init__(
        self,
        network: Inference,
        classifier: ImageClassifier,
        labels_file: pathlib.Path,
    ):
        super().__init__(network)
        self.classifier = classifier
        text = "\n".join(classifier.labels) + "\n"
        labels_file.write_text(text, encoding="utf-8")
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

    def _functions(self):
        strings = tf.TensorSpec((None,), tf.string)
        return {
            **super()._functions(),
            "serving_bytes": (self._of_bytes, {"image_bytes": strings}),
            "classify": (self._classify, {"inputs": strings}),
            "features": (self._features, self.network.specs),
        }

    def _answer(self, network, /, **inputs):
        return self._scored(network(images=check_images(**inputs)))

    def _of_bytes(self, image_bytes):
        return self._scored(self.network(images=self._decode(image_bytes)))

    def _classify(self, inputs):
        images = self._decode(inputs, image_of_example)
        outputs = self._scored(self.network(images=images))
        return {
            "classes": outputs["top_labels"],
            "scores": outputs["top_probabilities"],
        }

    def _features(self, images):
        outputs = self.network(images=check_images(images))
        return {"features": outputs["features"]}

    def _decode(self, strings, image_of=tf.identity):
        return decode_batch(
            strings,
            self.classifier.crop,
            self.classifier.image_shape[-1],
            self.network.options.max_pixels,
            image_of,
        )

    def _scored(self, outputs):
        """What is answered for the outputs of the network."""
        logits = outputs["logits"]
        probabilities = self.classifier.probabilities(logits)
        # Of logits, which differ where probabilities are rounded to 1.
        of_classes = logits
        if logits.shape[-1] == 1:
            of_classes = tf.concat([tf.zeros_like(logits), logits], axis=-1)
        scores = scores_of(probabilities)
        top = min(self.network.options.top, len(self.classifier.labels))
        scores, indices = tf.math.top_k(scores, top)
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
    strings: tf.Tensor,
    crop: data.EvaluationCrop,
    channels: int,
    max_pixels: int,
    image_of: Callable[[tf.Tensor], tf.Tensor] = tf.identity,
) -> tf.Tensor:
    """Decodes a batch of JPEG and PNG images to one size.

    Args:
        strings: `(batch,)`.
        crop: evaluation preprocessing.
        channels: 1 for gray, 3 for color; images are converted.
        max_pixels: largest height times width of an image.
        image_of: function from one of the strings to an encoded image.

    Returns:
        float32 `(batch, height, width, channels)` in [0, 255].

    Raises:
        tf.errors.InvalidArgumentError: when run; it names the indices of the
            images that cannot be decoded.
    """
    shape = (*crop.size, channels)

    def decode_one(string):
        image = data.EncodedImage(image_of(string), channels, max_pixels)
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


def image_of_example(serialized: tf.Tensor) -> tf.Tensor:
    """Returns the encoded image of a serialized `tf.train.Example`."""
    features = {ENCODED_FEATURE: tf.io.FixedLenFeature([], tf.string)}
    return tf.io.parse_single_example(serialized, features)[ENCODED_FEATURE]


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
