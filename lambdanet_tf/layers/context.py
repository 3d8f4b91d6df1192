"""Layers whose keys and values may come from a second input."""

import tensorflow as tf

from lambdanet_tf.layers.base import BaseLayer
from lambdanet_tf.layers.grids import known_shape
from lambdanet_tf.layers.grids import size_of_grid
from lambdanet_tf.layers.grids import with_shape
from lambdanet_tf.layers.masks import is_alike


class ContextLayer(BaseLayer):
    """A layer called on `inputs` and, optionally, a `context` of its own.

    Subclasses check the two shapes in `_check_shapes`, create their weights in
    `_build`, and raise in `_check_static` if an `attention_mask` needs static
    sizes.
    """

    _several = (
        "Keys and values are made of the context: layer(query, context=value)."
    )
    _context_shape = None

    def __call__(self, *args, **kwargs):
        try:
            return super().__call__(*args, **kwargs)
        finally:
            if self._context_shape is not None:
                self._context_shape = None

    def _prepare(self, inputs, arguments):
        context = arguments.get("context")
        if not self.built and context is not None:
            # Keras 2 tells `build` the shape of the first argument only.
            self._context_shape = context.shape
        mask = arguments.get("attention_mask")
        if mask is not None and not is_alike(mask.shape):
            # Keras 3 does not run `call` on symbolic tensors.
            built = self._build_shapes[0] if self.built else inputs.shape
            self._check_static(known_shape(inputs.shape, built)[1:-1])

    # Keras 3 compares named arguments with those of `call`; `input_shape` is
    # what other layers call the first.
    def build(self, inputs_shape=None, context_shape=None, **kwargs):
        if inputs_shape is None:
            inputs_shape = kwargs.pop("input_shape", None)
        if inputs_shape is None or kwargs:
            raise ValueError(
                "`build` must be given `inputs_shape`, and can be given "
                f"`context_shape`. Received: inputs_shape={inputs_shape}"
                f"{''.join(f', {name}=...' for name in kwargs)}."
            )
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


def by_example(pairs, inputs, context, depths):
    """Gives embeddings of pairs of positions their static sizes.

    Args:
        pairs: `(n, m, *depths)`, or that with an axis for the batch, which
            what has no static rank is given.
        inputs: `(batch, *spatial, channels)`.
        context: the same.
        depths: sizes behind the positions.
    """
    shape = [size_of_grid(inputs), size_of_grid(context), *depths]
    static = [size if isinstance(size, int) else None for size in shape]
    if pairs.shape.rank is None:
        pairs = tf.reshape(pairs, [-1, *shape])
        pairs = tf.broadcast_to(pairs, [tf.shape(inputs)[0], *shape])
        return tf.ensure_shape(pairs, [None, *static])
    return with_shape(pairs, [None] * (pairs.shape.rank - len(shape)) + static)
