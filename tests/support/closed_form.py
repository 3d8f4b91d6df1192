"""Parameters and operations of the networks, as formulas.

Written from the paper and the papers it builds on (ResNet, ResNet-D, SE,
MobileNetV2, attention); imports nothing from the package. A count is a pair
(parameters, operations), operations being 2 per multiply-add for one image.
"""

import math

import numpy as np


def conv(positions, window, inputs, outputs):
    weights = window * inputs * outputs
    return np.array([weights, 2 * positions * weights])


def norm(channels):
    return np.array([2 * channels, 0])


def lambda_layer(
    size, channels, stride=1, *, k, h, u, r, content=True, position=True
):
    """Of a square map, to as many channels; strided ones query every other."""
    v = channels // h
    m, n = size**2, math.ceil(size / stride) ** 2
    count = conv(n, 1, channels, h * k) + conv(m, 1, channels, v * u)
    count += norm(h * k) + norm(v * u)
    if content:
        count += conv(m, 1, channels, k * u) + [0, 2 * m * k * v * u]
    if position:
        entries = (2 * size - 1 if r is None else r) ** 2
        seen = min(size, r or size) ** 2
        count += [entries * k * u, 2 * n * seen * k * v * u]
    return count + [0, 2 * n * h * k * v]


def squeeze_excite(channels, ratio):
    units = int(channels * ratio)
    weights = 2 * channels * units
    return np.array([weights + channels + units, 2 * weights])


def attention(size, channels, outputs, heads=8, key=None, scope=None, axes=2):
    """Of a square map; a table per axis, shared by the heads, and no bias."""
    k, seen = key or outputs // heads, min(scope or size, size)
    count = 2 * conv(size**2, 1, channels, heads * k)
    count += conv(size**2, 1, channels, outputs)
    scores = size**2 * heads * k * (seen**axes + axes * seen)
    values = size**2 * outputs * seen**axes
    entries = axes * (scope or 2 * size - 1)
    return count + [entries * k, 2 * (scores + values)]


def middle(letter, size, small, width, lambdas):
    """Of a residual block, but for the norm that ends it."""
    if letter == "C":
        return conv(small**2, 9, width, width)
    if letter == "L":
        return lambda_layer(size, width, **lambdas)  # Then pooled.
    if letter == "X":
        lines = attention(size, width, width, axes=1)
        return 2 * lines + norm(width)
    if letter == "P":
        values, key = max(8, width // 10 // 8 * 8), max(20, width // 5 // 8)
        count = attention(size, width, values, key=key)
        count += conv(small**2, 1, values, values)
        return count + conv(small**2, 9, width, width - values)
    scope = {"A": None, "S": 7}[letter]
    return attention(size, width, width, scope=scope)


def bottleneck(size, inputs, width, letter, stride, se, lambdas):
    outputs, small = 4 * width, math.ceil(size / stride)
    count = conv(size**2, 1, inputs, width) + norm(width)
    count += middle(letter, size, small, width, lambdas)
    count += norm(width) + conv(small**2, 1, width, outputs) + norm(outputs)
    if se:
        count += squeeze_excite(outputs, se)
    if stride > 1 or inputs != outputs:
        count += conv(small**2, 1, inputs, outputs) + norm(outputs)
    return count


def resnet(stages, size, deep=False, se=(0, 0, 0, 0), **lambdas):
    """A ResNet-50-like network; `deep` for the stem and shortcuts of RS."""
    lambdas = {"k": 16, "h": 4, "u": 1, "r": 23, **lambdas}
    rows = [(7, 64, 2)]
    if deep:
        rows = [(3, 32, 2), (3, 32, 1), (3, 64, 1), (3, 64, 2)]
    count, inputs = 0, 3
    for window, outputs, stride in rows:
        size = math.ceil(size / stride)
        count = count + conv(size**2, window**2, inputs, outputs)
        count += norm(outputs)
        inputs = outputs
    size = size if deep else math.ceil(size / 2)  # Max pooling.
    for i, letters in enumerate(stages):
        width = 64 * 2**i
        for j, letter in enumerate(letters):
            stride = 2 if i and not j else 1
            count = count + bottleneck(
                size, inputs, width, letter, stride, se[i], lambdas
            )
            size, inputs = math.ceil(size / stride), 4 * width
    return count + [inputs * 1000 + 1000, 2 * inputs * 1000]


MOBILENET_V2 = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def mobilenet(size, lambda_blocks):
    size = math.ceil(size / 2)
    count, inputs, number = conv(size**2, 9, 3, 32) + norm(32), 32, 0
    for expansion, outputs, blocks, first in MOBILENET_V2:
        for i in range(blocks):
            number += 1
            stride = first if i == 0 else 1
            small = math.ceil(size / stride)
            has_lambdas = number in lambda_blocks
            inside = inputs if has_lambdas else expansion * inputs
            if expansion > 1 or has_lambdas:
                count += conv(size**2, 1, inputs, inside) + norm(inside)
            if has_lambdas:
                count += lambda_layer(size, inside, stride, k=32, h=4, u=1, r=5)
            else:
                count += conv(small**2, 9, 1, inside)
            count += norm(inside) + conv(small**2, 1, inside, outputs)
            count += norm(outputs)
            size, inputs = small, outputs
    count += conv(size**2, 1, inputs, 1280) + norm(1280)
    return count + [1280 * 1000 + 1000, 2 * 1280 * 1000]
