"""Training: recipes, Keras' optimizers, runs that resume where they stopped.

A run from front to back is in `lambdanet_tf.training.loop`. The names of this
package are those of the stub next to this file; they are imported at their
first use, because a command line needs no TensorFlow to print its help.
"""

from lambdanet_tf import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
