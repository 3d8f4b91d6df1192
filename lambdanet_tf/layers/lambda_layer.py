"""The lambda layer."""

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.arguments import scope_per_axis
from lambdanet_tf.layers import grids
from lambdanet_tf.layers.argument import serializable
from lambdanet_tf.layers.base import not_converted
from lambdanet_tf.layers.context import ContextLayer
from lambdanet_tf.layers.context import scope_of_grid
from lambdanet_tf.layers.streaming import StreamingLambda


@serializable
class LambdaLayer(ContextLayer, StreamingLambda):
    """Lets positions interact over long ranges, without attention maps.

    Each position turns its context into a linear function, a lambda, and
    applies it to its queries. The layer replaces a convolution or a
    self-attention layer on sequences, images and volumes. If you need strides,
    dilation or Keras' padding, use `LambdaConv`.

        Q = norm(X Wq)   K = softmax over m of (C Wk)   V = norm(C Wv)
        content lambda    Lc[b, k, v]    = sum over m, u of K V
        position lambdas  Lp[b, n, k, v] = sum over m, u of E V
        Y[b, n, h]                       = (Lc + Lp[n])^T Q[n, h]

    In the paper's symbols, `num_heads` is |h|, `key_dim` |k|, `intra_depth`
    |u|, `filters` d = |h| |v|, and `scope` the local scope |r|. X are the
    inputs, C the context (X by default), and E = R[m - n] depends on the
    relative position m - n. The layer does not differ from the paper.

    A built causal layer with a local scope, or without a position part, can
    also take a sequence in pieces: `state = layer.initial_state(batch_size)`,
    then `outputs, state = layer.step(inputs, state)` for one or more new
    positions. The state does not grow; see `docs/sequences.md`.

    `layer.plan` and `layer.inference_plan`, set at build, are the
    `lambdanet_tf.ops.Plan` of the position part, or None if there is no table.
    `layer.read(inputs, position)` returns how much a query reads from each
    context position, with separate weights for content and position.

    The sublayers are attributes. `query`, `key` and `value` are Dense without
    bias, with `num_heads * key_dim`, `key_dim * intra_depth` and `value_dim *
    intra_depth` units (the first factor varies slowest). `query_norm` and
    `value_norm` are BatchNormalization or None. `position_embedding` holds the
    table as `embeddings`. The weight `position_bias` is `(key_dim,)` or None.

    Args:
        filters: int. Output channels, divisible by `num_heads`. None for as
            many as the inputs have.
        num_heads: int. Queries per position.
        key_dim: int. Depth of queries and keys.
        intra_depth: int. Extra depth of keys, values and embeddings, over
            which the lambdas sum.
        scope: None for a global position part, an odd int, or one odd int
            per axis: positions up to `scope // 2` away have an embedding. The
            content part is always global.
        use_content: bool. Whether to use a content lambda. Without it, the
            layer has no keys.
        use_position: bool. Whether to use position lambdas.
        use_position_bias: bool. Whether to add a learned bias to them, one
            number per key depth, as PyTorch Image Models (timm) does. It adds
            `sum over k of Q[n, h, k] position_bias[k]` to every output
            channel of a head, at every position, regardless of masks.
        causal: bool. Whether a position sees only itself and those before
            it. Needs one spatial axis.
        position_embedding: "relative" for a table of its own, "explicit" if
            every call passes `embeddings`, or a `RelativePositionEmbedding`
            to share between layers.
        implementation: str. One of `lambdanet_tf.ops.implementations()`: how
            to compute the position part. All compute the same function. If
            one does not support the rank of a fixed size, "auto" replaces it.
            Calls with an `attention_mask` or `embeddings` form all pairs.
        key_normalization: "softmax", "l2" or None, over context positions.
        query_normalization: None, or "softmax" over `key_dim`.
        use_batch_norm: bool. Whether to batch-normalize queries and values.
            None for True, as in the paper, except in causal layers, because
            batch statistics include later positions.
        norm_momentum: float. Momentum of the batch normalization.
        norm_epsilon: float. Epsilon of the batch normalization.
        use_sync_bn: bool. Whether batch statistics span all replicas.
        query_initializer: any Keras initializer, or None for the paper's
            N(0, 1 / (key_dim channels)).
        key_initializer: any Keras initializer, or None for the paper's
            N(0, 1 / channels). `value_initializer` has the same default.
        embeddings_initializer: any Keras initializer, or None for the paper's
            N(0, 1), and a tenth of its deviation in causal layers.
        position_bias_initializer: any Keras initializer.
        kernel_regularizer: for the three projections, as `kernel_constraint`.
        embeddings_regularizer: for the table, as `embeddings_constraint`.

    Call arguments:
        inputs: `(batch, *spatial, channels)`, one to three spatial axes of
            any size. If the position part is global, sizes must be static.
        context: None for the inputs, or a tensor with any number of channels
            on the same grid. If the position part is off or "explicit", the
            number of positions may also differ.
        attention_mask: None, `(n, m)` or `(batch, n, m)`, bool or 0 and 1: 1
            where query position n may interact with context position m, with
            positions flattened row-major. If the layer has a table, sizes
            must be static. `(batch, 1, m)` applies to all queries, and is as
            cheap as padding.
        context_mask: None, `(batch, m)` or `(batch, *context spatial)`: 0
            where the context is padding. A mask that Keras propagates with
            the context has the same effect.
        embeddings: `(n, m, key_dim)` or `(batch, n, m, key_dim)`, with a last
            axis for an intra-depth above 1. Only for "explicit".
        training: bool. Whether to use and collect batch statistics.

    Output shape:
        `(batch, *spatial, filters)`, channels head-major, in the compute
        dtype. Zero, except for the position bias, where masks permit nothing.

    Cost: c (h k + k u) + c v u + r k u parameters for c channels and r table
    entries. Operations and memory depend on `implementation`, see
    `docs/engine.md`.

    Examples:
        >>> images = tf.random.normal([2, 14, 14, 256])
        >>> LambdaLayer(num_heads=4, key_dim=16, scope=7)(images).shape
        TensorShape([2, 14, 14, 256])

    Reference: [Bello, 2021](https://arxiv.org/abs/2102.08602), section 3.
    """

    def __post_init__(self):
        super().__post_init__()
        self._has_geometry = self.position_embedding is not None

    @not_converted
    def call(
        self,
        inputs,
        context=None,
        attention_mask=None,
        context_mask=None,
        embeddings=None,
        mask=None,
        training=None,
    ):
        operands, (grid, around) = self._operands(
            inputs, context, attention_mask, context_mask, embeddings, mask
        )
        place = self._place(around, training, batch=operands[0].shape[0])
        outputs, _ = self._outputs(operands, place, training)  # [b, n, h, v]
        return grids.unflatten(outputs, grid)  # [b, *grid, h * v]

    def _operands(
        self,
        inputs,
        context=None,
        attention_mask=None,
        context_mask=None,
        embeddings=None,
        mask=None,
    ):
        """Returns operands of `_outputs`, and grids of queries and context."""
        inputs, context, pairs = self._prepared(inputs, context, attention_mask)
        masks = ops.Masks.of_call(
            inputs, context, mask, context_mask, pairs, self.causal
        )
        embeddings = self._embeddings(embeddings, inputs, context)
        x, grid = c, around = grids.flatten(inputs)  # [b, n, channels]
        if context is not inputs:
            c, around = grids.flatten(context)  # [b, m, channels]
        return (x, c, embeddings, masks), (grid, around)

    def _embeddings(self, given, inputs, context):
        """Returns the table or `given`, as `(..., key_dim, intra_depth)`."""
        is_explicit = self._position_embedding_argument == "explicit"
        if (is_explicit and self.use_position) != (given is not None):
            raise ValueError(
                "`embeddings` (queries, context positions, key_dim) must be "
                "passed if, and only if, position_embedding='explicit' and "
                f"use_position=True. Received: {getattr(given, 'shape', None)}."
            )
        if given is None:
            return self._table()
        given = tf.cast(given, self.compute_dtype)
        shape = [x.shape[1:-1].num_elements() for x in (inputs, context)]
        shape += [self.key_dim] + [self.intra_depth] * (self.intra_depth > 1)
        if given.shape.rank == len(shape) + 1:
            shape = [inputs.shape[0], *shape]
        if not given.shape.is_compatible_with(shape):
            raise ValueError(
                "`embeddings` must have the shape (query positions, context "
                "positions, depths), optionally with a leading batch axis: "
                f"here {shape}. Received: {tuple(given.shape)}."
            )
        given = tf.ensure_shape(given, shape)
        return tf.expand_dims(given, -1) if self.intra_depth == 1 else given

    def _geometry(self, grid):
        """Returns the geometry of the table on a grid, or None."""
        if self.position_embedding is None:
            return None
        entries = self.position_embedding.entries_for(grid)
        return scope_of_grid(grid, entries, self.causal)

    def _causal_window(self):
        """Returns size, stride and dilation of a causal window."""
        (scope,) = scope_per_axis("scope", self.scope, 1) or (1,)
        return scope // 2 + 1, 1, 1
