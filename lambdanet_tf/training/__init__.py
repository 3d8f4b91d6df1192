"""Training: recipes, Keras' optimizers, runs that resume where they stopped.

`lambdanet_tf.training.loop` has a run from front to back.
"""

from lambdanet_tf import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
