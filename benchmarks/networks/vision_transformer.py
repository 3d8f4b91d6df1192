"""Vision transformers of Keras' own layers, for the comparison of networks.

Dosovitskiy et al. (2021), arXiv:2010.11929, in the sizes of Touvron et al.
(2021), arXiv:2012.12877: patches of 16 pixels, a class token, learned
positions, blocks with normalization first. Keras has the attention but no such
network.
"""

import tensorflow as tf

PATCH = 16
DEPTH = 12


class Tokens(tf.keras.layers.Layer):
    """Puts a class token before the patches, and adds their positions."""

    def build(self, input_shape):
        length, width = input_shape[1:]
        self.token = self.add_weight(
            name="token", shape=(1, 1, width), initializer="zeros"
        )
        self.positions = self.add_weight(
            name="positions",
            shape=(1, length + 1, width),
            initializer=tf.keras.initializers.RandomNormal(stddev=0.02),
        )
        super().build(input_shape)

    def call(self, patches):
        token = tf.cast(self.token, patches.dtype)
        batch = tf.shape(patches)[0]
        tokens = tf.tile(token, [batch, 1, 1])
        positions = tf.cast(self.positions, patches.dtype)
        return tf.concat([tokens, patches], axis=1) + positions

    def compute_output_shape(self, input_shape):
        batch, length, width = input_shape
        return batch, length + 1, width


def DeiTSmall(**arguments):  # noqa: N802 - as in keras.applications
    return vision_transformer("DeiTSmall", 384, 6, **arguments)


def DeiTBase(**arguments):  # noqa: N802
    return vision_transformer("DeiTBase", 768, 12, **arguments)


def vision_transformer(
    name,
    width,
    heads,
    weights=None,
    input_shape=(224, 224, 3),
    classes=1000,
    classifier_activation="softmax",
):
    """Builds a vision transformer, with the arguments of Keras' applications.

    Images are in [0, 255]; there are no weights but random ones.
    """
    if weights is not None:
        raise ValueError(f"`weights` must be None. Received: {weights!r}.")
    layers = tf.keras.layers
    images = tf.keras.Input(input_shape)
    x = layers.Rescaling(1 / 127.5, offset=-1.0)(images)
    x = layers.Conv2D(width, PATCH, strides=PATCH)(x)
    patches = (input_shape[0] // PATCH) * (input_shape[1] // PATCH)
    x = layers.Reshape((patches, width))(x)
    x = Tokens()(x)
    for _ in range(DEPTH):
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        y = layers.MultiHeadAttention(heads, width // heads)(y, y)
        x = layers.Add()([x, y])
        y = layers.LayerNormalization(epsilon=1e-6)(x)
        y = layers.Dense(4 * width, activation="gelu")(y)
        x = layers.Add()([x, layers.Dense(width)(y)])
    x = layers.LayerNormalization(epsilon=1e-6)(x)
    x = layers.Dense(classes, activation=classifier_activation)(x[:, 0])
    return tf.keras.Model(images, x, name=name)
