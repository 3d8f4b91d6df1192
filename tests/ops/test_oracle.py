"""The references themselves, against numbers done by hand and other sums."""

import functools

import numpy as np
import pytest

from tests.support import attention_oracle
from tests.support import oracle

pytestmark = pytest.mark.once

lambda_layer = functools.partial(oracle.lambda_layer, num_heads=2, key_dim=3)


def random_weights(rng, table=(), channels=4, value=2, depth=1):
    """Of a lambda layer with two heads and a key depth of 3."""
    return {
        "query": rng.normal(size=[channels, 2 * 3]),
        "key": rng.normal(size=[channels, 3 * depth]),
        "value": rng.normal(size=[channels, value * depth]),
        "embeddings": rng.normal(size=[*table, 3, depth]),
    }


def three_positions():
    """Queries 1, keys that are logs of 1, 2, 3, values 10, 20, 30.

    Each is a channel of the inputs, of depth 1 and with one head.
    """
    inputs = np.stack([[1] * 3, np.log([1, 2, 3]), [10, 20, 30]], axis=-1)
    weights = {name: np.zeros([3, 1]) for name in ("query", "key", "value")}
    weights["query"][0] = weights["key"][1] = weights["value"][2] = 1
    return inputs[None], weights


# By hand.


def test_two_by_two_image_by_hand():
    # One channel, one head, k = v = 1. Pixels 1 2 / 3 4; keys all equal, so
    # the softmax is 1/4 and the content lambda is the mean of the values, 2.5.
    # The table is 1 at offset (0, 0), 10 at (0, 1), 100 at (1, 0), else 0.
    table = np.zeros([3, 3, 1, 1])
    table[1, 1], table[1, 2], table[2, 1] = 1, 10, 100
    weights = {
        "query": np.array([[1.0]]),
        "key": np.array([[0.0]]),
        "value": np.array([[1.0]]),
        "embeddings": table,
        "position_bias": np.array([1000.0]),
    }
    image = np.array([[1.0, 2.0], [3.0, 4.0]]).reshape(1, 2, 2, 1)
    output = oracle.lambda_layer(image, weights, num_heads=1, key_dim=1)
    # (query) * (2.5 + bias + self + 10 right + 100 below)
    expected = [
        1 * (1002.5 + 1 + 10 * 2 + 100 * 3),
        2 * (1002.5 + 2 + 100 * 4),
        3 * (1002.5 + 3 + 10 * 4),
        4 * (1002.5 + 4),
    ]
    np.testing.assert_allclose(output.ravel(), expected, rtol=1e-15)


def test_causal_softmax_by_hand():
    # Query n averages the values with weights 1; 1 2; 1 2 3.
    output = oracle.lambda_layer(
        *three_positions(),
        num_heads=1,
        key_dim=1,
        use_position=False,
        causal=True,
    )
    expected = [10, 50 / 3, 140 / 6]
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
    output = attention_oracle.relative_attention(
        inputs, weights, num_heads=1, scope=3, causal=causal
    )
    np.testing.assert_allclose(output.ravel(), expected, rtol=1e-14)


# By hand: where TensorFlow's SAME and VALID put the middle of each window.
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "dilation", "padding", "centres"),
    [
        (5, 3, 2, 1, "same", [0, 2, 4]),
        (6, 3, 2, 1, "same", [1, 3, 5]),
        (8, 3, 4, 1, "same", [1, 5]),
        (7, 5, 3, 1, "same", [0, 3, 6]),
        (5, 3, 1, 2, "same", [0, 1, 2, 3, 4]),
        (7, 3, 1, 2, "valid", [2, 3, 4]),
        (5, 3, 2, 1, "causal", [0, 2, 4]),
    ],
)
def test_window_centres(size, kernel, stride, dilation, padding, centres):
    result = oracle.query_positions(size, kernel, stride, dilation, padding)
    assert result == centres


# By other sums.

HEIGHT, WIDTH, VALUE = 3, 5, 11
ROWS, COLUMNS = np.arange(HEIGHT), np.arange(WIDTH)


def test_loops_equal_one_einsum(rng):
    x = rng.normal(size=[2, HEIGHT, WIDTH, 7])
    tables = 2 * HEIGHT - 1, 2 * WIDTH - 1
    weights = random_weights(rng, tables, channels=7, value=VALUE, depth=2)
    output = lambda_layer(x, weights, intra_depth=2)
    q, k, v = (
        (x @ weights[name]).reshape(2, HEIGHT, WIDTH, *last)
        for name, last in (
            ("query", (2, 3)),
            ("key", (3, 2)),
            ("value", (VALUE, 2)),
        )
    )
    k = np.exp(k)
    k /= k.sum(axis=(1, 2), keepdims=True)
    table = weights["embeddings"][
        HEIGHT - 1 + ROWS[None, None, :, None] - ROWS[:, None, None, None],
        WIDTH - 1 + COLUMNS[None, None, None, :] - COLUMNS[None, :, None, None],
    ]
    expected = np.einsum("bxyhk,bijku,bijvu->bxyhv", q, k, v)
    expected += np.einsum("bxyhk,xyijku,bijvu->bxyhv", q, table, v)
    np.testing.assert_allclose(
        output, expected.reshape(output.shape), rtol=1e-12
    )


def test_masked_statistics_ignore_padding(rng):
    x = rng.normal(size=[2, 3, 4])
    real = np.array([[1, 1, 0], [1, 0, 0]])
    mean, variance = oracle.batch_statistics(x, real)
    rows = np.stack([x[0, 0], x[0, 1], x[1, 0]])
    np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(variance, rows.var(axis=0), rtol=1e-14)


def test_nothing_permitted_gives_zero(rng):
    x = rng.normal(size=[2, 3, 4])
    mask = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1]])
    output = lambda_layer(x, random_weights(rng, [5]), attention_mask=mask)
    assert np.all(output[:, 1] == 0)
    assert np.all(output[:, [0, 2]] != 0)


@pytest.mark.parametrize("normalization", ["softmax", "l2", None])
def test_complex_step_equals_finite_difference(normalization, rng):
    weights = random_weights(rng, [3])
    for name in ("query", "value"):
        size = weights[name].shape[-1]
        weights[f"{name}_gamma"] = rng.normal(size=size)
        weights[f"{name}_beta"] = rng.normal(size=size)
        weights[f"{name}_mean"] = np.zeros(size)
        weights[f"{name}_variance"] = np.ones(size)
    point = {"inputs": rng.normal(size=[2, 5, 4]), **weights}
    direction = {name: rng.normal(size=a.shape) for name, a in point.items()}

    def loss(values):
        values = dict(values)
        return lambda_layer(
            values.pop("inputs"),
            values,
            scope=3,
            training=True,
            key_normalization=normalization,
            query_normalization="softmax",
        )

    exact = oracle.directional_derivative(loss, point, direction)
    step = 1e-6
    up, down = (
        loss({n: a + s * step * direction[n] for n, a in point.items()})
        for s in (1, -1)
    )
    difference = (up - down) / (2 * step)
    np.testing.assert_allclose(exact, difference, rtol=1e-6, atol=1e-7)
