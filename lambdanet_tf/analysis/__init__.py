"""Tools that count what models cost, and show what their layers learned."""

from lambdanet_tf import lazy

__getattr__, __dir__, __all__ = lazy.attach(__name__, __file__)
