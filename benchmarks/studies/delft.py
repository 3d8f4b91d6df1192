"""Two defects of the CIFAR-10 study of Delft, to measure what each costs.

De Alvear Cardenas and de Vries (2021), github.com/joigalcar3/LambdaNetworks,
reported a ResNet-50 with lambda layers 3.2 points below the plain one on
CIFAR-10. `tests/layers/test_delft.py` compares their code's outputs with the
right formulas. `benchmarks.studies.fashion` trains with these two:

`MixedPixels`: images come channels first, `(b, d, height, width)`, and are
reshaped to `(b, n, d)` where they should be transposed, so that a "position"
is a run of pixels of one channel or of a few (lambda_layer.py, `forward`).

`INVERTED_DECAY`: the normalizations of the network got TensorFlow's decay of
0.9999 as PyTorch's momentum, which is one minus a decay (resnet_lambda.py):
what is kept is the last batch.
"""

import contextlib

import tensorflow as tf

from lambdanet_tf.models import blocks

INVERTED_DECAY = 1e-4


@tf.keras.utils.register_keras_serializable(package="benchmarks")
class MixedPixels(tf.keras.layers.Layer):
    """Reshapes maps as that code does: channels first, without a transpose.

    `(batch, height, width, channels)` -> the same shape, where the channels
    of a position are numbers that follow each other in memory when channels
    come first.
    """

    def call(self, inputs):
        channels_first = tf.transpose(inputs, [0, 3, 1, 2])
        return tf.reshape(channels_first, [-1, *inputs.shape[1:]])


def mixing_lambda_layer(x, name, block):
    """A lambda layer of a block, behind mixed pixels."""
    x = MixedPixels(name=f"{block.name}_mixed_pixels")(x)
    return blocks.lambda_layer(x, name, block)


@contextlib.contextmanager
def mixing_lambda_blocks():
    """Builds networks whose lambda layers mix pixels and channels."""
    right = blocks.MIDDLES["L"]
    blocks.MIDDLES["L"] = right._replace(function=mixing_lambda_layer)
    try:
        yield
    finally:
        blocks.MIDDLES["L"] = right
