"""Lists of arrays, such as the weights of two models."""

import numpy as np


def assert_same(actual, expected, rtol=0.0, atol=0.0):
    """Of each two; without tolerances, of all bits."""
    for now, then in zip(actual, expected, strict=True):
        np.testing.assert_allclose(now, then, rtol=rtol, atol=atol)
