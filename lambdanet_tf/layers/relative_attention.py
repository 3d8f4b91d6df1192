"""Softmax attention with relative positions."""

import math
from typing import Any

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.arguments import boolean
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.arguments import scope_per_axis
from lambdanet_tf.layers import grids
from lambdanet_tf.layers.argument import argument
from lambdanet_tf.layers.argument import serializable
from lambdanet_tf.layers.base import not_converted
from lambdanet_tf.layers.context import ContextLayer
from lambdanet_tf.layers.context import scope_of_grid
from lambdanet_tf.layers.position_embedding import RelativePositionEmbedding
from lambdanet_tf.layers.projections import ProjectionLayer


@serializable
class RelativeAttention(ContextLayer, ProjectionLayer):
    """Computes multi-head attention with relative positions on any grid.

    We compare lambda layers with this attention, on the same sequences, images
    and volumes. It is global, local (`scope`), or runs along one axis (`axis`);
    for axial attention, use one layer per axis. `LambdaLayer` replaces it
    without attention maps.

        Q = X Wq / sqrt(k)   K = C Wk   V = C Wv
        S[b, h, n, m] = Q[b, n, h] . (K[b, m, h] + E[n, m])
        Y[b, n, h]    = sum over m of softmax over m (S)[b, h, n, m] V[b, m, h]

    X are the inputs, C the context (X by default), k the depth of a head's
    keys. E depends on m - n only, and all heads share it: the sum of a learned
    embedding per axis, or one table for all axes, as in lambda layers. As in
    Bello et al. (2019), the scale applies to both terms. There is no output
    projection. Positions outside the map are never attended to. With a local
    scope, memory is linear in the number of positions.

    The sublayers are attributes: `query`, `key`, `value` (Dense without bias,
    channels head-major), and the tables `position_embedding` or
    `axis1_embedding` and so on, numbered like `axis`.

    Args:
        filters: int. Output channels, divisible by `num_heads`. None for as
            many as the inputs have.
        num_heads: int. Attention maps per position.
        key_dim: int. Depth of a head's queries and keys. None for the depth of
            its values, `filters / num_heads`.
        scope: None for global attention, an odd int, or one odd int per axis:
            a query sees positions up to `scope // 2` away.
        axis: None to attend over all spatial axes at once, or the axis of the
            inputs along which positions see each other: 1 for the height, 2
            for the width of an image. Parallel lines do not interact.
        use_content: bool. Whether scores depend on keys. If False, the layer
            has no keys.
        position_embedding: "per_axis", "joint", None for scores without
            positions, or a `RelativePositionEmbedding` (a joint table) to
            share between layers.
        causal: bool. Whether a position sees only itself and those before it.
            Needs one spatial axis, or `axis`.
        query_initializer: any Keras initializer, or None for N(0, 1 /
            channels); so are `key_initializer` and `value_initializer`.
        embeddings_initializer: any Keras initializer, or None for N(0, 1 / k).
        kernel_regularizer: for the three projections, as `kernel_constraint`.
        embeddings_regularizer: for the tables, as `embeddings_constraint`.

    Call arguments:
        inputs: `(batch, *spatial, channels)`, one to three spatial axes of
            any size. If attention is global and has positions, sizes must be
            static.
        context: None for the inputs, or a tensor with any number of channels
            on the same grid. If attention is global, not causal and without
            positions, the number of positions may also differ.
        attention_mask: as in `LambdaLayer`, for the positions along `axis` if
            it is set. It forms all pairs. Sizes must then be static, unless
            attention is global and without positions, or the mask is
            `(batch, 1, m)`.
        context_mask: as in `LambdaLayer`.
        return_attention_scores: bool. Whether to return `(outputs, scores)`.
            It forms all pairs, and needs static sizes if the layer has
            positions or a scope.

    Output shape:
        `(batch, *spatial, filters)`, channels head-major, in the compute
        dtype. Zero where masks permit nothing. The scores are the softmax that
        multiplies the values: `(batch, heads, n, m)`, or `(batch, *other
        spatial, heads, n, m)` with `axis`.

    Cost: c h (2 k + v) + r k parameters for c channels and r table entries in
    all. If a query sees m positions, about 2 n m h (k + v) operations and
    8 n m h bytes of scores and weights per example.

    Examples:
        >>> images = tf.random.normal([2, 14, 14, 256])
        >>> RelativeAttention(num_heads=8, scope=7)(images).shape
        TensorShape([2, 14, 14, 256])

    Reference: [Bello et al., 2019](https://arxiv.org/abs/1904.09925),
    [Ramachandran et al., 2019](https://arxiv.org/abs/1906.05909) (local),
    [Ho et al., 2019](https://arxiv.org/abs/1912.12180) and [Wang et al.,
    2020](https://arxiv.org/abs/2003.07853) (axial), [Srinivas et al.,
    2021](https://arxiv.org/abs/2101.11605), [Vaswani et al.,
    2021](https://arxiv.org/abs/2103.12731).
    """

    _position_embeddings = ("per_axis", "joint", None)
    num_heads: int = argument(default=8, check=positive_int)
    key_dim: int | None = argument(default=None, check=positive_int)
    axis: int | None = argument(default=None, check=positive_int)
    use_content: bool = argument(default=True, check=boolean)
    position_embedding: Any = argument(default="per_axis")

    def __post_init__(self):
        super().__post_init__()
        given = self._position_embedding_argument
        if given is None and not self.use_content:
            raise ValueError(
                "`use_content=False` needs a `position_embedding` ('per_axis' "
                "or 'joint') for the scores. Received: position_embedding=None."
            )
        shared = isinstance(given, RelativePositionEmbedding)
        self.position_embedding = self._shared(given) if shared else None
        self._has_geometry = given is not None or self.scope is not None

    @property
    def value_dim(self):
        """Channels of one head's output; known once the layer is built."""
        return self.value.units // self.num_heads

    @property
    def key_depth(self):
        """Depth of a head's queries; known once the layer is built."""
        return self.query.units // self.num_heads

    # Not a property, which would add a path to the files of tf_keras.
    def tables(self):
        """Returns the tables of relative positions, once the layer is built."""
        if self.position_embedding is not None:
            return (self.position_embedding,)
        return tuple(getattr(self, name) for name in self._table_names)

    def _build(self, inputs_shape, context_shape):
        filters = self._divisible(self.filters or inputs_shape[-1])
        depth = self.key_dim or filters // self.num_heads
        units = self.num_heads * depth
        self._build_projections(
            (inputs_shape, context_shape), (units, units, filters)
        )
        self._build_tables(self._attended(inputs_shape[1:-1]), depth)

    def _build_tables(self, grid, depth):
        """Creates the tables for a grid, or checks a shared one."""
        scopes = scope_per_axis("scope", self.scope, rank=len(grid))
        normal = tf.keras.initializers.RandomNormal(stddev=depth**-0.5)
        given, self._table_names = self._position_embedding_argument, ()
        parts = [grid]
        if given == "per_axis":
            first, parts = self.axis or 1, [[size] for size in grid]
            numbers = range(first, first + len(grid))
            self._table_names = tuple(f"axis{i}_embedding" for i in numbers)
            scopes = scopes or [None for _ in grid]
            for name, scope in zip(self._table_names, scopes, strict=True):
                table = self._new_table(name, normal, depth, scope=scope)
                setattr(self, name, table)
        elif given == "joint":
            self.position_embedding = self._new_table(
                "position_embedding", normal, depth, scope=self.scope
            )
        elif given is not None:
            self._check_shared(
                given, key_dim=depth, intra_depth=1, scope=self.scope
            )
        for table, sizes in zip(self.tables(), parts, strict=False):
            if not table.built:
                self._build_sublayer(table, (None, *sizes, depth))

    @not_converted
    def call(
        self,
        inputs,
        context=None,
        attention_mask=None,
        context_mask=None,
        return_attention_scores=False,
        mask=None,
        training=None,  # Keras 2 passes it to every layer
    ):
        inputs, context, pairs = self._prepared(inputs, context, attention_mask)
        masks = self._masks(inputs, context, mask, context_mask, pairs)
        x = self._lines(inputs)  # [b, n, channels]
        c = self._lines(context)
        x, c = masks.filled(x, c)
        outputs = ops.relative_attention(
            self._heads(self.query, x) * self.key_depth**-0.5,  # [b, n, h, k]
            self._heads(self.key, c) if self.use_content else None,
            self._heads(self.value, c),  # [b, m, h, v]
            self._embeddings(),
            self._geometry(self._attended(grids.grid_of(context))),
            masks,
            return_attention_scores,
        )  # [b, n, h, v]
        if not return_attention_scores:
            return self._of_lines(outputs, inputs)  # [b, *grid, h * v]
        outputs, scores = outputs  # [b, h, n, m]
        scores = self._scores_of_lines(scores, inputs)
        return self._of_lines(outputs, inputs), scores

    def _heads(self, projection, x):
        """Projects `(batch, n, channels)` to `(batch, n, heads, depth)`."""
        depth = projection.units // self.num_heads
        return grids.split(projection(x), self.num_heads, depth)

    def _embeddings(self):
        """Returns the table `(*entries, key_dim)`, one per axis, or None."""
        tables = tuple(
            tf.convert_to_tensor(table.embeddings)[..., 0]  # no intra-depth
            for table in self.tables()
        )
        is_joint = self.position_embedding is not None
        return tables[0] if is_joint else tables or None

    def _order(self, x):
        """Returns the order of axes that ends in `axis` and the channels."""
        rank = len(x.shape)
        others = [i for i in range(rank - 1) if i != self.axis]
        return [*others, self.axis, rank - 1]

    def _lines(self, x):
        """Cuts `(batch, *spatial, c)` into lines, `(batch of lines, n, c)`."""
        if self.axis is None:
            return grids.flatten(x)[0]
        shape = [-1, ops.size(x, self.axis), x.shape[-1]]
        return tf.reshape(tf.transpose(x, self._order(x)), shape)

    def _of_lines(self, outputs, inputs):
        """Joins lines `(batch of lines, n, h, v)`: the inverse of `_lines`."""
        if self.axis is None:
            return grids.unflatten(outputs, grids.grid_of(inputs))
        order = self._order(inputs)
        sizes = [ops.size(inputs, axis) for axis in order[:-1]]
        outputs = tf.reshape(outputs, [*sizes, self.value.units])
        return tf.transpose(outputs, [order.index(i) for i in sorted(order)])

    def _scores_of_lines(self, scores, inputs):
        """Separates the batch of lines into batch and other spatial axes."""
        if self.axis is None:
            return scores
        lines = [ops.size(inputs, axis) for axis in self._order(inputs)[:-2]]
        return tf.reshape(scores, [*lines, *tf.unstack(tf.shape(scores))[1:]])

    def _masks(self, inputs, context, mask, context_mask, pairs):
        """Returns the masks of a call, of lines if `axis` is set."""
        given = inputs, context, mask, context_mask
        if self.axis is None:
            return ops.Masks.of_call(*given, pairs, self.causal)

        def of_lines(mask, x):
            if mask is None:
                return None
            x = tf.reshape(mask, [-1, *grids.grid_of(x), 1])
            return tf.squeeze(self._lines(x), -1)

        masks = ops.Masks.of_call(*given)
        query = of_lines(masks.query, inputs)
        real = of_lines(masks.context, context)
        if pairs is not None:
            lengths = inputs.shape[self.axis], context.shape[self.axis]
            ops.check_attention_mask(pairs, inputs.shape[0], *lengths)
        others = self._order(inputs)[1:-2]
        lines = math.prod(ops.size(inputs, axis) for axis in others)
        return ops.Masks.of(query, real, pairs, self.causal, lines)

    def _geometry(self, grid):
        """Returns what a query sees of a grid, or None if it sees all."""
        entries = scope_per_axis("scope", self.scope, rank=len(grid))
        if self.position_embedding is not None:
            entries = self.position_embedding.entries_for(grid)
        elif self.tables():
            pairs = zip(self.tables(), grid, strict=True)
            entries = [table.entries_for((size,))[0] for table, size in pairs]
        return entries and scope_of_grid(grid, entries, self.causal)
