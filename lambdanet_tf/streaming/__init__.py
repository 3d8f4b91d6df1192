"""Streaming: whole models called piece by piece, and text that they write."""

from lambdanet_tf import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
