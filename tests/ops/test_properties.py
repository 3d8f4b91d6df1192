"""What lambda layers are, each property one sentence of the paper.

None of these needs the reference: they hold for the right function whatever
its numbers, and each fails for some layer that only looks right.
"""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import ops
from tests.support import checks
from tests.support.random_layers import built
from tests.support.random_layers import copy_weights
from tests.support.random_layers import normal

pytestmark = pytest.mark.once

_SIZE = {"filters": 10, "num_heads": 2, "key_dim": 3}


@pytest.mark.parametrize("implementation", ops.implementations(2))
def test_scope_that_covers_the_map_is_global(implementation, rng):
    x = normal(rng, 2, 3, 5, 7)
    everywhere = built(x, **_SIZE)
    window = layers.LambdaLayer(
        **_SIZE, scope=(5, 9), implementation=implementation
    )
    window(x)
    copy_weights(everywhere, window)
    checks.assert_close(window(x), everywhere(x), 1e-5)


def test_mask_kinds_agree(rng):
    x = normal(rng, 2, 3, 5, 7)
    layer = built(x, **_SIZE, scope=3)
    mask = rng.integers(0, 2, [15, 15])
    real = rng.integers(0, 2, [2, 15])
    expected = layer(x, attention_mask=mask, context_mask=real)
    checks.assert_far(layer(x, attention_mask=mask), expected)
    checks.assert_far(layer(x, context_mask=real), expected)
    for kind in (bool, np.float32, np.float64):
        output = layer(
            x,
            attention_mask=tf.constant(mask.astype(kind)),
            context_mask=tf.constant(real.reshape(2, 3, 5).astype(kind)),
        )
        checks.assert_close(output, expected, 1e-6)
    # Padding is a mask that is the same for every query of an example.
    for example in range(2):
        joint = mask * real[example]
        checks.assert_close(
            layer(x, attention_mask=joint)[example], expected[example], 1e-5
        )


def test_padded_sequence_equals_the_short_one(rng):
    x = normal(rng, 1, 11, 5)
    for arguments in ({"scope": 5}, {"causal": True, "scope": 3}):
        layer = built(x, **_SIZE, **arguments)
        real = (np.arange(11) < 7)[None]
        output = layer(x, context_mask=real)[:, :7]
        checks.assert_close(output, layer(x[:, :7]), 1e-5)
