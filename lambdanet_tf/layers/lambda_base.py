"""What `LambdaLayer` and `LambdaConv` have in common: their weights."""

from typing import TYPE_CHECKING
from typing import Any

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.arguments import boolean
from lambdanet_tf.arguments import fraction
from lambdanet_tf.arguments import one_of
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.arguments import scope_per_axis
from lambdanet_tf.layers.base import with_arguments_of
from lambdanet_tf.layers.batch_normalization import BatchNormalization
from lambdanet_tf.layers.grids import split
from lambdanet_tf.layers.position_embedding import RelativePositionEmbedding
from lambdanet_tf.layers.projections import ProjectionArguments
from lambdanet_tf.layers.projections import ProjectionLayer

if TYPE_CHECKING:
    from typing_extensions import Unpack


class LambdaArguments(ProjectionArguments, total=False):
    """What `LambdaBase` takes by name, for static checkers."""

    num_heads: int
    key_dim: int
    intra_depth: int
    use_content: bool
    use_position: bool
    use_position_bias: bool
    multi_head: bool
    position_embedding: str | RelativePositionEmbedding
    implementation: str
    key_normalization: str | None
    query_normalization: str | None
    use_batch_norm: bool
    norm_momentum: float
    norm_epsilon: float
    use_sync_bn: bool
    position_bias_initializer: Any


