"""LambdaNetworks for TensorFlow and Keras."""

from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf import ops

__all__ = ["layers", "models", "ops"]
__version__ = "0.1.0"
