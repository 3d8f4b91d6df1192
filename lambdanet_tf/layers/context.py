"""Layers whose keys and values may come from a second input."""

from typing import Any

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.arguments import boolean
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.arguments import scope_per_axis
from lambdanet_tf.environment import keras_mask
from lambdanet_tf.layers import grids
from lambdanet_tf.layers.argument import argument
from lambdanet_tf.layers.base import BaseLayer
from lambdanet_tf.ops.masks import differs_by_query


class ContextLayer(BaseLayer):
    """A layer called on `inputs` and, optionally, a separate `context`.

    Subclasses create their weights in `_build`. They set `_has_geometry` if a
    query's position decides what it sees, and `axis` if positions interact
    along one axis only.
    """

    filters: int | None = argument(
        default=None, check=positive_int, kw_only=False
    )
    scope: Any = argument(default=None, check=scope_per_axis)
    causal: bool = argument(default=False, check=boolean)

    _has_geometry: bool
    _context_shape = None
    axis = None

    def __call__(self, inputs, context=None, *args, **kwargs):
        if context is not None and context is not inputs:
            if not self.built:  # Keras 2 passes only the inputs to `build`.
                self._context_shape = context.shape
            kwargs["context"] = context
        elif args:
            args = (None, *args)
        if kwargs:  # Keras finds the mask of a single tensor itself.
            kwargs = with_keras_masks(inputs, kwargs)
        return super().__call__(inputs, *args, **kwargs)

    def build(self, inputs_shape, context_shape=None):
        inputs_shape = tuple(inputs_shape)
        called_with, self._context_shape = self._context_shape, None
        context_shape = tuple(context_shape or called_with or inputs_shape)
        grids.check_grid("inputs", inputs_shape)
        self._check_shapes(inputs_shape, context_shape)
        self._build_shapes = inputs_shape, context_shape
        # Any grid fits, unless a global table fixes it.
        is_free = not self._has_geometry or self.scope is not None
        self._shapes = tuple(
            (None, *(None if is_free else size for size in grid), channels)
            for _, *grid, channels in self._build_shapes
        )
        self._build(inputs_shape, context_shape)
        super().build(inputs_shape)

    def get_build_config(self):
        return {"shapes": self._build_shapes} if self.built else None

    def build_from_config(self, config):
        if config is not None:
            self.build(*config["shapes"])

    def compute_output_shape(self, inputs_shape):
        return (*inputs_shape[:-1], self.filters or inputs_shape[-1])

    def _attended(self, grid):
        """Returns the sizes of the axes along which positions interact."""
        grid = tuple(grid)
        return grid if self.axis is None else grid[self.axis - 1 : self.axis]

    def _prepared(self, inputs, context, attention_mask):
        """Returns inputs, context (the inputs if None) and mask."""
        fixed = False
        if attention_mask is not None:  # tf_keras reads constants as lists.
            attention_mask = tf.convert_to_tensor(attention_mask)
            fixed = self._has_geometry and differs_by_query(attention_mask)
        # If sizes must be static, unknown ones are those of `build`.
        shapes = self._build_shapes if fixed else self._shapes
        inputs = grids.as_built(inputs, shapes[0], self)
        if context is None:
            return inputs, inputs, attention_mask
        context = tf.cast(context, self.compute_dtype)
        context = grids.as_built(context, shapes[1], self, "context")
        self._check_shapes(tuple(inputs.shape), tuple(context.shape))
        return inputs, context, attention_mask

    def _check_shapes(self, inputs_shape, context_shape):
        grids.check_grid("context", context_shape)
        attended = self._attended(inputs_shape[1:-1])
        if not attended:
            raise ValueError(
                "`axis` must be a spatial axis of the inputs, counted from 1. "
                f"Received: axis={self.axis}, inputs of shape {inputs_shape}."
            )
        if self.causal and len(attended) != 1:
            raise ValueError(
                "`causal=True` needs inputs (batch, positions, channels): "
                f"reshape {inputs_shape}, or set `axis` in RelativeAttention."
            )
        on_grid = self._has_geometry or self.causal or self.axis is not None
        axes = -1 if on_grid else 1
        ours, others = inputs_shape[:axes], context_shape[:axes]
        if not tf.TensorShape(ours).is_compatible_with(others):
            raise ValueError(
                "`context` must have the same batch size as `inputs` and, if "
                "the layer has positions, `scope`, `axis` or `causal`, the "
                "same spatial size. For other sizes, set use_position=False "
                "(in lambda layers). "
                f"Received: {context_shape}, for inputs of {inputs_shape}."
            )


def scope_of_grid(grid, entries, causal):
    """Returns the `Geometry` of a table, or a scope, on a grid."""
    if causal:
        # The entries behind the center are never used.
        past = entries[0] // 2 + 1
        return ops.Geometry.of([ops.causal_axis(grid[0], past)])
    return ops.Geometry.of(map(ops.same_axis, grid, entries))


def with_keras_masks(inputs, arguments):
    """Adds the masks that Keras propagates to the arguments of a call.

    Casts drop these masks, and Keras 3 does not pass that of the context.
    """
    tensors = {"mask": inputs, "context_mask": arguments.get("context")}
    for name, x in tensors.items():
        mask = keras_mask(x)
        missing = mask is not None and arguments.get(name) is None
        if missing and not tf.keras.backend.is_keras_tensor(mask):
            arguments = {**arguments, name: mask}
    return arguments
