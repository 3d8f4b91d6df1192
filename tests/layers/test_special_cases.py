"""Lambda layers as linear, channel and spatial attention: appendix D.4."""

import numpy as np

from tests.support import checks
from tests.support import oracle

_CONTENT = {"use_position": False}


def built(x, **arguments):
    exact = {"use_batch_norm": False, "dtype": "float64"}
    layer = checks.built(x, **exact, **arguments)
    return layer, checks.split_point(layer, {})[0]


def test_content_lambdas_are_linear_attention(rng):
    """Shen et al., arXiv:1812.01243, eq. 5: rho(Q) (rho(K)^T V)."""
    x = rng.normal(size=[1, 11, 7])
    head = {"filters": 5, "num_heads": 1, "key_dim": 3}
    layer, kernels = built(x, **head, **_CONTENT, query_normalization="softmax")
    query, key, value = (x[0] @ kernels[n] for n in ("query", "key", "value"))
    expected = oracle.softmax(query.T).T @ (oracle.softmax(key).T @ value)
    checks.assert_close(layer(x)[0], expected, 1e-12)


def test_a_lambda_per_channel_is_channel_attention(rng):
    """Hu et al., arXiv:1709.01507, eq. 2 and 4, without the sigmoid.

    A layer of one head and of depth one for each channel: equal keys average
    over all positions, the values' projection excites, the query is a channel.
    """
    x = rng.normal(size=[2, 4, 5, 6])
    head = {"filters": 1, "num_heads": 1, "key_dim": 1, **_CONTENT}
    for channel in range(6):
        layer, weights = built(x, **head, seed=channel)
        layer.query.kernel.assign(np.eye(6)[:, channel : channel + 1])
        layer.key.kernel.assign(np.zeros([6, 1]))
        gates = x.mean(axis=(1, 2)) @ weights["value"]
        expected = x[..., channel : channel + 1] * gates[:, None, None]
        checks.assert_close(layer(x), expected, 1e-12)


def test_a_lambda_per_position_is_spatial_attention(rng):
    """Woo et al., arXiv:1807.06521, eq. 5, without maximum and sigmoid.

    A 7x7 convolution of the channels' mean scales all channels.
    """
    x = rng.normal(size=[2, 9, 8, 6])
    settings = {"use_content": False, "scope": 7}
    layer, weights = built(x, num_heads=6, key_dim=1, **settings)
    layer.query.kernel.assign(np.eye(6))
    layer.value.kernel.assign(np.full([6, 1], 1 / 6))
    window = np.reshape(weights["embeddings"], [7, 7])
    padded = np.pad(x.mean(axis=-1), [(0, 0), (3, 3), (3, 3)])
    gates = sum(
        window[i, j] * padded[:, i : i + 9, j : j + 8]
        for i, j in np.ndindex(7, 7)
    )
    checks.assert_close(layer(x), x * np.expand_dims(gates, -1), 1e-12)
