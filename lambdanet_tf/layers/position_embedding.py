"""The table of relative positions, which lambda layers can share."""

from operator import gt
from typing import Any

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.arguments import scope_per_axis
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.layers import grids
from lambdanet_tf.layers.argument import argument
from lambdanet_tf.layers.argument import keras_argument
from lambdanet_tf.layers.argument import serializable
from lambdanet_tf.layers.base import BaseLayer
from lambdanet_tf.layers.randomness import Initializers

_AUTOCAST = "autocast" if KERAS_3 else "experimental_autocast"


@serializable
class RelativePositionEmbedding(BaseLayer):
    """Learns an embedding for every relative position of a grid.

    This layer owns the table R of the paper's translation-equivariant
    embeddings E[n, m] = R[m - n]. A lambda layer creates its own table. If you
    pass one instance as `position_embedding` to several lambda layers, they
    share it (the paper's "shared embeddings", Table 4). Files, copies, pickles
    and `lambdanet_tf.models.clone_network` preserve sharing. Where Keras stores
    configurations only (`tf.keras.models.clone_model`, JSON, HDF5), each layer
    gets its own table.

    The table has the shape `(*entries, key_dim, intra_depth)`, also if the
    intra-depth is 1. An axis with a scope has `scope` entries, a global axis of
    size s has 2 s - 1. The entry for context position m, seen from query
    position n, is at `center + (m - n)`.

    If you call the layer on a tensor, it returns the embeddings of all pairs of
    positions, in the form that `LambdaLayer(position_embedding="explicit")`
    takes as `embeddings`.

    Args:
        key_dim: int. Query and key depth, the paper's |k|.
        intra_depth: int. The paper's |u|.
        scope: None (global), an odd int, or one odd int per axis: how many
            relative positions an axis has.
        embeddings_initializer: any Keras initializer, or None for the paper's
            N(0, 1).
        embeddings_regularizer: Keras regularizer.
        embeddings_constraint: Keras constraint.

    Input shape:
        `(batch, *spatial, channels)` with one to three spatial axes of static
        size. A global table serves the grid that it was built for, and smaller
        ones.

    Output shape:
        `(n, m, key_dim[, intra_depth])` for n = m positions. The last axis
        exists only if `intra_depth` > 1.

    Examples:
        >>> table = RelativePositionEmbedding(16, scope=7)
        >>> first = LambdaLayer(scope=7, position_embedding=table)
        >>> second = LambdaLayer(scope=7, position_embedding=table)
        >>> second(first(tf.random.normal([2, 8, 8, 32]))).shape
        TensorShape([2, 8, 8, 32])
        >>> table.embeddings.shape[:2]
        TensorShape([7, 7])

    Reference: [Bello, 2021](https://arxiv.org/abs/2102.08602), section 3.2.
    """

    key_dim: int = argument(default=16, check=positive_int, kw_only=False)
    intra_depth: int = argument(default=1, check=positive_int)
    scope: Any = argument(default=None, check=scope_per_axis)
    embeddings_initializer: Any = keras_argument(default=None)
    embeddings_regularizer: Any = keras_argument(default=None)
    embeddings_constraint: Any = keras_argument(default=None)

    def build(self, input_shape):
        grids.check_grid("inputs", tuple(input_shape))
        entries = self._entries(tuple(input_shape[1:-1]))
        normal = tf.keras.initializers.RandomNormal(stddev=1.0)
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(*entries, self.key_dim, self.intra_depth),
            initializer=Initializers()(self.embeddings_initializer or normal),
            regularizer=self.embeddings_regularizer,
            constraint=self.embeddings_constraint,
            trainable=True,
            # Cast after it is gathered, so that float32 sums its gradient.
            **{_AUTOCAST: False},
        )
        self._built_shape = None, *input_shape[1:-1], None
        super().build(input_shape)

    def _entries(self, grid):
        """Returns the number of relative positions on each axis of a grid."""
        scope = scope_per_axis("scope", self.scope, rank=len(grid))
        if scope is not None:
            return scope
        if None in grid:
            raise ValueError(
                "Global lambda and attention layers need a fixed input size. "
                f"Received: a grid of {grid}. Fix it, or use local ones: an odd"
                " `scope`, or the letter S in the `pattern` of a network."
            )
        return tuple(2 * size - 1 for size in grid)

    def entries_for(self, grid):
        """Returns the table's entries per axis; raises if a grid is larger."""
        entries = wanted = tuple(self.embeddings.shape[:-2])
        if self.scope is None:
            grid = tuple(n if isinstance(n, int) else None for n in grid)
            wanted = self._entries(grid)
        if len(grid) != len(entries) or any(map(gt, wanted, entries)):
            built = tuple((size + 1) // 2 for size in entries)
            raise ValueError(
                f"The position embedding {self.name!r} was built for a grid of "
                f"{built}, and serves only that and smaller ones. Received: a "
                f"grid of {grid}. Build the layer for the largest grid first, "
                "or build it for this grid and let "
                "`lambdanet_tf.models.load_weights` interpolate the table. Or "
                "set `scope` to an odd number, which serves every size."
            )
        return entries

    def call(self, inputs):
        inputs = grids.as_built(inputs, self._built_shape, self)
        grid = tuple(inputs.shape[1:-1])
        axes = map(ops.same_axis, grid, self.entries_for(grid))
        geometry = ops.Geometry.of(axes)
        table = geometry.crop(tf.convert_to_tensor(self.embeddings))
        pairs = ops.pair_embeddings(table, geometry, self.compute_dtype)
        return pairs if self.intra_depth > 1 else tf.squeeze(pairs, -1)

    def compute_output_shape(self, input_shape):
        positions = 1
        for size in input_shape[1:-1]:
            positions = positions * size if size and positions else None
        intra = () if self.intra_depth == 1 else (self.intra_depth,)
        return (positions, positions, self.key_dim, *intra)
