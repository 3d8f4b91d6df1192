"""Training: recipes, Keras' optimizers, and runs that can resume.

`lambdanet_tf.training.loop` shows a run from beginning to end.
"""

from lambdanet_tf import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
