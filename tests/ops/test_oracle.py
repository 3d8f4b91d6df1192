"""The references themselves, against numbers done by hand and other sums."""

import numpy as np
import pytest

from tests.support import attention_oracle
from tests.support import oracle

pytestmark = pytest.mark.once
_SEEN = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1]])


def three_positions():
    """Queries 1, keys that are logs of 1, 2, 3, values 10, 20, 30.

    Each is a channel of the inputs, of depth 1 and with one head.
    """
    inputs = np.stack([[1] * 3, np.log([1, 2, 3]), [10, 20, 30]], axis=-1)
    weights = {name: np.zeros([3, 1]) for name in ("query", "key", "value")}
    weights["query"][0] = weights["key"][1] = weights["value"][2] = 1
    return inputs[None], weights


def test_two_by_two_image_by_hand():
    # One channel, one head, k = v = 1. Pixels 1 2 / 3 4; keys all equal, so
    # the softmax is 1/4 and the content lambda is the mean of the values, 2.5.
    # The table is 1 at offset (0, 0), 10 at (0, 1), 100 at (1, 0), else 0.
    table = np.zeros([3, 3, 1, 1])
    table[1, 1], table[1, 2], table[2, 1] = 1, 10, 100
    numbers = {"query": 1.0, "key": 0.0, "value": 1.0}
    weights = {name: np.array([[x]]) for name, x in numbers.items()}
    weights |= {"embeddings": table, "position_bias": np.array([1000.0])}
    pixels = np.array([1.0, 2.0, 3.0, 4.0])
    image = pixels.reshape(1, 2, 2, 1)
    output = oracle.lambda_layer(image, weights, num_heads=1, key_dim=1)
    # The pixel itself, 10 times the one to the right, 100 times the one below.
    position = np.array([1 + 10 * 2 + 100 * 3, 2 + 100 * 4, 3 + 10 * 4, 4])
    expected = pixels * (2.5 + position + 1000)
    np.testing.assert_allclose(output.ravel(), expected, rtol=1e-15)


# Query n averages the values with weights 1; 1 2; 1 2 3. Or 1 3; none; 1 2 3.
@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"causal": True}, [10, 50 / 3, 140 / 6]),
        ({"attention_mask": _SEEN}, [100 / 4, 0, 140 / 6]),
    ],
)
def test_softmax_of_what_is_permitted_by_hand(arguments, expected):
    size = {"num_heads": 1, "key_dim": 1, "use_position": False}
    output = oracle.lambda_layer(*three_positions(), **size, **arguments)
    np.testing.assert_allclose(output.ravel(), expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("causal", "expected"),
    [
        (False, [90 / 5, (5 + 40 + 180) / 8.5, (20 + 90) / 4]),
        (True, [10, (5 + 40) / 2.5, (20 + 90) / 4]),
    ],
)
def test_attention_by_hand(causal, expected):
    # The table is logs of 1/2, 1, 2 for left, self and right. Shares of
    # position 0: 1, 2 2; of 1: 1/2, 2, 3 2; of 2: 2/2, 3.
    inputs, weights = three_positions()
    weights["axis1_embedding"] = np.log([0.5, 1, 2]).reshape(3, 1, 1)
    settings = {"num_heads": 1, "scope": 3, "causal": causal}
    output = attention_oracle.relative_attention(inputs, weights, **settings)
    np.testing.assert_allclose(output.ravel(), expected, rtol=1e-14)
