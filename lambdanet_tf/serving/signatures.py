"""The module that is saved: signatures with names of our own."""

import tensorflow as tf

from lambdanet_tf.serving import encoded_images

CLASSIFY_METHOD = "tensorflow/serving/classify"


class ServingModule(tf.Module):
    """A network behind named signatures, as plain functions of tensors.

    The module holds the variables that the inference graph reads, the labels
    and nothing else: no optimiser and no Keras object, so it loads where
    Keras is absent.

    Args:
        network: `Inference`.
        labels_file: path of a text file with one class name per line.
        options: `ServingOptions`.
    """

    def __init__(self, network, labels_file, options):
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
        self.top = min(options.top, network.classes)
        self.options = options
        self._functions = self._signatures()

    def signatures(self):
        """Returns what `tf.saved_model.save` wants: names to functions."""
        return dict(self._functions)

    def _signatures(self):
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
        compiled = {
            name: tf.function(function, input_signature=[spec])
            for name, (function, spec) in functions.items()
        }
        if self.options.xla:
            compiled["serving_default_xla"] = tf.function(
                self._serving_default_xla, input_signature=[images]
            )
        return compiled

    def _serving_default(self, images):
        images = encoded_images.check_images(images)
        return self._answer(self.network(images)[1])

    def _serving_default_xla(self, images):
        network = tf.function(self.network, jit_compile=True)
        images = encoded_images.check_images(images)
        return self._answer(network(images)[1])

    def _serving_bytes(self, image_bytes):
        images = self._decode(encoded_images.decode_batch, image_bytes)
        return self._answer(self.network(images)[1])

    def _classify(self, inputs):
        images = self._decode(encoded_images.decode_examples, inputs)
        answer = self._answer(self.network(images)[1])
        return {
            "classes": answer["top_labels"],
            "scores": answer["top_probabilities"],
        }

    def _features(self, images):
        images = encoded_images.check_images(images)
        return {"features": self.network(images)[0]}

    def _decode(self, decoder, strings):
        return decoder(
            strings,
            self.options.crop(self.network.input_shape),
            self.network.input_shape[-1],
            self.options.max_pixels,
        )

    def _answer(self, logits):
        probabilities = tf.nn.softmax(logits)
        scores, indices = tf.math.top_k(probabilities, self.top)
        return {
            "logits": logits,
            "probabilities": probabilities,
            "classes": tf.argmax(logits, axis=-1),
            "top_labels": self.labels.lookup(tf.cast(indices, tf.int64)),
            "top_probabilities": scores,
        }
