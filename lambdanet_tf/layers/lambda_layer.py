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

    Every position turns its context into a linear function, a lambda, and
    applies it to its queries. A drop-in for a convolution or a self-attention
    layer on sequences, images and volumes. Use `LambdaConv` for strides,
    dilation, or Keras' padding.

        Q = norm(X Wq)   K = softmax over m of (C Wk)   V = norm(C Wv)
        content lambda    Lc[b, k, v]    = sum over m, u of K V
        position lambdas  Lp[b, n, k, v] = sum over m, u of E V
        Y[b, n, h]                       = (Lc + Lp[n])^T Q[n, h]

    Symbols here: `num_heads` is the paper's |h|, `key_dim` |k|,
    `intra_depth` |u|, `filters` d = |h| |v|, `scope` the local scope |r|. X
    are the inputs, C the context (X by default), m - n the relative position
    that E = R[m - n] depends on. Differences from the paper: none.

    With `causal` and a local scope, or without a position part, a sequence can
    also come piece by piece: `state = layer.initial_state(batch_size)`, then
    `outputs, state = layer.step(inputs, state)` for one or more new positions.
    The state does not grow; see `docs/sequences.md`.

    `layer.plan`, known at build, and `layer.inference_plan` are the
    `lambdanet_tf.ops.Plan` of the position part, None without a table.
    `layer.read(inputs, position)` returns what a query read: the weights over
    context positions that its lambdas imply, content and position apart.

    The sublayers are attributes: `query`, `key`, `value` (Dense without bias;
    kernels to `num_heads * key_dim`, `key_dim * intra_depth` and `value_dim *
    intra_depth` channels, in this order of axes, the first slowest),
    `query_norm`, `value_norm` (BatchNormalization or None) and
    `position_embedding`, whose `embeddings` are the table; so is the weight
    `position_bias`, `(key_dim,)` or None.

    Args:
        filters: int. Output channels. None: as many as the inputs have. Must
            be divisible by `num_heads`.
        num_heads: int. Queries per position.
        key_dim: int. Depth of queries and keys.
        intra_depth: int. Depth that keys, values and embeddings are summed
            over.
        scope: None for a global position part, an odd int, or one odd int
            per axis: positions up to `scope // 2` away have an embedding. The
            content part is always global.
        use_content: bool. Whether there is a content lambda; without, there
            are no keys.
        use_position: bool. Whether there are position lambdas.
        use_position_bias: bool. Whether a learned bias is added to them, one
            number per depth of the keys, as PyTorch Image Models (timm) does:
            `sum over k of Q[n, h, k] position_bias[k]` in every output
            channel of a head, at every position, whatever masks permit.
        causal: bool. Whether a position sees only itself and those before
            it. One spatial axis only.
        position_embedding: "relative" for a table of its own, "explicit" if
            every call brings `embeddings`, or a `RelativePositionEmbedding`
            to share between layers.
        implementation: str. One of `lambdanet_tf.ops.implementations()`: how
            the position part is computed; all compute the same function. Of
            one that does not serve the rank of the inputs, it counts as
            "auto". Calls with an `attention_mask` or `embeddings` form all
            pairs.
        key_normalization: "softmax", "l2" or None, over context positions.
        query_normalization: None, or "softmax" over `key_dim`.
        use_batch_norm: bool. Batch normalization of queries and values. None
            for that of the paper, but none in causal layers: statistics of a
            batch are also those of later positions.
        norm_momentum: float. Momentum of the batch normalization.
        norm_epsilon: float. Epsilon of the batch normalization.
        use_sync_bn: bool. Whether batch statistics span all replicas.
        query_initializer: any of Keras, or None for the paper's N(0, 1 /
            (key_dim channels)).
        key_initializer: as `value_initializer` any of Keras, or None for the
            paper's N(0, 1 / channels).
        embeddings_initializer: any of Keras, or None for the paper's N(0, 1).
        position_bias_initializer: any of Keras.
        kernel_regularizer: of the three projections, as `kernel_constraint`.
        embeddings_regularizer: of the table, as `embeddings_constraint`.

    Call arguments:
        inputs: `(batch, *spatial, channels)`, one to three spatial axes, of
            any size. Static sizes where the position part is global.
        context: None for the inputs, or a tensor like them with its own
            channels: on the same grid, or with any number of positions if
            the position part is off or "explicit".
        attention_mask: None, `(n, m)` or `(batch, n, m)`, bool or 0 and 1: 1
            where query position n may interact with context position m,
            positions flattened row-major. Sizes must be static if there is a
            table. Or `(batch, 1, m)` for all queries, as cheap as padding.
        context_mask: None or `(batch, m)` or `(batch, *context spatial)`: 0
            where the context is padding. A mask that Keras propagates with
            the context counts as one.
        embeddings: `(n, m, key_dim)` or `(batch, n, m, key_dim)`; with an
            intra-depth above 1 it is the last axis. Only for "explicit".
        training: bool. Whether batch statistics are used and collected.

    Output shape:
        `(batch, *spatial, filters)`, channels head-major, in the compute
        dtype. Zero, but for the position bias, where nothing is permitted.

    Cost: parameters c (h k + k u) + c v u + r k u for c channels and r table
    entries; operations and memory depend on `implementation`, see
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
        """Returns what `_outputs` takes, and grids of queries and context."""
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
        """Returns `(..., key_dim, intra_depth)`: the table, or given."""
        is_explicit = self._position_embedding_argument == "explicit"
        if (is_explicit and self.use_position) != (given is not None):
            raise ValueError(
                "`embeddings` must be given if, and only if, the layer has "
                "position_embedding='explicit' and use_position=True. "
                f"Received: {None if given is None else tuple(given.shape)}."
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
                "positions, depths), or that with a leading axis for the "
                f"batch; here {shape}. Received: {tuple(given.shape)}."
            )
        given = tf.ensure_shape(given, shape)
        return tf.expand_dims(given, -1) if self.intra_depth == 1 else given

    def _geometry(self, grid):
        """Returns how the table lies over a grid; None without a table."""
        if self.position_embedding is None:
            return None
        entries = self.position_embedding.entries_for(grid)
        return scope_of_grid(grid, entries, self.causal)

    def _causal_window(self):
        """Returns entries for a query and its past, stride and dilation."""
        (scope,) = scope_per_axis("scope", self.scope, 1) or (1,)
        return scope // 2 + 1, 1, 1
