"""Squeeze-and-excitation: a gate per channel, computed from the map."""

from typing import Any

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.arguments import fraction
from lambdanet_tf.layers import grids
from lambdanet_tf.layers.argument import argument
from lambdanet_tf.layers.argument import keras_argument
from lambdanet_tf.layers.argument import serializable
from lambdanet_tf.layers.base import BaseLayer
from lambdanet_tf.layers.randomness import Initializers


@serializable
class SqueezeExcite(BaseLayer):
    """Multiplies each channel by a gate computed from the mean of the map.

    If z is the mean of the inputs over positions, the output is
    inputs * sigmoid(W2 act(W1 z + b1) + b2). With half precisions, the layer
    computes the gate in float32.

    Args:
        ratio: float in [0, 1]. The first dense layer has `ratio * channels`
            units, rounded down, but at least one.
        activation: name or callable, after the first dense layer.
        kernel_initializer: for both kernels.
        kernel_regularizer: for both kernels.

    Input shape:
        `(batch, *spatial, channels)`; sizes may be unknown.

    Reference: [Hu et al., 2018](https://arxiv.org/abs/1709.01507).
    """

    ratio: float = argument(default=0.25, check=fraction, kw_only=False)
    activation: Any = keras_argument(default="relu")
    kernel_initializer: Any = keras_argument(default="he_normal")
    kernel_regularizer: Any = keras_argument(default=None)

    def __post_init__(self):
        self._initializers = Initializers()

    def build(self, input_shape):
        channels = input_shape[-1]
        units = max(1, int(channels * self.ratio))
        self.reduce = self._dense(units, self.activation, "reduce")
        self.expand = self._dense(channels, "sigmoid", "expand")
        for dense, size in ((self.reduce, channels), (self.expand, units)):
            self._build_sublayer(dense, (None, size))
        self._static_shape = (None,) * (len(input_shape) - 1) + (channels,)
        super().build(input_shape)

    def _dense(self, units, activation, name):
        return tf.keras.layers.Dense(
            units,
            activation=activation,
            kernel_initializer=self._initializers(self.kernel_initializer),
            kernel_regularizer=self.kernel_regularizer,
            **self._of_sublayer(name),
        )

    def call(self, inputs):
        inputs = grids.as_built(inputs, self._static_shape, self)
        axes = list(range(1, inputs.shape.rank - 1))
        # The mean and the gradient of a gate are sums over the map.
        wide = tf.cast(inputs, ops.accumulation_dtype(inputs.dtype))
        gates = tf.reduce_mean(wide, axes)  # (batch, channels)
        for dense in (self.reduce, self.expand):
            gates = _apply(dense, gates)
        for axis in axes:
            gates = tf.expand_dims(gates, axis)
        gates = tf.cast(gates, wide.dtype)
        return tf.cast(wide * gates, inputs.dtype)

    def compute_output_shape(self, input_shape):
        return tuple(input_shape)


def _apply(dense, x):
    """Calls a Dense layer in float32, so that its gradients sum in it, too."""
    is_wide = tf.as_dtype(dense.compute_dtype).size >= 4
    if is_wide or getattr(dense, "quantization_mode", None):
        return dense(x)
    kernel, bias = (
        tf.cast(tf.convert_to_tensor(weight), x.dtype)
        for weight in (dense.kernel, dense.bias)
    )
    return dense.activation(tf.matmul(x, kernel) + bias)
