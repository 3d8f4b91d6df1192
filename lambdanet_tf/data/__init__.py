"""Sets of labelled images: finds, decodes and augments them.

The stub next to this file lists the names of this package.
"""

from lambdanet_tf import lazy
from lambdanet_tf.data import augment as augment

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
