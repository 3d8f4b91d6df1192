"""LambdaNetworks for TensorFlow and Keras."""

__version__ = "0.1.0"
