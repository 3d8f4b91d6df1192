"""The reference of attention, against numbers done by hand and other sums."""

import numpy as np
import pytest

from tests.support import attention_oracle

pytestmark = pytest.mark.once


def random_weights(rng, channels, heads, key, value, tables=()):
    weights = {
        "query": rng.normal(size=[channels, heads * key]),
        "key": rng.normal(size=[channels, heads * key]),
        "value": rng.normal(size=[channels, heads * value]),
    }
    for axis, entries in enumerate(tables, start=1):
        table = rng.normal(size=[entries, key, 1])
        weights[f"axis{axis}_embedding"] = table
    return weights


def test_three_positions_by_hand():
    # Inputs: channel 0 query (1), 1 key, 2 value. Keys are logs of 1, 2, 3,
    # the table logs of 1/2, 1, 2 for left, self and right. Shares of position
    # 0: 1, 2 2; of 1: 1/2, 2, 3 2; of 2: 2/2, 3.
    inputs = np.zeros([1, 3, 3])
    inputs[0, :, 0] = 1
    inputs[0, :, 1] = np.log([1, 2, 3])
    inputs[0, :, 2] = [10, 20, 30]
    weights = {name: np.zeros([3, 1]) for name in ("query", "key", "value")}
    weights["query"][0] = weights["key"][1] = weights["value"][2] = 1
    weights["axis1_embedding"] = np.log([0.5, 1, 2]).reshape(3, 1, 1)
    output = attention_oracle.relative_attention(
        inputs, weights, num_heads=1, scope=3
    )
    expected = [90 / 5, (5 + 40 + 180) / 8.5, (20 + 90) / 4]
    np.testing.assert_allclose(output.ravel(), expected, rtol=1e-14)
    output = attention_oracle.relative_attention(
        inputs, weights, num_heads=1, scope=3, causal=True
    )
    expected = [10, (5 + 40) / 2.5, (20 + 90) / 4]
    np.testing.assert_allclose(output.ravel(), expected, rtol=1e-14)


def test_scores_are_divided_by_the_root_of_the_depth():
    # Four equal depths: the score is 4 log 2 / sqrt(4), a share of 4 to 1.
    inputs = np.array([[[1.0, 0.0], [1.0, 1.0]]])
    weights = {
        "query": np.array([[1.0] * 4, [0.0] * 4]),
        "key": np.array([[0.0] * 4, [np.log(2)] * 4]),
        "value": np.array([[0.0], [10.0]]),
    }
    output = attention_oracle.relative_attention(inputs, weights, num_heads=1)
    np.testing.assert_allclose(output.ravel(), [8, 8], rtol=1e-14)


def test_loops_equal_one_einsum(rng):
    batch, height, width, channels = 2, 3, 5, 7
    heads, key, value = 2, 3, 11
    x = rng.normal(size=[batch, height, width, channels])
    tables = (2 * height - 1, 2 * width - 1)
    weights = random_weights(rng, channels, heads, key, value, tables)
    output = attention_oracle.relative_attention(x, weights, num_heads=heads)
    q, k, v = (
        (x @ weights[name]).reshape(batch, height, width, heads, -1)
        for name in ("query", "key", "value")
    )
    i, j = np.arange(height), np.arange(width)
    rows = weights["axis1_embedding"][height - 1 + i - i[:, None], :, 0]
    columns = weights["axis2_embedding"][width - 1 + j - j[:, None], :, 0]
    scores = np.einsum("bxyhk,bijhk->bhxyij", q, k)
    scores += np.einsum("bxyhk,xik->bhxyi", q, rows)[..., None]
    scores += np.einsum("bxyhk,yjk->bhxyj", q, columns)[..., None, :]
    shares = np.exp(scores / np.sqrt(key))
    shares /= shares.sum(axis=(4, 5), keepdims=True)
    expected = np.einsum("bhxyij,bijhv->bxyhv", shares, v)
    expected = expected.reshape(batch, height, width, heads * value)
    np.testing.assert_allclose(output, expected, rtol=1e-12)


@pytest.mark.parametrize("axis", [1, 2])
def test_an_axis_is_a_batch_of_lines(axis, rng):
    x = rng.normal(size=[2, 4, 5, 3])
    weights = random_weights(rng, 3, 2, 3, 2)
    table = rng.normal(size=[3, 3, 1])
    weights[f"axis{axis}_embedding"] = table
    settings = {"num_heads": 2, "scope": 3}
    output = attention_oracle.relative_attention(
        x, weights, axis=axis, **settings
    )
    weights = {**weights, "axis1_embedding": table}
    for line in range(x.shape[3 - axis]):
        expected = attention_oracle.relative_attention(
            np.take(x, line, 3 - axis), weights, **settings
        )
        np.testing.assert_allclose(np.take(output, line, 3 - axis), expected)


def test_nothing_permitted_gives_zero(rng):
    x = rng.normal(size=[2, 3, 4])
    weights = random_weights(rng, 4, 2, 3, 2, [5])
    mask = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1]])
    output = attention_oracle.relative_attention(
        x, weights, num_heads=2, attention_mask=mask
    )
    assert np.all(output[:, 1] == 0)
    assert np.all(output[:, [0, 2]] != 0)