class LambdaBase(ProjectionLayer):
    """Projections, normalizations and the table of position embeddings.

    Subclasses say which context positions a query sees, in `_geometry`.
    """

    @with_arguments_of(ProjectionLayer)
    def __init__(
        self,
        filters,
        scope,
        /,
        *,
        num_heads=4,
        key_dim=16,
        intra_depth=1,
        use_content=True,
        use_position=True,
        use_position_bias=False,
        multi_head=False,
        position_embedding="relative",
        implementation="auto",
        key_normalization="softmax",
        query_normalization=None,
        use_batch_norm=True,
        norm_momentum=0.9,
        norm_epsilon=1e-3,
        use_sync_bn=False,
        position_bias_initializer="zeros",
        **kwargs: "Unpack[ProjectionArguments]",
    ):
        super().__init__(filters, num_heads, **kwargs)
        self.key_dim = positive_int("key_dim", key_dim)
        self.intra_depth = positive_int("intra_depth", intra_depth)
        self.scope = scope_per_axis("scope", scope)
        self.use_content = boolean("use_content", use_content)
        self.use_position = boolean("use_position", use_position)
        if not (self.use_content or self.use_position):
            raise ValueError(
                "`use_content` and `use_position` cannot both be False: the "
                "layer would compute nothing."
            )
        self.use_position_bias = boolean("use_position_bias", use_position_bias)
        if self.use_position_bias and not self.use_position:
            raise ValueError(
                "`use_position_bias` needs position lambdas. Received: "
                "use_position_bias=True, use_position=False."
            )
        self.multi_head = boolean("multi_head", multi_head)
        self.implementation = ops.implementation_name(implementation)
        self.key_normalization = one_of(
            "key_normalization", key_normalization, ops.KEY_NORMALIZATIONS
        )
        self.query_normalization = one_of(
            "query_normalization", query_normalization, ("softmax", None)
        )
        self.use_batch_norm = boolean("use_batch_norm", use_batch_norm)
        self.norm_momentum = fraction("norm_momentum", norm_momentum)
        self.norm_epsilon = fraction("norm_epsilon", norm_epsilon)
        self.use_sync_bn = boolean("use_sync_bn", use_sync_bn)
        self.position_bias_initializer = tf.keras.initializers.get(
            position_bias_initializer
        )
        self._position_embedding_argument = position_embedding
        self.position_embedding = self._position_embedding(position_embedding)

    def _position_embedding(self, argument: Any) -> Any:
        """The layer behind the argument, or None where there is no table."""
        is_shared = isinstance(argument, RelativePositionEmbedding)
        if not is_shared and argument not in ("relative", "explicit"):
            raise ValueError(
                "`position_embedding` must be 'relative', 'explicit' or a "
                "`RelativePositionEmbedding` layer of this Keras. Received: "
                f"position_embedding={argument!r}."
            )
        ours = {
            "key_dim": self.key_dim,
            "intra_depth": self.intra_depth,
            "num_heads": self.num_heads if self.multi_head else None,
            "scope": self.scope,
        }
        if is_shared:
            if not self.use_position:
                raise ValueError(
                    "`position_embedding` is shared, and needs position "
                    "lambdas. Received: use_position=False."
                )
            self._check_shared(argument, **ours)
            return self._shared(argument)
        if argument == "explicit" or not self.use_position:
            return None
        return self._new_table("position_embedding", **ours)

    @property
    def value_dim(self):
        """Channels of one head's output; known once the layer is built."""
        value = self._once_built("value_dim", "value")
        return value.units // (self._num_groups * self.intra_depth)

    @property
    def _num_groups(self):
        """How many sets of keys, values and embeddings there are."""
        return self.num_heads if self.multi_head else 1

    def _build(self, inputs_shape, context_shape):
        """Creates and builds every sublayer."""
        filters = self._checked_filters(inputs_shape, context_shape)
        value_dim = filters // self.num_heads
        self._build_projections(
            (inputs_shape, context_shape),
            (
                self.num_heads * self.key_dim,
                self._num_groups * self.key_dim * self.intra_depth,
                self._num_groups * value_dim * self.intra_depth,
            ),
            query_scale=1.0 / self.key_dim,
        )
        self.query_norm = self._norm("query_norm", self.query.units)
        self.value_norm = self._norm("value_norm", self.value.units)
        shared = self.position_embedding
        if shared is not None and not shared.built:
            self._build_sublayer(shared, inputs_shape)
        self.position_bias = None
        if self.use_position_bias:
            self.position_bias = self.add_weight(
                name="position_bias",
                shape=(self._num_groups * self.key_dim,),
                initializer=self._initializers(self.position_bias_initializer),
                trainable=True,
            )
        batch, *grid = inputs_shape[:-1]
        geometry = None if None in grid else self._geometry(grid)
        self._built_plans = tuple(
            self._plan(geometry, training, batch) for training in (False, True)
        )

    def _norm(self, name, units):
        if not self.use_batch_norm:
            return None
        norm = BatchNormalization(
            momentum=self.norm_momentum,
            epsilon=self.norm_epsilon,
            synchronized=self.use_sync_bn,
            **self._of_sublayer(name),
        )
        self._build_sublayer(norm, (None, None, units))
        return norm

    @property
    def plan(self):
        """The `lambdanet_tf.ops.Plan` for training; None without a table.

        Made at build: which algorithm computes the position part, in blocks
        of which size, its operations and memory, and the alternatives. A call
        on another grid, or on a batch of a known size, makes a plan of its own.
        """
        return self._once_built("plan", "_built_plans")[1]

    @property
    def inference_plan(self):
        """The `lambdanet_tf.ops.Plan` for calls with `training=False`."""
        return self._once_built("inference_plan", "_built_plans")[0]

    def _plan(self, geometry, training, batch=None):
        """The plan of a call; None without a table."""
        if self.position_embedding is None:
            return None
        # Keras 2 may say `training` with a tensor: then it can be both.
        training = tf.is_tensor(training) or bool(training)
        dims = ops.Dims(
            self.num_heads // self._num_groups,
            self.key_dim,
            self.value_dim,
            self.intra_depth,
        )
        return ops.plan_for(
            geometry,
            dims,
            self.implementation,
            training=training,
            batch=batch,
        )

    def _project(self, x, context, masks, training):
        """Projects and normalizes.

        Args:
            x: `(batch, n, channels)`.
            context: `(batch, m, channels)`; the same tensor where it is x.
            masks: `Masks`.
            training: as in a call.

        Returns:
            Queries `(batch, n, heads, key_dim)`; keys, or None, `(batch, m,
            groups, key_dim, intra_depth)`; values `(batch, m, groups,
            value_dim, intra_depth)`; and None or boolean `(batch, n)`, which
            queries were not finite and are zero.
        """
        x, context, nonfinite, hidden = masks.finite_inputs(x, context)
        queries = self._queries(self.query(x), masks.query, training)
        keys = self._keys(context, hidden)
        values = self._values(context, masks.context, hidden, training)
        return queries, keys, values, nonfinite

    def _queries(self, queries, mask, training):
        if self.query_norm is not None:
            queries = self.query_norm(
                ops.finite_padding(queries, mask), training=training, mask=mask
            )
        queries = split(queries, self.num_heads, self.key_dim)
        if self.query_normalization == "softmax":
            wide = tf.cast(queries, ops.accumulation_dtype(queries.dtype))
            queries = tf.cast(tf.nn.softmax(wide), queries.dtype)
        return queries

    def _keys(self, context, nonfinite):
        if not self.use_content:
            return None
        keys = ops.propagate_nan(self.key(context), nonfinite)
        return split(keys, self._num_groups, self.key_dim, self.intra_depth)

    def _values(self, context, mask, nonfinite, training):
        values = self.value(context)
        if self.value_norm is not None:
            values = self.value_norm(values, training=training, mask=mask)
        values = ops.propagate_nan(values, nonfinite)
        return split(values, self._num_groups, self.value_dim, self.intra_depth)

    def _table(self):
        """The table `(*entries, [groups,] key_dim, intra_depth)`, or None."""
        if self.position_embedding is None:
            return None
        table = tf.convert_to_tensor(self.position_embedding.embeddings)
        return self._of_groups(table)

    def _of_groups(self, embeddings):
        """Leaves out the axis of heads if there is one."""
        only_head = self.multi_head and self.num_heads == 1
        return tf.squeeze(embeddings, -3) if only_head else embeddings
