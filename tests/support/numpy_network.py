"""The layers of a residual network in NumPy, for references."""

import numpy as np

from tests.support import oracle


def relu(x):
    return np.maximum(x, 0)


def norm(x, weights, name):
    parts = "gamma", "beta", "moving_mean", "moving_variance"
    scale, offset, mean, variance = (weights[f"{name}_norm/{x}"] for x in parts)
    return (x - mean) / np.sqrt(variance + 1e-3) * scale + offset


def conv(x, weights, name):
    """A convolution of stride 1 that keeps the size."""
    kernel = weights[f"{name}/kernel"]
    margin = len(kernel) // 2
    padded = np.pad(x, ((0, 0), (margin, margin), (margin, margin), (0, 0)))
    windows_of = np.lib.stride_tricks.sliding_window_view
    windows = windows_of(padded, kernel.shape[:2], (1, 2))
    return np.einsum("bxycij,ijcd->bxyd", windows, kernel)


def pool(x, window):
    """Average pooling of stride 2 over what lies inside the map."""
    rows, columns = (
        oracle.query_positions(size, window, 2, 1, "same")
        for size in x.shape[1:3]
    )
    low = window - 2
    means = [
        x[:, max(i - low, 0) : i + 2, max(j - low, 0) : j + 2].mean((1, 2))
        for i in rows
        for j in columns
    ]
    shape = (len(x), len(rows), len(columns), x.shape[-1])
    return np.stack(means, axis=1).reshape(shape)


def norm_relu(x, weights, name):
    return relu(norm(x, weights, name))


def conv_norm(x, weights, name):
    """A convolution, its normalization and ReLU."""
    return norm_relu(conv(x, weights, name), weights, name)


def strided_block(x, weights, name, middle):
    """A block whose middle strides by 2, and with it a pooled shortcut."""
    residual = conv(pool(x, 2), weights, f"{name}_shortcut")
    residual = norm(residual, weights, f"{name}_shortcut")
    x = conv_norm(x, weights, f"{name}_conv1")
    x = middle(x, weights, name)
    x = norm(conv(x, weights, f"{name}_conv3"), weights, f"{name}_conv3")
    return relu(residual + x)
