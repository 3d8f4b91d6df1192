"""Streaming: models that process sequences piece by piece, and generation."""

from lambdanet_tf import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
