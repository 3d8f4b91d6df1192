"""How a gradient becomes a step: the update rules, without any state.

A rule is a function of the gradient g, the rate r, the momentum u, the number
of the update t (from 1) and its own slots; it returns what is subtracted from
the weights, and the new slots.
"""

import tensorflow as tf

_RMS_DECAY = 0.9
_RMS_EPSILON = 1e-3
_ADAM_SECOND = 0.999
_ADAM_EPSILON = 1e-8


def sgd(g, rate, momentum, t, m):
    """Momentum: m <- u m + g; the step is r m."""
    del t
    m = momentum * m + g
    return rate * m, (m,)


def rmsprop(g, rate, momentum, t, s, m):
    """Scaled: s <- 0.9 s + 0.1 g^2; m <- u m + r g / sqrt(s + 0.001).

    The step is m. The paper does not state the constants; these are those of
    the EfficientNet recipes, where s starts at 1 as well.
    """
    del t
    s = _RMS_DECAY * s + (1.0 - _RMS_DECAY) * tf.square(g)
    m = momentum * m + rate * g / tf.sqrt(s + _RMS_EPSILON)
    return m, (s, m)


def adam(g, rate, momentum, t, m, s):
    """Adaptive: m <- u m + (1 - u) g; s <- 0.999 s + 0.001 g^2.

    The step is r (m / (1 - u^t)) / (sqrt(s / (1 - 0.999^t)) + 1e-8).
    """
    m = momentum * m + (1.0 - momentum) * g
    s = _ADAM_SECOND * s + (1.0 - _ADAM_SECOND) * tf.square(g)
    mean = m / (1.0 - tf.pow(momentum, t))
    scale = tf.sqrt(s / (1.0 - tf.pow(_ADAM_SECOND, t))) + _ADAM_EPSILON
    return rate * mean / scale, (m, s)


# Each rule with its slots and what they start from.
RULES = {
    "sgd": (sgd, {"momentum": 0.0}),
    "rmsprop": (rmsprop, {"mean_square": 1.0, "momentum": 0.0}),
    "adam": (adam, {"momentum": 0.0, "mean_square": 0.0}),
}
