"""What `LambdaLayer` and `LambdaConv` have in common: weights and reading."""

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.layers.arguments import one_of
from lambdanet_tf.layers.arguments import positive_int
from lambdanet_tf.layers.arguments import scope_per_axis
from lambdanet_tf.layers.base import BaseLayer
from lambdanet_tf.layers.position_embedding import RelativePositionEmbedding

_INITIALIZED = ("query", "key", "value", "embeddings")


class LambdaBase(BaseLayer):
    """Projections, normalisations and the sum of the two lambdas.

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
        self.norm_momentum = norm_momentum
        self.norm_epsilon = norm_epsilon
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
        """Checks that a shared table is the one this layer would make."""
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
        return self.value.units // (self._groups * self.intra_depth)

    @property
    def _groups(self):
        """How many sets of keys, embeddings and values there are."""
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
        value_units = filters // self.num_heads * self._groups
        self.query = self._projection(
            "query", self.num_heads * self.key_dim, 1.0 / self.key_dim
        )
        self._build_sublayer(self.query, (None, None, channels))
        self.key = None
        if self.use_content:
            units = self._groups * self.key_dim * self.intra_depth
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
        if self._built_plans is not None and grid == self._built_grid:
            return self._built_plans[training]
        depths = ops.Depths(
            self.num_heads // self._groups,
            self.key_dim,
            self.value_dim,
            self.intra_depth,
        )
        geometry = None if None in grid else self._geometry(grid)
        return ops.plan_for(
            geometry, depths, self.implementation, training=bool(training)
        )

    def _position_output(self, queries, values, group, grid, training):
        """What a group's queries read from its table."""
        static = tuple(s if isinstance(s, int) else None for s in grid)
        shape = [tf.shape(values)[0], *grid, *values.shape[2:]]
        return ops.position_output(
            queries,
            tf.reshape(values, shape),
            self._table(group),
            self._geometry(grid),
            # tf_keras may say `training` with a tensor: then it can be both.
            self._plan(static, int(training not in (None, False, 0))),
        )

    def _queries(self, inputs, present, training):
        """`(batch, n, channels)` -> `(batch, n, heads, key_dim)`."""
        queries = self.query(inputs)
        if self.query_norm is not None:
            queries = self.query_norm(queries, training=training, mask=present)
        queries = _split(queries, (self.num_heads, self.key_dim))
        if self.query_normalization == "softmax":
            wide = queries.dtype if queries.dtype.size > 4 else tf.float32
            queries = tf.cast(
                tf.nn.softmax(tf.cast(queries, wide), axis=-1), queries.dtype
            )
        return queries

    def _keys_and_values(self, context, present, training):
        """`(batch, m, channels)` -> per group `(batch, m, depth, intra)`."""
        keys = [None] * self._groups
        if self.use_content:
            keys = _split(
                self.key(context),
                (self._groups, self.key_dim, self.intra_depth),
            )
            keys = _unstacked(keys)
        values = self.value(context)
        if self.value_norm is not None:
            values = self.value_norm(values, training=training, mask=present)
        values = _split(
            values, (self._groups, self.value_dim, self.intra_depth)
        )
        if present is not None:  # padding must not reach the position lambdas
            values *= tf.cast(present, values.dtype)[..., None, None, None]
        return keys, _unstacked(values)

    def _read(self, queries, keys, values, read_content, read_position):
        """Sums what the queries read from content and position lambdas.

        Args:
            queries: `(batch, n, heads, key_dim)`.
            keys: one tensor per group, `(batch, m, key_dim, intra_depth)`.
            values: likewise, `(batch, m, value_dim, intra_depth)`.
            read_content: function of queries, keys, values.
            read_position: function of queries, values, group index.

        Returns:
            `(batch, n, filters)`, head-major.
        """
        if self.multi_head:
            queries = tf.split(queries, self._groups, axis=2)
        else:
            queries = [queries]
        outputs = []
        for group in range(self._groups):
            parts = []
            if self.use_content:
                parts.append(
                    read_content(queries[group], keys[group], values[group])
                )
            if self.use_position:
                parts.append(
                    read_position(queries[group], values[group], group)
                )
            outputs.append(tf.add_n(parts))
        if self.multi_head:
            return _merge(tf.concat(outputs, axis=2))
        return _merge(outputs[0])  # [b, n, h * v]

    def _table(self, group):
        """A group's table, `(*entries, key_dim, intra_depth)`."""
        table = tf.convert_to_tensor(self.position_embedding.embeddings)
        table = tf.cast(table, self.compute_dtype)
        return table[..., group, :, :] if self.multi_head else table

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
    return tuple(
        tf.shape(x)[axis + 1] if size is None else size
        for axis, size in enumerate(x.shape[1:-1])
    )


def flatten(x):
    """`(batch, *spatial, channels)` -> `(batch, positions, channels)`."""
    sizes = x.shape[1:-1]
    positions = -1 if None in sizes else sizes.num_elements()
    return tf.reshape(x, [tf.shape(x)[0], positions, x.shape[-1]])


def _split(x, depths):
    """`(batch, n, channels)` -> `(batch, n, *depths)`."""
    positions = x.shape[1] or tf.shape(x)[1]
    return tf.reshape(x, [tf.shape(x)[0], positions, *depths])


def _unstacked(x):
    """`(batch, m, groups, ...)` as a list over groups; one costs nothing."""
    if x.shape[2] > 1:
        return tf.unstack(x, axis=2)
    positions = x.shape[1] or tf.shape(x)[1]
    return [tf.reshape(x, [tf.shape(x)[0], positions, *x.shape[3:]])]


def _merge(x):
    """`(batch, n, heads, value_dim)` -> `(batch, n, filters)`."""
    positions = x.shape[1] or tf.shape(x)[1]
    heads, value_dim = x.shape[2:]
    return tf.reshape(x, [tf.shape(x)[0], positions, heads * value_dim])
