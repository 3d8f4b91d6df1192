"""The module that is saved: signatures with names of our own."""

import tensorflow as tf


class ServingModule(tf.Module):
    """A model behind named signatures, as plain functions of tensors.

    The module holds the variables that the inference graph reads and nothing
    else: no optimiser and no Keras object, so it loads where Keras is absent.

    Args:
        model: a `tf.keras.Model` from images in [0, 255] to logits.
    """

    def __init__(self, model):
        super().__init__(name="serving")
        images = tf.TensorSpec(
            (None, *model.input_shape[1:]), tf.float32, name="images"
        )

        @tf.function(input_signature=[images])
        def logits(images):
            return tf.cast(model(images, training=False), tf.float32)

        @tf.function(input_signature=[images])
        def serving_default(images):
            answer = logits(images)
            return {
                "logits": answer,
                "probabilities": tf.nn.softmax(answer),
                "classes": tf.argmax(answer, axis=-1),
            }

        self.weights = list(logits.get_concrete_function().graph.variables)
        self.serving_default = serving_default

    def signatures(self):
        """Returns what `tf.saved_model.save` wants: names to functions."""
        return {"serving_default": self.serving_default}
