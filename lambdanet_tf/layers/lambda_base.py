"""What `LambdaLayer` and `LambdaConv` have in common: their weights."""

import functools

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.arguments import fraction
from lambdanet_tf.arguments import one_of
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.arguments import scope_per_axis
from lambdanet_tf.layers.base import BaseLayer
from lambdanet_tf.layers.position_embedding import RelativePositionEmbedding

_INITIALIZED = ("query", "key", "value", "embeddings")


class LambdaBase(BaseLayer):
    """Projections, normalizations and the table of position embeddings.

    Subclasses say which context positions a query sees, in `_geometry`.
    """

    def __init__(
        self,
        filters,
        num_heads,
        key_dim,
        intra_depth,
        scope,
        use_content,
        use_position,
        multi_head,
        position_embedding,
        implementation,
        key_normalization,
        query_normalization,
        use_batch_norm,
        norm_momentum,
        norm_epsilon,
        use_sync_bn,
        query_initializer,
        key_initializer,
        value_initializer,
        embeddings_initializer,
        kernel_regularizer,
        embeddings_regularizer,
        kernel_constraint,
        embeddings_constraint,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.num_heads = positive_int("num_heads", num_heads)
        self.filters = None if filters is None else self._divisible(filters)
        self.key_dim = positive_int("key_dim", key_dim)
        self.intra_depth = positive_int("intra_depth", intra_depth)
        self.scope = scope_per_axis("scope", scope)
        self.use_content = bool(use_content)
        self.use_position = bool(use_position)
        if not (self.use_content or self.use_position):
            raise ValueError(
                "`use_content` and `use_position` cannot both be False: the "
                "layer would compute nothing."
            )
        self.multi_head = bool(multi_head)
        self.implementation = one_of(
            "implementation", implementation, ops.IMPLEMENTATIONS
        )
        self.key_normalization = one_of(
            "key_normalization", key_normalization, ops.KEY_NORMALIZATIONS
        )
        self.query_normalization = one_of(
            "query_normalization", query_normalization, ("softmax", None)
        )
        self.use_batch_norm = bool(use_batch_norm)
        self.norm_momentum = fraction("norm_momentum", norm_momentum)
        self.norm_epsilon = fraction("norm_epsilon", norm_epsilon)
        self.use_sync_bn = bool(use_sync_bn)
        get = tf.keras.initializers.get
        self.query_initializer = get(query_initializer)
        self.key_initializer = get(key_initializer)
        self.value_initializer = get(value_initializer)
        self.embeddings_initializer = get(embeddings_initializer)
        self.kernel_regularizer = tf.keras.regularizers.get(kernel_regularizer)
        self.embeddings_regularizer = tf.keras.regularizers.get(
            embeddings_regularizer
        )
        self.kernel_constraint = tf.keras.constraints.get(kernel_constraint)
        self.embeddings_constraint = tf.keras.constraints.get(
            embeddings_constraint
        )
        self._position_embedding_argument = position_embedding
        self.position_embedding = self._position_embedding(position_embedding)

    def _divisible(self, filters):
        filters = positive_int("filters", filters)
        if filters % self.num_heads:
            raise ValueError(
                "`filters` must be divisible by `num_heads`. Received: "
                f"filters={filters}, num_heads={self.num_heads}."
            )
        return filters

    def _position_embedding(self, argument):
        """The layer behind the argument, or None where there is no table."""
        if isinstance(argument, RelativePositionEmbedding):
            return self._compatible(argument)
        if argument not in ("relative", "explicit"):
            raise ValueError(
                "`position_embedding` must be 'relative', 'explicit' or a "
                "`RelativePositionEmbedding` layer of this Keras. Received: "
                f"position_embedding={argument!r}."
            )
        if argument == "explicit" or not self.use_position:
            return None
        return RelativePositionEmbedding(
            key_dim=self.key_dim,
            intra_depth=self.intra_depth,
            scope=self.scope,
            num_heads=self.num_heads if self.multi_head else None,
            embeddings_initializer=self.embeddings_initializer,
            embeddings_regularizer=self.embeddings_regularizer,
            embeddings_constraint=self.embeddings_constraint,
            dtype=self.dtype_policy,
            name="position_embedding",
        )

    def _compatible(self, shared):
        """Returns a shared table if it is one that this layer would make."""
        ours = {
            "key_dim": self.key_dim,
            "intra_depth": self.intra_depth,
            "num_heads": self.num_heads if self.multi_head else None,
            "scope": self.scope,
        }
        theirs = {name: getattr(shared, name) for name in ours}
        if not self.use_position or ours != theirs:
            raise ValueError(
                "`position_embedding` is shared, and must have this layer's "
                f"{ours}, with use_position=True. Received: {theirs}, "
                f"use_position={self.use_position}."
            )
        return shared

    @property
    def value_dim(self):
        """Channels of one head's output; known once the layer is built."""
        return self.value.units // (self._num_groups * self.intra_depth)

    @property
    def _num_groups(self):
        """How many sets of keys, values and embeddings there are."""
        return self.num_heads if self.multi_head else 1

    def _build(self, inputs_shape, context_shape):
        """Creates and builds every sublayer."""
        channels, context_channels = inputs_shape[-1], context_shape[-1]
        if None in (channels, context_channels):
            raise ValueError(
                "The channels of the inputs and the context must be static. "
                f"Received: shapes {tuple(inputs_shape)}, "
                f"{tuple(context_shape)}."
            )
        filters = self.filters or self._divisible(channels)
        value_units = filters // self.num_heads * self._num_groups
        self.query = self._projection(
            "query", self.num_heads * self.key_dim, 1.0 / self.key_dim
        )
        self._build_sublayer(self.query, (None, None, channels))
        self.key = None
        if self.use_content:
            units = self._num_groups * self.key_dim * self.intra_depth
            self.key = self._projection("key", units)
            self._build_sublayer(self.key, (None, None, context_channels))
        self.value = self._projection("value", value_units * self.intra_depth)
        self._build_sublayer(self.value, (None, None, context_channels))
        self.query_norm = self._norm("query_norm", self.query.units)
        self.value_norm = self._norm("value_norm", self.value.units)
        shared = self.position_embedding
        if shared is not None and not shared.built:
            self._build_sublayer(shared, inputs_shape)
        self._built_grid = tuple(inputs_shape[1:-1])
        self._built_plans = None
        self._built_plans = tuple(
            self._plan(self._built_grid, training) for training in (0, 1)
        )

    def _build_sublayer(self, layer, shape):
        with tf.name_scope(layer.name):  # keeps tf_keras' names apart
            layer.build(shape)

    def _projection(self, name, units, scale=1.0):
        """A Dense without bias; the paper's N(0, scale / channels)."""
        initializer = getattr(self, f"{name}_initializer")
        return tf.keras.layers.Dense(
            units,
            use_bias=False,
            kernel_initializer=initializer
            or tf.keras.initializers.VarianceScaling(
                scale, "fan_in", "untruncated_normal"
            ),
            kernel_regularizer=self.kernel_regularizer,
            kernel_constraint=self.kernel_constraint,
            dtype=self.dtype_policy,
            name=name,
        )

    def _norm(self, name, units):
        if not self.use_batch_norm:
            return None
        norm = tf.keras.layers.BatchNormalization(
            momentum=self.norm_momentum,
            epsilon=self.norm_epsilon,
            synchronized=self.use_sync_bn,
            dtype=self.dtype_policy,
            name=name,
        )
        self._build_sublayer(norm, (None, None, units))
        return norm

    @property
    def plan(self):
        """The `lambdanet_tf.ops.Plan` for training; None without a table.

        Made at build: which algorithm computes the position part, in blocks
        of which size, its operations and memory, and the alternatives. A call
        on another grid makes a plan of its own.
        """
        return self._built_plans[1]

    @property
    def inference_plan(self):
        """The `lambdanet_tf.ops.Plan` for calls with `training=False`."""
        return self._built_plans[0]

    def _plan(self, grid, training):
        if self.position_embedding is None:
            return None
        # Keras 2 may say `training` with a tensor: then it can be both.
        training = tf.is_tensor(training) or bool(training)
        grid = tuple(size if isinstance(size, int) else None for size in grid)
        if self._built_plans is not None and grid == self._built_grid:
            return self._built_plans[training]
        geometry = None if None in grid else self._geometry(grid)
        return self._plan_of(geometry, training)

    def _plan_of(self, geometry, training):
        dims = ops.Dims(
            self.num_heads // self._num_groups,
            self.key_dim,
            self.value_dim,
            self.intra_depth,
        )
        return ops.plan_for(
            geometry, dims, self.implementation, training=training
        )

    def _queries(self, x, present, training):
        """`(batch, n, channels)` -> `(batch, n, heads, key_dim)`."""
        queries = self.query(x)
        if self.query_norm is not None:
            queries = _normed(self.query_norm, queries, present, training)
        queries = _split(queries, self.num_heads, self.key_dim)
        if self.query_normalization == "softmax":
            wide = queries.dtype if queries.dtype.size > 4 else tf.float32
            queries = tf.cast(
                tf.nn.softmax(tf.cast(queries, wide), axis=-1), queries.dtype
            )
        return queries

    def _keys(self, context):
        """`(batch, m, channels)` -> `(batch, m, groups, key_dim, intra)`."""
        if not self.use_content:
            return None
        return _split(
            self.key(context), self._num_groups, self.key_dim, self.intra_depth
        )

    def _values(self, context, present, training):
        """`(batch, m, channels)` -> `(batch, m, groups, value_dim, intra)`."""
        values = _present(self.value(context), present)
        if self.value_norm is not None:
            values = self.value_norm(values, training=training, mask=present)
            values = _present(values, present)
        return _split(
            values, self._num_groups, self.value_dim, self.intra_depth
        )

    def _table(self):
        """The table `(*entries, [heads,] key_dim, intra_depth)`, or None."""
        if self.position_embedding is None:
            return None
        table = tf.convert_to_tensor(self.position_embedding.embeddings)
        return tf.cast(table, self.compute_dtype)

    def _apply(self, content, position, queries, keys, values, embeddings):
        """Adds up what the queries read from content and position lambdas.

        The functions take one group of what `_groups` yields; the result is
        `(batch, n, heads, value_dim)`.
        """
        outputs = []
        for q, k, v, e in self._groups(queries, keys, values, embeddings):
            parts = [content(q, k, v)] if self.use_content else []
            parts += [position(q, v, e)] if self.use_position else []
            outputs.append(tf.add_n(parts))
        return outputs[0] if len(outputs) == 1 else tf.concat(outputs, axis=2)

    def _groups(self, queries, keys, values, embeddings):
        """Yields queries, and the keys, values and embeddings they share.

        All heads share one set, or each has its own if `multi_head`.

        Args:
            queries: `(batch, n, heads, key_dim)`.
            keys: `(batch, m, groups, key_dim, intra_depth)` or None.
            values: `(batch, m, groups, value_dim, intra_depth)`.
            embeddings: `(..., [heads,] key_dim, intra_depth)` or None.
        """
        if not self.multi_head:
            yield queries, _ungrouped(keys), _ungrouped(values), embeddings
            return
        for head in range(self.num_heads):
            yield (
                queries[:, :, head : head + 1],
                None if keys is None else keys[:, :, head],
                values[:, :, head],
                None if embeddings is None else embeddings[..., head, :, :],
            )

    def get_config(self):
        config = super().get_config()
        argument = self._position_embedding_argument
        if isinstance(argument, RelativePositionEmbedding):
            # Keras marks an object as shared from its second time on, and
            # copies what it was given the first time: so, twice.
            tf.keras.layers.serialize(argument)
            argument = tf.keras.layers.serialize(argument)
        config.update(
            filters=self.filters,
            num_heads=self.num_heads,
            key_dim=self.key_dim,
            intra_depth=self.intra_depth,
            scope=self.scope,
            use_content=self.use_content,
            use_position=self.use_position,
            multi_head=self.multi_head,
            position_embedding=argument,
            implementation=self.implementation,
            key_normalization=self.key_normalization,
            query_normalization=self.query_normalization,
            use_batch_norm=self.use_batch_norm,
            norm_momentum=self.norm_momentum,
            norm_epsilon=self.norm_epsilon,
            use_sync_bn=self.use_sync_bn,
        )
        for name in _INITIALIZED:
            config[f"{name}_initializer"] = tf.keras.initializers.serialize(
                getattr(self, f"{name}_initializer")
            )
        for name in ("kernel", "embeddings"):
            config[f"{name}_regularizer"] = tf.keras.regularizers.serialize(
                getattr(self, f"{name}_regularizer")
            )
            config[f"{name}_constraint"] = tf.keras.constraints.serialize(
                getattr(self, f"{name}_constraint")
            )
        return config

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        if isinstance(config.get("position_embedding"), dict):
            config["position_embedding"] = tf.keras.layers.deserialize(
                config["position_embedding"]
            )
        return cls(**config)


def grid_of(x):
    """Spatial sizes of `(batch, *spatial, channels)`: int, or scalar tensor."""
    return tuple(ops.size(x, axis) for axis in range(1, len(x.shape) - 1))


def flatten(x):
    """`(batch, *spatial, channels)` -> `(batch, positions, channels)`."""
    sizes = x.shape[1:-1]
    positions = -1 if None in sizes else sizes.num_elements()
    return tf.reshape(x, [tf.shape(x)[0], positions, x.shape[-1]])


def unflatten(x, grid):
    """`(batch, n, heads, value_dim)` -> `(batch, *grid, filters)`."""
    heads, value_dim = x.shape[2:]
    return tf.reshape(x, [tf.shape(x)[0], *grid, heads * value_dim])


def padding_mask(x, *masks):
    """`(batch, positions)`, False where any mask says padding, or None.

    Counts the mask that Keras propagates with `x`.
    """
    masks = [
        tf.reshape(tf.cast(mask, tf.bool), [tf.shape(x)[0], -1])
        for mask in (getattr(x, "_keras_mask", None), *masks)
        if mask is not None
    ]
    return functools.reduce(tf.logical_and, masks) if masks else None


def check_grid(name, shape):
    """Raises a ValueError unless a shape is `(batch, *spatial, channels)`."""
    if not 3 <= len(shape) <= 5 or 0 in shape[1:]:
        raise ValueError(
            f"`{name}` must have the shape (batch, *spatial, channels) with "
            "one to three spatial axes, each of at least one position. "
            f"Received: {tuple(shape)}."
        )


def _split(x, *depths):
    """`(batch, n, channels)` -> `(batch, n, *depths)`."""
    return tf.reshape(x, [tf.shape(x)[0], ops.size(x, 1), *depths])


def _ungrouped(x):
    """`(batch, m, 1, ...)` -> `(batch, m, ...)`."""
    if x is None:
        return None
    return tf.reshape(x, [tf.shape(x)[0], ops.size(x, 1), *x.shape[3:]])


def _present(x, present):
    """`(batch, m, channels)` with zeros at padding, whatever stood there."""
    return x if present is None else ops.where(present[..., None], x, 0.0)


def _normed(norm, x, present, training):
    """Normalizes; NaN at padding does not reach the statistics."""
    if present is None:
        return norm(x, training=training)
    real = tf.math.is_finite(x) | present[..., None]
    normed = norm(ops.where(real, x, 0.0), training=training, mask=present)
    return ops.where(real, normed, float("nan"))
