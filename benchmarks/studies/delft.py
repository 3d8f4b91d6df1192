"""Two defects of the CIFAR-10 study of Delft, to measure what each costs.

De Alvear Cardenas and de Vries (2021), github.com/joigalcar3/LambdaNetworks,
reported a ResNet-50 with lambda layers 3.2 points below the plain one on
CIFAR-10. `tests/layers/test_delft.py` compares their code's outputs with the
right formulas. `benchmarks.studies.fashion` trains with two of them.
"""

import contextlib

import tensorflow as tf

from lambdanet_tf.models import blocks

# Normalizations got TensorFlow's decay of 0.9999 as PyTorch's momentum, which
# is one minus a decay (resnet_lambda.py): what is kept is the last batch.
INVERTED_DECAY = 1e-4


@tf.keras.utils.register_keras_serializable(package="benchmarks")
class MixedPixels(tf.keras.layers.Layer):
    """Reshapes maps as that code does: channels first, without a transpose.

    A "position" is a run of pixels of one channel or of a few (lambda_layer.py,
    `forward`).
    """

    def call(self, inputs):
        channels_first = tf.transpose(inputs, [0, 3, 1, 2])
        return tf.reshape(channels_first, [-1, *inputs.shape[1:]])


def mixing_lambda_layer(x, name, block):
    x = MixedPixels(name=f"{block.name}_mixed_pixels")(x)
    return blocks.lambda_layer(x, name, block)


@contextlib.contextmanager
def mixing_lambda_blocks():
    right = blocks.MIDDLES["L"]
    blocks.MIDDLES["L"] = right._replace(function=mixing_lambda_layer)
    try:
        yield
    finally:
        blocks.MIDDLES["L"] = right
