"""What every layer of this package does before anything else."""

import tensorflow as tf


class BaseLayer(tf.keras.layers.Layer):
    """A Keras layer that refuses tensors of the other Keras.

    A Keras 3 layer accepts a symbolic tensor of tf_keras without a word, and
    the model then does not own the layer's weights.
    """

    def __call__(self, inputs, *args, **kwargs):
        for tensor in tf.nest.flatten((inputs, args, kwargs)):
            _refuse_foreign(tensor, self.name)
        return super().__call__(inputs, *args, **kwargs)


def _keras_of(cls):
    """Which Keras a class comes from: "keras", "tf_keras", or None."""
    root = cls.__module__.split(".")[0]
    return root if root in ("keras", "tf_keras") else None


def _refuse_foreign(tensor, name):
    ours = _keras_of(tf.keras.layers.Layer)
    theirs = _keras_of(type(tensor))
    if theirs not in (None, ours):
        raise ValueError(
            f"Layer {name!r} is a layer of {ours} (what `tf.keras` is in this "
            f"process) and cannot take a tensor of {theirs}. Build the whole "
            "model with `tf.keras`; to use tf_keras, set the environment "
            "variable TF_USE_LEGACY_KERAS=1 before TensorFlow is imported."
        )
