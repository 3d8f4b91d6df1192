"""Layers whose keys and values may come from a second input."""

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.layers.base import BaseLayer
from lambdanet_tf.layers.base import as_array
from lambdanet_tf.layers.grids import check_shape
from lambdanet_tf.layers.grids import known_shape
from lambdanet_tf.layers.grids import num_positions
from lambdanet_tf.layers.grids import size_of_grid
from lambdanet_tf.layers.grids import with_shape


class ContextLayer(BaseLayer):
    """A layer called on `inputs` and, optionally, a `context` of its own.

    Subclasses check the two shapes in `_check_shapes`, create their weights in
    `_build`, and raise in `_check_static` if an `attention_mask` needs static
    sizes.
    """

    _context_shape = None

    def __call__(self, inputs, context=None, **kwargs):
        context = as_array(context)
        if kwargs.get("attention_mask") is not None:
            # Keras 3 does not run `call` on symbolic tensors.
            built = self._build_shapes[0] if self.built else inputs.shape
            self._check_static(known_shape(inputs.shape, built)[1:-1])
        # Keras 2 tells `build` the shape of the first argument only.
        self._context_shape = None if context is None else context.shape
        return super().__call__(inputs, context=context, **kwargs)

    def build(self, inputs_shape, context_shape=None):
        inputs_shape = tuple(inputs_shape)
        context_shape = tuple(
            context_shape or self._context_shape or inputs_shape
        )
        self._check_shapes(inputs_shape, context_shape)
        self._build_shapes = [inputs_shape, context_shape]
        self._build(inputs_shape, context_shape)
        super().build(inputs_shape)

    def _as_built(self, x, argument, with_grid):
        """Inputs (0) or context (1), with the static sizes known from build.

        The grid only where one must be static: others can change.
        """
        batch, *grid, channels = self._build_shapes[argument]
        if not with_grid:
            grid = [None] * len(grid)
        return with_shape(x, [None, *grid, channels])

    def get_build_config(self):
        return {"shapes": self._build_shapes} if self.built else None

    def build_from_config(self, config):
        if config is not None:
            self.build(*config["shapes"])


def check_batches(inputs_shape, context_shape):
    """Raises a ValueError if two shapes have different batch sizes."""
    batches = inputs_shape[0], context_shape[0]
    if None not in batches and batches[0] != batches[1]:
        raise ValueError(
            "`inputs` and `context` must have the same batch size. "
            f"Received: {batches[0]} and {batches[1]}."
        )


def check_context_mask(context_mask, context):
    """Raises a ValueError unless a mask has the context's positions."""
    if context_mask is None:
        return
    batch, *grid = context.shape[:-1]
    check_shape(
        "context_mask",
        context_mask.shape,
        ((batch, num_positions(context)), (batch, *grid)),
        "(batch, context positions) or (batch, *spatial)",
    )


def by_example(pairs, inputs, context, depths=(), axis=None):
    """Gives a mask or embeddings of pairs of positions their static sizes.

    Args:
        pairs: None or `(n, m, *depths)`, or that with an axis for the batch,
            which what has no static rank is given.
        inputs: `(batch, *spatial, channels)`.
        context: the same.
        depths: sizes behind the positions.
        axis: None, or the only spatial axis that counts.
    """
    if pairs is None:
        return None
    if axis is None:
        shape = [size_of_grid(inputs), size_of_grid(context), *depths]
    else:
        shape = [ops.size(inputs, axis), ops.size(context, axis), *depths]
    static = [size if isinstance(size, int) else None for size in shape]
    if pairs.shape.rank is None:
        pairs = tf.reshape(pairs, [-1, *shape])
        pairs = tf.broadcast_to(pairs, [tf.shape(inputs)[0], *shape])
        return tf.ensure_shape(pairs, [None, *static])
    return with_shape(pairs, [None] * (pairs.shape.rank - len(shape)) + static)


def check_attention_mask(attention_mask, batch, n, m):
    """Raises a ValueError unless a mask is one of n by m positions."""
    if attention_mask is None:
        return
    check_shape(
        "attention_mask",
        attention_mask.shape,
        ((n, m), (batch, n, m)),
        "(n, m) or (batch, n, m): query by context positions. (Padding of a "
        "batch is `context_mask`)",
    )
