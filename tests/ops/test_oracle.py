"""The reference itself, against numbers done by hand and other derivations."""

import numpy as np
import pytest

from tests.support import oracle

pytestmark = pytest.mark.once


def random_weights(rng, *, channels, heads, key, value, depth=1, table=()):
    return {
        "query": rng.normal(size=[channels, heads * key]),
        "key": rng.normal(size=[channels, key * depth]),
        "value": rng.normal(size=[channels, value * depth]),
        "embeddings": rng.normal(size=[*table, key, depth]),
    }


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
    }
    image = np.array([[1.0, 2.0], [3.0, 4.0]]).reshape(1, 2, 2, 1)
    output = oracle.lambda_layer(image, weights, num_heads=1, key_dim=1)
    # (query) * (2.5 + self + 10 right + 100 below)
    expected = [
        1 * (2.5 + 1 + 10 * 2 + 100 * 3),
        2 * (2.5 + 2 + 100 * 4),
        3 * (2.5 + 3 + 10 * 4),
        4 * (2.5 + 4),
    ]
    np.testing.assert_allclose(output.ravel(), expected, rtol=1e-15)


def test_position_bias_by_hand():
    # Keys and table are 0, so that with one position the content lambda is
    # 1 (its softmax) times the value, and the position lambda is the bias:
    # (value + bias) times the query, in both channels of the value.
    weights = {
        "query": np.array([[1.0, 2.0]]),
        "key": np.zeros([1, 2]),
        "value": np.array([[3.0, 5.0]]),
        "embeddings": np.zeros([1, 2, 1]),
        "position_bias": np.array([10.0, 100.0]),
    }
    output = oracle.lambda_layer(
        np.full([1, 1, 1], 7.0), weights, num_heads=1, key_dim=2
    )
    # queries 7 14, values 21 35
    biases = 7 * 10 + 14 * 100
    expected = [7 * 21 + 14 * 21 + biases, 7 * 35 + 14 * 35 + biases]
    np.testing.assert_allclose(output.ravel(), expected, rtol=1e-15)


def test_causal_softmax_by_hand():
    # Keys are logs of 1, 2, 3: query n averages values 10, 20, 30 with
    # weights 1; 1 2; 1 2 3. Inputs: channel 0 query, 1 key, 2 value.
    inputs = np.zeros([1, 3, 3])
    inputs[0, :, 0] = 1
    inputs[0, :, 1] = np.log([1, 2, 3])
    inputs[0, :, 2] = [10, 20, 30]
    weights = {name: np.zeros([3, 1]) for name in ("query", "key", "value")}
    weights["query"][0] = weights["key"][1] = weights["value"][2] = 1
    output = oracle.lambda_layer(
        inputs,
        weights,
        num_heads=1,
        key_dim=1,
        use_position=False,
        causal=True,
    )
    expected = [10, 50 / 3, 140 / 6]
    np.testing.assert_allclose(output.ravel(), expected, rtol=1e-14)


def test_loops_equal_one_einsum(rng):
    batch, height, width, channels = 2, 3, 5, 7
    heads, key, value, depth = 2, 3, 11, 2
    x = rng.normal(size=[batch, height, width, channels])
    weights = random_weights(
        rng,
        channels=channels,
        heads=heads,
        key=key,
        value=value,
        depth=depth,
        table=[2 * height - 1, 2 * width - 1],
    )
    output = oracle.lambda_layer(
        x, weights, num_heads=heads, key_dim=key, intra_depth=depth
    )
    q = (x @ weights["query"]).reshape(batch, height, width, heads, key)
    k = (x @ weights["key"]).reshape(batch, height, width, key, depth)
    v = (x @ weights["value"]).reshape(batch, height, width, value, depth)
    k = np.exp(k)
    k /= k.sum(axis=(1, 2), keepdims=True)
    i, j = np.arange(height), np.arange(width)
    table = weights["embeddings"][
        height - 1 + i[None, None, :, None] - i[:, None, None, None],
        width - 1 + j[None, None, None, :] - j[None, :, None, None],
    ]
    expected = np.einsum("bxyhk,bijku,bijvu->bxyhv", q, k, v)
    expected += np.einsum("bxyhk,xyijku,bijvu->bxyhv", q, table, v)
    expected = expected.reshape(batch, height, width, heads * value)
    np.testing.assert_allclose(output, expected, rtol=1e-12)


