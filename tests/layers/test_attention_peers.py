"""Attention against the formulas of other packages, which are written out."""

import numpy as np
import pytest

from tests.support import checks
from tests.support.random_layers import attention
from tests.support.random_layers import normal

pytestmark = pytest.mark.once

_SIZE = {"filters": 10, "num_heads": 2, "key_dim": 3}


def position_scores(queries, rows, columns):
    """Of queries on a grid, with the tables of its rows and columns."""
    of_rows = np.einsum("bhxyk,xik->bhxyi", queries, rows)
    of_columns = np.einsum("bhxyk,yjk->bhxyj", queries, columns)
    return of_rows[..., None] + of_columns[..., None, :]


def bottleneck_attention(x, qkv, tables, heads, key, scale_positions):
    """timm's `BottleneckAttn` (1.0.31), in channels-last NumPy.

    Scores are scaled before positions are added unless `scale_pos_embed`.
    """
    batch, height, width, _ = x.shape
    parts = np.split(x @ qkv, [heads * key, 2 * heads * key], axis=-1)
    q, k, v = (
        part.reshape(batch, height * width, heads, -1).swapaxes(1, 2)
        for part in parts
    )
    i, j = np.arange(height), np.arange(width)
    rows = tables[0][i - i[:, None] + height - 1]  # [query row, row, k]
    columns = tables[1][j - j[:, None] + width - 1]
    grid = q.reshape(batch, heads, height, width, key)
    positions = position_scores(grid, rows, columns)
    positions = positions.reshape(batch, heads, height * width, -1)
    scale = key**-0.5
    scores = q @ k.swapaxes(2, 3) * scale
    scores = scores + positions * (scale if scale_positions else 1.0)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares = shares / shares.sum(-1, keepdims=True)
    output = (shares @ v).swapaxes(1, 2)
    return output.reshape(batch, height, width, -1)


@pytest.mark.parametrize("scale_positions", [False, True])
def test_it_is_timm_bottleneck_attention(scale_positions, rng):
    x = normal(rng, 2, 5, 7, 6)
    layer = attention(x, **_SIZE)
    weights, _ = checks.split_point(layer, {})
    qkv = [weights[name] for name in ("query", "key", "value")]
    # Unscaled positions are ours with tables of another size.
    factor = 1.0 if scale_positions else 3**-0.5
    tables = [factor * weights[f"axis{i}_embedding"][..., 0] for i in (1, 2)]
    expected = bottleneck_attention(
        x, np.concatenate(qkv, -1), tables, 2, 3, scale_positions
    )
    checks.assert_close(layer(x), expected, 1e-5)


def halo_attention(x, weights, heads, block, halo):
    """timm's `HaloAttn` (1.0.31) with `scale_pos_embed`, in NumPy.

    Each block of queries sees a window: the block and a halo around it. The
    window is padded with zeros, which the softmax counts.
    """
    batch, height, width, _ = x.shape
    pad = ((0, 0), (halo, halo), (halo, halo), (0, 0))
    q, k, v = (x @ weights[name] for name in ("query", "key", "value"))
    k, v = np.pad(k, pad), np.pad(v, pad)
    size = block + 2 * halo
    offsets = np.arange(size) - halo - np.arange(block)[:, None]  # m - n
    rows, columns = (
        weights[f"axis{axis}_embedding"][
            offsets + len(weights[f"axis{axis}_embedding"]) // 2, :, 0
        ]
        for axis in (1, 2)
    )  # [query of the block, position of the window, k]
    output = np.zeros([batch, height, width, v.shape[-1]])
    for top in range(0, height, block):
        for left in range(0, width, block):
            window = np.s_[:, top : top + size, left : left + size]
            place = np.s_[:, top : top + block, left : left + block]
            queries = q[place].reshape(batch, block, block, heads, -1)
            queries = np.moveaxis(queries, 3, 1)
            keys = k[window].reshape(batch, size, size, heads, -1)
            values = v[window].reshape(batch, size, size, heads, -1)
            scores = np.einsum("bhxyk,bijhk->bhxyij", queries, keys)
            scores = scores + position_scores(queries, rows, columns)
            scores = scores / np.sqrt(queries.shape[-1])
            shares = np.exp(scores)
            shares = shares / shares.sum((-2, -1), keepdims=True)
            part = np.einsum("bhxyij,bijhv->bxyhv", shares, values)
            output[place] = part.reshape(*part.shape[:3], -1)
    return output


def test_it_is_timm_halo_attention_inside_the_map(rng):
    # A window per block is a mask of pairs here. At the border timm's softmax
    # counts the zeros that it pads with, and this layer's does not.
    size, block, halo = 9, 3, 1
    x = normal(rng, 2, size, size, 6)
    layer = attention(x, **_SIZE)
    weights, _ = checks.split_point(layer, {})
    n, m = np.arange(size)[:, None], np.arange(size)
    first = n // block * block
    seen = (m >= first - halo) & (m < first + block + halo)
    mask = np.einsum("xi,yj->xyij", seen, seen).reshape(size**2, -1)
    expected = halo_attention(x, weights, 2, block, halo)
    output = layer(x, attention_mask=mask).numpy()
    checks.assert_far(output, expected)
    inside = np.s_[:, block : 2 * block, block : 2 * block]
    checks.assert_close(output[inside], expected[inside], 1e-5)
