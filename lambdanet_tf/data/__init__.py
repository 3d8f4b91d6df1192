"""Sets of labelled images: where they are, decoded, augmented.

The names of this package are those of the stub next to this file.
"""

from lambdanet_tf import lazy
from lambdanet_tf.data import augment as augment

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