@pytest.mark.parametrize("sizes", [(7,), (3, 5), (2, 3, 4)])
def test_covering_scope_equals_global(rng, sizes):
    channels, heads, key, value = 5, 2, 3, 2
    x = rng.normal(size=[2, *sizes, channels])
    weights = random_weights(
        rng,
        channels=channels,
        heads=heads,
        key=key,
        value=value,
        table=[2 * size - 1 for size in sizes],
    )
    settings = {"num_heads": heads, "key_dim": key}
    everywhere = oracle.lambda_layer(x, weights, **settings)
    scope = tuple(2 * size - 1 for size in sizes)
    window = oracle.lambda_layer(x, weights, scope=scope, **settings)
    np.testing.assert_allclose(window, everywhere, rtol=1e-12)


def test_explicit_embeddings_equal_the_table(rng):
    size, channels, heads, key, value = 5, 3, 2, 3, 2
    x = rng.normal(size=[2, size, channels])
    weights = random_weights(
        rng,
        channels=channels,
        heads=heads,
        key=key,
        value=value,
        table=[2 * size - 1],
    )
    settings = {"num_heads": heads, "key_dim": key}
    table = oracle.lambda_layer(x, weights, **settings)
    n = np.arange(size)
    explicit = weights.pop("embeddings")[size - 1 + n[None] - n[:, None], :, 0]
    for given in (explicit, np.stack([explicit, explicit])):
        output = oracle.lambda_layer(x, weights, embeddings=given, **settings)
        np.testing.assert_allclose(output, table, rtol=1e-12)


# By hand: where TensorFlow's SAME and VALID put the middle of each window.
@pytest.mark.parametrize(
    ("size", "kernel", "stride", "dilation", "padding", "centres"),
    [
        (5, 3, 1, 1, "same", [0, 1, 2, 3, 4]),
        (5, 3, 2, 1, "same", [0, 2, 4]),
        (6, 3, 2, 1, "same", [1, 3, 5]),
        (8, 1, 2, 1, "same", [0, 2, 4, 6]),
        (8, 3, 4, 1, "same", [1, 5]),
        (7, 5, 3, 1, "same", [0, 3, 6]),
        (5, 3, 1, 2, "same", [0, 1, 2, 3, 4]),
        (7, 3, 2, 1, "valid", [1, 3, 5]),
        (7, 3, 1, 2, "valid", [2, 3, 4]),
        (5, 3, 2, 1, "causal", [0, 2, 4]),
    ],
)
def test_window_centres(size, kernel, stride, dilation, padding, centres):
    result = oracle.query_positions(size, kernel, stride, dilation, padding)
    assert result == centres


def test_masked_statistics_ignore_padding(rng):
    x = rng.normal(size=[2, 3, 4])
    real = np.array([[1, 1, 0], [1, 0, 0]])
    mean, variance = oracle.batch_statistics(x, real)
    rows = np.stack([x[0, 0], x[0, 1], x[1, 0]])
    np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-14)
    np.testing.assert_allclose(variance, rows.var(axis=0), rtol=1e-14)


def test_nothing_permitted_gives_zero(rng):
    x = rng.normal(size=[2, 3, 4])
    weights = random_weights(
        rng, channels=4, heads=2, key=3, value=2, table=[5]
    )
    mask = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1]])
    for normalization in ("softmax", "l2", None):
        output = oracle.lambda_layer(
            x,
            weights,
            num_heads=2,
            key_dim=3,
            attention_mask=mask,
            key_normalization=normalization,
        )
        assert np.all(output[:, 1] == 0)
        assert np.all(output[:, [0, 2]] != 0)


def test_complex_step_equals_finite_difference(rng):
    weights = random_weights(
        rng, channels=4, heads=2, key=3, value=2, table=[3]
    )
    for name in ("query", "value"):
        size = weights[name].shape[-1]
        weights[f"{name}_gamma"] = rng.normal(size=size)
        weights[f"{name}_beta"] = rng.normal(size=size)
        weights[f"{name}_mean"] = np.zeros(size)
        weights[f"{name}_variance"] = np.ones(size)
    point = {"inputs": rng.normal(size=[2, 5, 4]), **weights}
    direction = {name: rng.normal(size=a.shape) for name, a in point.items()}

    for normalization in ("softmax", "l2", None):

        def loss(values, normalization=normalization):
            values = dict(values)
            return oracle.lambda_layer(
                values.pop("inputs"),
                values,
                num_heads=2,
                key_dim=3,
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
