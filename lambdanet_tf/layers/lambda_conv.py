"""The lambda convolution."""

import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.arguments import int_per_axis
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.arguments import scope_per_axis
from lambdanet_tf.layers import grids
from lambdanet_tf.layers.argument import argument
from lambdanet_tf.layers.argument import serializable
from lambdanet_tf.layers.base import not_converted
from lambdanet_tf.layers.streaming import StreamingLambda
from lambdanet_tf.ops.geometry import center_of

_AXIS = {
    "same": ops.same_axis,
    "valid": ops.valid_axis,
    "causal": ops.causal_axis,
}


def _kernel_size(name, value):
    return scope_per_axis(name, int_per_axis(name, value))


@serializable
class LambdaConv(StreamingLambda):
    """Applies a lambda layer with the strides and padding of a convolution.

    The position lambdas convolve the values with the table of relative
    positions, so strides, dilation and padding mean the same as in
    `tf.keras.layers.Conv1D`, `Conv2D` and `Conv3D`. The queries of output i
    come from the position where that convolution centers its window. The
    content lambda stays global; with padding "causal" it ends at the query.
    Spatial sizes may be unknown. `LambdaLayer` explains the equations, and
    adds global scope, masks and a separate context. With padding "causal",
    this layer also has a `step`.

    Args:
        filters: int. Output channels, divisible by `num_heads`.
        kernel_size: odd int, or one per axis: the scope. With padding
            "causal", the last entry is the position itself, and the others
            are past positions.
        strides: int, or one per axis.
        dilation_rate: int, or one per axis. As in Keras, `strides` and
            `dilation_rate` cannot both be above 1.
        padding: "same", "valid" or, with one spatial axis, "causal".
        num_heads: int. As in `LambdaLayer`, and so are `key_dim`,
            `intra_depth`, `use_content`, `use_position`,
            `use_position_bias`, `position_embedding` (except "explicit"),
            `implementation`, `key_normalization`, `query_normalization`,
            `use_batch_norm`, `norm_momentum`, `norm_epsilon`, `use_sync_bn`,
            the initializers, regularizers and constraints.

    Input shape:
        `(batch, *spatial, channels)`, one to three spatial axes.

    Output shape:
        `(batch, *strided spatial, filters)`, as for a Keras convolution.

    Examples:
        >>> images = tf.random.normal([2, 15, 21, 64])
        >>> LambdaConv(64, kernel_size=5, strides=2)(images).shape
        TensorShape([2, 8, 11, 64])

    Reference: [Bello, 2021](https://arxiv.org/abs/2102.08602), section 3.2.
    """

    _position_embeddings = ("relative",)  # or a layer

    filters: int = argument(check=positive_int, kw_only=False)
    kernel_size: Any = argument(check=_kernel_size, kw_only=False)
    strides: Any = argument(default=1, check=int_per_axis)
    dilation_rate: Any = argument(default=1, check=int_per_axis)
    padding: str = argument(default="same", choices=tuple(_AXIS))

    def __post_init__(self):
        self.scope, self.causal = self.kernel_size, self.padding == "causal"
        super().__post_init__()
        largest = [np.max(x) for x in (self.strides, self.dilation_rate)]
        if min(largest) > 1:
            raise ValueError(
                "`strides` and `dilation_rate` cannot both be above 1: set one "
                f"of them to 1. Received: strides={self.strides}, "
                f"dilation_rate={self.dilation_rate}."
            )

    def build(self, input_shape):
        input_shape = tuple(input_shape)
        grids.check_grid("inputs", input_shape)
        if self.causal and len(input_shape) != 3:
            raise ValueError(
                "`padding='causal'` needs inputs with one spatial axis. "
                f"Received: inputs of shape {input_shape}."
            )
        self.compute_output_shape(input_shape)
        self._build(input_shape, input_shape)
        self._built_shape = *(None for _ in input_shape[1:]), input_shape[-1]
        super().build(input_shape)

    @not_converted
    def call(self, inputs, mask=None, training=None):
        operands, (grid, around) = self._operands(inputs, mask)
        place = self._place(around, training, batch=operands[0].shape[0])
        outputs, _ = self._outputs(operands, place, training)  # [b, n, h, v]
        return grids.unflatten(outputs, grid)  # [b, *grid, h * v]

    def _operands(self, inputs, mask=None):
        """Returns operands of `_outputs`, and grids of outputs and inputs."""
        inputs = grids.as_built(inputs, self._built_shape, self)
        self.compute_output_shape(inputs.shape)
        masks = ops.Masks.of_call(inputs, inputs, mask, causal=self.causal)
        x, grid = c, around = grids.flatten(inputs)  # [b, m, channels]
        axes = self._axes(around)
        centers = self._at_centers(inputs, axes)
        if centers is not inputs:
            x, _ = grids.flatten(centers)  # [b, n, channels]
            grid = tuple(axis.queries for axis in axes)
            if masks.query is not None:
                real = tf.reshape(masks.query, [-1, *around])
                real = self._at_centers(real, axes)
                real = tf.reshape(real, [-1, ops.size(x, 1)])
                masks = dataclasses.replace(masks, query=real)
        return (x, c, self._table(), masks), (grid, around)

    def _windows(self, rank):
        """Yields size, stride and dilation along each axis."""
        return zip(
            scope_per_axis("kernel_size", self.kernel_size, rank),
            int_per_axis("strides", self.strides, rank),
            int_per_axis("dilation_rate", self.dilation_rate, rank),
            strict=True,
        )

    def _axes(self, grid):
        """Returns the axes of the convolution before they are cropped."""
        windows = zip(grid, self._windows(len(grid)), strict=True)
        axis_of = _AXIS[self.padding]
        return [axis_of(size, *window) for size, window in windows]

    def _at_centers(self, x, axes):
        """Returns `(batch, *spatial, ...)` at the positions of the queries."""
        if self.padding != "valid" and all(axis.stride == 1 for axis in axes):
            return x
        cuts = [slice(None)]
        for axis in axes:
            first = 0 if self.causal else center_of(axis)
            last = first + (axis.queries - 1) * axis.stride
            cuts.append(slice(first, last + 1, axis.stride))
        return x[tuple(cuts)]

    def _geometry(self, grid):
        if self.position_embedding is not None:
            self.position_embedding.entries_for((None,) * len(grid))
        return ops.Geometry.of(self._axes(grid))

    def _causal_window(self):
        """Returns size, stride and dilation of a causal window."""
        (window,) = self._windows(1)
        return window

    def compute_output_shape(self, input_shape):
        grid = tuple(input_shape)[1:-1]
        axes = self._axes([size or 1 for size in grid])
        sizes = [n and a.queries for n, a in zip(grid, axes, strict=True)]
        if any(size is not None and size < 1 for size in sizes):
            raise ValueError(
                "`inputs` must not be smaller than the window of `kernel_size` "
                f"and `dilation_rate` with padding {self.padding!r}. Received: "
                f"inputs of shape {input_shape}, kernel_size="
                f"{self.kernel_size}, dilation_rate={self.dilation_rate}."
            )
        return (input_shape[0], *sizes, self.filters)

    def compute_mask(self, inputs, mask=None):
        # Keras 3 calls this for symbolic tensors, and again for real ones.
        if mask is None or not tf.is_tensor(mask) or not tf.is_tensor(inputs):
            return None
        if self.built:
            inputs = grids.as_built(inputs, self._built_shape, self)
        grid = grids.grid_of(inputs)
        mask = ops.padding_mask(inputs, mask=mask)
        mask = tf.reshape(mask, [ops.size(inputs, 0), *grid])
        return self._at_centers(mask, self._axes(grid))
