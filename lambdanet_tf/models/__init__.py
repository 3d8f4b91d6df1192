"""The networks of the paper, in the manner of `keras.applications`."""

import lambdanet_tf.layers  # noqa: F401  registers its layers with Keras
from lambdanet_tf import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
