"""Lambda layers as linear, channel and spatial attention: appendix D.4."""

import numpy as np

from tests.support import checks

_PLAIN = {"use_batch_norm": False, "dtype": "float64"}
_CONTENT = {"use_position": False}


def built(x, **arguments):
    """A layer with random weights and the weights, as NumPy arrays."""
    layer = checks.built(x, **_PLAIN, **arguments)
    return layer, checks.split_point(layer, {})[0]


def softmax(x, axis):
    x = np.exp(x - x.max(axis, keepdims=True))
    return x / x.sum(axis, keepdims=True)


def test_content_lambdas_are_linear_attention(rng):
    """Shen et al., arXiv:1812.01243, eq. 5: rho(Q) (rho(K)^T V)."""
    x = rng.normal(size=[2, 11, 7])
    head = {"filters": 5, "num_heads": 1, "key_dim": 3}
    settings = {**_CONTENT, "query_normalization": "softmax"}
    layer, weights = built(x, **head, **settings)
    queries, keys, values = (
        x @ weights[name] for name in ("query", "key", "value")
    )
    summary = softmax(keys, axis=1).swapaxes(1, 2) @ values  # [b, k, v]
    checks.assert_close(layer(x), softmax(queries, axis=2) @ summary, 1e-12)


def test_a_lambda_per_channel_is_channel_attention(rng):
    """Hu et al., arXiv:1709.01507, eq. 2 and 4, without the sigmoid.

    A layer of one head and of depth one for each channel: equal keys average
    over all positions, the values' projection excites, the query is a channel.
    """
    channels = 6
    x = rng.normal(size=[2, 4, 5, channels])
    outputs, excitation = [], []
    for channel in range(channels):
        head = {"filters": 1, "num_heads": 1, "key_dim": 1, "seed": channel}
        layer, weights = built(x, **head, **_CONTENT)
        layer.query.kernel.assign(np.eye(channels)[:, channel : channel + 1])
        layer.key.kernel.assign(np.zeros(layer.key.kernel.shape))
        outputs.append(layer(x))
        excitation.append(weights["value"])
    output = np.concatenate(outputs, axis=-1)
    gates = x.mean(axis=(1, 2)) @ np.concatenate(excitation, axis=1)
    checks.assert_close(output, x * gates[:, None, None], 1e-12)
    checks.assert_far(output, x)


def test_a_lambda_per_position_is_spatial_attention(rng):
    """Woo et al., arXiv:1807.06521, eq. 5, without maximum and sigmoid.

    A 7x7 convolution of the channels' mean scales all channels.
    """
    channels = 6
    x = rng.normal(size=[2, 9, 8, channels])
    settings = {"use_content": False, "scope": 7}
    layer, weights = built(x, num_heads=channels, key_dim=1, **settings)
    layer.query.kernel.assign(np.eye(channels))
    layer.value.kernel.assign(np.full([channels, 1], 1 / channels))
    window = np.reshape(weights["embeddings"], [7, 7])
    padded = np.pad(x.mean(axis=-1), [(0, 0), (3, 3), (3, 3)])
    gates = sum(
        window[i, j] * padded[:, i : i + 9, j : j + 8]
        for i, j in np.ndindex(7, 7)
    )
    checks.assert_close(layer(x), x * np.expand_dims(gates, -1), 1e-12)
