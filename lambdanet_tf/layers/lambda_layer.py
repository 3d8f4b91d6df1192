"""The lambda layer."""

import functools
import math

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.layers.lambda_base import LambdaBase
from lambdanet_tf.layers.lambda_base import flatten
from lambdanet_tf.layers.lambda_base import grid_of


@tf.keras.utils.register_keras_serializable(package="lambdanet_tf")
class LambdaLayer(LambdaBase):
    """Long-range interactions between positions, without attention maps.

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
    that E = R[m - n] depends on. Differences from the paper: none; where it
    is silent: L2 normalisation of keys runs over context positions, as
    softmax does.

    The sublayers are attributes: `query`, `key`, `value` (Dense without bias;
    kernels to `num_heads * key_dim`, `key_dim * intra_depth` and `value_dim *
    intra_depth` channels, in this order of axes, the first slowest),
    `query_norm`, `value_norm` (BatchNormalization or None) and
    `position_embedding`, whose `embeddings` are the table. With `multi_head`,
    an axis of heads comes first in all of them.

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
        multi_head: bool. Whether each head has its own keys, embeddings and
            values (the paper's comparison) instead of sharing one lambda.
        causal: bool. Whether a position sees only itself and those before
            it. One spatial axis only.
        position_embedding: "relative" for a table of its own, "explicit" if
            every call brings `embeddings`, or a `RelativePositionEmbedding`
            to share between layers.
        implementation: str. One of `lambdanet_tf.ops.IMPLEMENTATIONS`: how
            the position part is computed; all compute the same function.
            Calls with a `mask` or `embeddings` always use dense products.
        key_normalization: "softmax", "l2" or None, over context positions.
        query_normalization: None, or "softmax" over `key_dim`.
        use_batch_norm: bool. Batch normalisation of queries and values.
        norm_momentum: float. Its momentum.
        norm_epsilon: float. Its epsilon.
        use_sync_bn: bool. Whether its statistics span all replicas.
        query_initializer: None for the paper's N(0, 1 / (key_dim channels)),
            or any Keras initialiser.
        key_initializer: None for the paper's N(0, 1 / channels), or any.
        value_initializer: likewise.
        embeddings_initializer: None for the paper's N(0, 1), or any.
        kernel_regularizer: Keras regulariser of the three projections.
        embeddings_regularizer: Keras regulariser of the table.
        kernel_constraint: Keras constraint of the three projections.
        embeddings_constraint: Keras constraint of the table.

    Call arguments:
        inputs: `(batch, *spatial, channels)`, one to three spatial axes, of
            any size. Static sizes where the position part is global.
        context: None for the inputs, or a tensor like them with its own
            channels: on the same grid, or with any number of positions if
            the position part is off or "explicit".
        mask: None or `(n, m)`, bool or 0 and 1, shared by the batch: 1 where
            query position n may interact with context position m. Positions
            are flattened row-major.
        context_mask: None or `(batch, m)` or `(batch, *context spatial)`: 0
            where the context is padding. A mask that Keras propagates with
            the context counts as one.
        embeddings: `(n, m, key_dim)` or `(batch, n, m, key_dim)`; with an
            intra-depth above 1 it is the last axis; with `multi_head`,
            `num_heads` comes before `key_dim`. Only for "explicit".
        training: bool. Whether batch statistics are used and collected.

    Output shape:
        `(batch, *spatial, filters)`, channels head-major, in the compute
        dtype. Zero where nothing is permitted.

    Raises:
        ValueError: if an argument is out of its range (at construction), if
            shapes do not fit or a needed size is unknown (at build or call).

    Cost: parameters c (h k + k u) + c v u + r k u for c channels and r table
    entries; operations and memory depend on `implementation`, see
    `docs/engine.md`.

    Example:
        >>> images = tf.random.normal([2, 14, 14, 256])
        >>> LambdaLayer(num_heads=4, key_dim=16, scope=7)(images).shape
        TensorShape([2, 14, 14, 256])

    Reference: [Bello, 2021](https://arxiv.org/abs/2102.08602), section 3.
    """

    def __init__(
        self,
        filters=None,
        num_heads=4,
        key_dim=16,
        intra_depth=1,
        scope=None,
        use_content=True,
        use_position=True,
        multi_head=False,
        causal=False,
        position_embedding="relative",
        implementation="auto",
        key_normalization="softmax",
        query_normalization=None,
        use_batch_norm=True,
        norm_momentum=0.99,
        norm_epsilon=1e-3,
        use_sync_bn=False,
        query_initializer=None,
        key_initializer=None,
        value_initializer=None,
        embeddings_initializer=None,
        kernel_regularizer=None,
        embeddings_regularizer=None,
        kernel_constraint=None,
        embeddings_constraint=None,
        **kwargs,
    ):
        super().__init__(
            filters=filters,
            num_heads=num_heads,
            key_dim=key_dim,
            intra_depth=intra_depth,
            scope=scope,
            use_content=use_content,
            use_position=use_position,
            multi_head=multi_head,
            position_embedding=position_embedding,
            implementation=implementation,
            key_normalization=key_normalization,
            query_normalization=query_normalization,
            use_batch_norm=use_batch_norm,
            norm_momentum=norm_momentum,
            norm_epsilon=norm_epsilon,
            use_sync_bn=use_sync_bn,
            query_initializer=query_initializer,
            key_initializer=key_initializer,
            value_initializer=value_initializer,
            embeddings_initializer=embeddings_initializer,
            kernel_regularizer=kernel_regularizer,
            embeddings_regularizer=embeddings_regularizer,
            kernel_constraint=kernel_constraint,
            embeddings_constraint=embeddings_constraint,
            **kwargs,
        )
        self.causal = bool(causal)
        self._context_shape = None

    def __call__(
        self,
        inputs,
        context=None,
        mask=None,
        context_mask=None,
        embeddings=None,
        **kwargs,
    ):
        # Keras fills an argument named `mask` with the padding of the inputs,
        # and repeats it when it replays a call: the caller's mask goes by
        # another name from here on, also when there is none.
        if "pair_mask" not in kwargs:
            kwargs["pair_mask"] = mask
        elif mask is not None:  # None would tell tf_keras that there is none
            kwargs["mask"] = mask
        kwargs.update(
            context=context, context_mask=context_mask, embeddings=embeddings
        )
        # tf_keras tells `build` the shape of the first argument only.
        self._context_shape = None if context is None else context.shape
        return super().__call__(inputs, **kwargs)

    def build(self, inputs_shape, context_shape=None):
        inputs_shape = tuple(inputs_shape)
        context_shape = tuple(
            context_shape or self._context_shape or inputs_shape
        )
        self._check_shapes(inputs_shape, context_shape)
        self._build_shapes = [inputs_shape, context_shape]
        self._build(inputs_shape, context_shape)
        super().build(inputs_shape)

    def _check_shapes(self, inputs_shape, context_shape):
        for name, shape in (
            ("inputs", inputs_shape),
            ("context", context_shape),
        ):
            if not 3 <= len(shape) <= 5:
                raise ValueError(
                    f"`{name}` must have the shape (batch, *spatial, channels) "
                    f"with one to three spatial axes. Received: {shape}."
                )
        if self.causal and len(inputs_shape) != 3:
            raise ValueError(
                "`causal=True` needs inputs with one spatial axis. Received: "
                f"inputs of shape {inputs_shape}."
            )
        grids = inputs_shape[1:-1], context_shape[1:-1]
        if (self.causal or self._owns_table) and grids[0] != grids[1]:
            raise ValueError(
                "The position part and `causal` need a `context` on the grid "
                f"of the `inputs`. Received: {grids[0]} and {grids[1]}. Use "
                "use_position=False, or position_embedding='explicit' and "
                "`embeddings` in every call."
            )

    @property
    def _owns_table(self):
        return self.position_embedding is not None

    @tf.autograph.experimental.do_not_convert
    def call(
        self,
        inputs,
        context=None,
        pair_mask=None,
        context_mask=None,
        embeddings=None,
        mask=None,
        training=None,
    ):
        _check_context_mask(
            context_mask, inputs if context is None else context
        )
        if context is None:
            context, present = inputs, _padding(inputs, mask, context_mask)
            inputs_mask = present
        else:
            present = _padding(context, context_mask)
            inputs_mask = _padding(inputs, mask)
        self._check_shapes(tuple(inputs.shape), tuple(context.shape))
        queries = self._queries(flatten(inputs), inputs_mask, training)
        keys, values = self._keys_and_values(
            flatten(tf.cast(context, self.compute_dtype)), present, training
        )
        pair_mask = self._pair_mask(pair_mask, queries, values[0])
        outputs = self._read(
            queries,
            keys,
            values,
            self._content_reader(pair_mask, present),
            self._position_reader(
                grid_of(context),
                pair_mask,
                self._pair_embeddings(embeddings, queries, values[0]),
                training,
            ),
        )
        shape = [tf.shape(inputs)[0], *grid_of(inputs), outputs.shape[-1]]
        outputs = tf.reshape(outputs, shape)
        return tf.ensure_shape(outputs, self.compute_output_shape(inputs.shape))

    def _pair_mask(self, mask, queries, values):
        """The `(n, m)` mask of the call, with the causal one where both are."""
        if mask is None:
            return None
        mask = tf.cast(mask, tf.bool)
        wanted = (queries.shape[1], values.shape[1])
        if not _fits(mask.shape, wanted):
            raise ValueError(
                "`mask` must have the shape (n, m): query positions by "
                f"context positions, here {wanted}. Received: "
                f"{tuple(mask.shape)}. (Padding of a batch is `context_mask`.)"
            )
        return tf.linalg.band_part(mask, -1, 0) if self.causal else mask

    def _content_reader(self, mask, present):
        normalization = self.key_normalization

        def read(queries, keys, values):
            if mask is not None:
                permitted = mask
                if present is not None:
                    permitted = mask & present[:, None]
                return ops.masked_content_output(
                    queries, keys, values, permitted, normalization
                )
            if self.causal:
                return ops.causal_content_output(
                    queries, keys, values, normalization, present
                )
            content = ops.content_lambda(keys, values, normalization, present)
            return ops.apply_content_lambda(queries, content)

        return read

    def _pair_embeddings(self, embeddings, queries, values):
        """The call's embeddings as `(..., n, m, heads, key_dim, intra)`.

        The heads axis is there only with `multi_head`; "..." is the batch
        axis of embeddings per example.
        """
        wants = self.use_position and not self._owns_table
        if wants != (embeddings is not None):
            raise ValueError(
                "`embeddings` must be given exactly when the layer has a "
                "position part with position_embedding='explicit'. Received: "
                f"embeddings {'' if wants else 'not '}missing, use_position="
                f"{self.use_position}, position_embedding="
                f"{self._position_embedding_argument!r}."
            )
        if not wants:
            return None
        heads = (self.num_heads,) if self.multi_head else ()
        intra = (self.intra_depth,) if self.intra_depth > 1 else ()
        wanted = (queries.shape[1], values.shape[1])
        wanted += (*heads, self.key_dim, *intra)
        shape, batch = embeddings.shape, values.shape[0]
        if not (_fits(shape, wanted) or _fits(shape, (batch, *wanted))):
            raise ValueError(
                f"`embeddings` must have the shape {wanted} (query positions, "
                "context positions, depths), or that with a leading axis for "
                f"a batch of {batch}. Received: {tuple(shape)}."
            )
        embeddings = tf.cast(embeddings, self.compute_dtype)
        return embeddings if intra else embeddings[..., None]

    def _position_reader(self, grid, mask, embeddings, training):
        if mask is None and self.causal and embeddings is not None:
            n = tf.shape(embeddings)[-4 - int(self.multi_head)]
            mask = tf.linalg.band_part(tf.ones([n, n], tf.bool), -1, 0)
        geometry = None if embeddings is not None else self._geometry(grid)

        def read(queries, values, group):
            if embeddings is not None:
                pairs = embeddings
                if self.multi_head:
                    pairs = embeddings[..., group, :, :]
            elif mask is not None:
                pairs = ops.pair_embeddings(
                    geometry.crop(self._table(group)), geometry
                )
            else:
                return self._position_output(
                    queries, values, group, grid, training
                )
            return ops.pairwise_position_output(queries, values, pairs, mask)

        return read

    def _geometry(self, grid):
        """How the table lies over a grid; None without a table."""
        if not self._owns_table:
            return None
        static = tuple(size if isinstance(size, int) else None for size in grid)
        entries = self.position_embedding.entries_for(static)
        if self.causal:
            # The table keeps its centre; what lies behind it is never used.
            past = entries[0] // 2 + 1
            return ops.Geometry.of([ops.causal_axis(grid[0], past)])
        return ops.Geometry.of(map(ops.same_axis, grid, entries))

    def compute_output_shape(self, inputs_shape):
        filters = self.filters or inputs_shape[-1]
        return (*inputs_shape[:-1], filters)

    def get_config(self):
        config = super().get_config()
        config.update(causal=self.causal)
        return config

    def get_build_config(self):
        return {"shapes": self._build_shapes}

    def build_from_config(self, config):
        self.build(*config["shapes"])


def _padding(x, *masks):
    """`(batch, positions)`, False where any mask says padding, or None.

    Counts the mask that Keras propagates with `x`.
    """
    masks = [
        tf.reshape(tf.cast(mask, tf.bool), [tf.shape(x)[0], -1])
        for mask in (getattr(x, "_keras_mask", None), *masks)
        if mask is not None
    ]
    return functools.reduce(tf.logical_and, masks) if masks else None


def _check_context_mask(mask, context):
    """Checks the shape of the caller's padding mask."""
    if mask is None:
        return
    batch, *grid = context.shape[:-1]
    positions = None if None in grid else math.prod(grid)
    if not (
        _fits(mask.shape, (batch, positions))
        or _fits(mask.shape, (batch, *grid))
    ):
        raise ValueError(
            "`context_mask` must have the shape (batch, context positions) or "
            f"(batch, *spatial), here {(batch, positions)} or "
            f"{(batch, *grid)}. Received: {tuple(mask.shape)}."
        )


def _fits(shape, wanted):
    """Whether a static shape may be the wanted one; None fits anything."""
    return len(shape) == len(wanted) and all(
        None in (have, want) or have == want
        for have, want in zip(shape, wanted, strict=True)
    )
