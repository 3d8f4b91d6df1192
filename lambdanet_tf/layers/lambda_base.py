"""The common base of `LambdaLayer` and `LambdaConv`: their weights."""

import weakref
from typing import Any

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.arguments import boolean
from lambdanet_tf.arguments import fraction
from lambdanet_tf.arguments import positive_int
from lambdanet_tf.layers import grids
from lambdanet_tf.layers.argument import argument
from lambdanet_tf.layers.argument import keras_argument
from lambdanet_tf.layers.batch_normalization import NORM_MOMENTUM
from lambdanet_tf.layers.batch_normalization import BatchNormalization
from lambdanet_tf.layers.context import with_keras_masks
from lambdanet_tf.layers.position_embedding import RelativePositionEmbedding
from lambdanet_tf.layers.projections import ProjectionLayer
from lambdanet_tf.layers.reading import places_of
from lambdanet_tf.layers.reading import reading_of
from lambdanet_tf.ops.devices import target_device

# For each layer, its geometries and plans by static grid.
_places = weakref.WeakKeyDictionary()


class LambdaBase(ProjectionLayer):
    """Projections, normalizations and the table of position embeddings.

    Subclasses define in `_geometry` which context positions a query sees.
    """

    _position_embeddings = ("relative", "explicit")

    num_heads: int = argument(default=4, check=positive_int)
    key_dim: int = argument(default=16, check=positive_int)
    intra_depth: int = argument(default=1, check=positive_int)
    use_content: bool = argument(default=True, check=boolean)
    use_position: bool = argument(default=True, check=boolean)
    use_position_bias: bool = argument(default=False, check=boolean)
    position_embedding: Any = argument(default="relative")
    implementation: str = argument(
        default="auto", choices=ops.implementations()
    )
    key_normalization: str | None = argument(
        default="softmax", choices=ops.KEY_NORMALIZATIONS
    )
    query_normalization: str | None = argument(
        default=None, choices=("softmax", None)
    )
    use_batch_norm: bool | None = argument(default=None, check=boolean)
    norm_momentum: float = argument(default=NORM_MOMENTUM, check=fraction)
    norm_epsilon: float = argument(default=1e-3, check=fraction)
    use_sync_bn: bool = argument(default=False, check=boolean)
    position_bias_initializer: Any = keras_argument(default="zeros")

    def __post_init__(self):
        super().__post_init__()
        if self.use_batch_norm is None:
            # Batch statistics would show the future to a causal layer.
            self.use_batch_norm = not self.causal
        if not (self.use_content or self.use_position):
            raise ValueError(
                "`use_content` and `use_position` cannot both be False, as the "
                "layer would compute nothing. Set one of them to True."
            )
        if self.use_position_bias and not self.use_position:
            raise ValueError(
                "`use_position_bias` needs `use_position=True`. Received: "
                "use_position_bias=True, use_position=False."
            )
        given, self.position_embedding = self.position_embedding, None
        if self.use_position and given != "explicit":
            names = "key_dim", "intra_depth", "scope"
            ours = {name: getattr(self, name) for name in names}
            if isinstance(given, RelativePositionEmbedding):
                self._check_shared(given, **ours)
                self.position_embedding = self._shared(given)
            else:
                normal = None
                if self.causal:  # The paper has none; see docs/settings.md.
                    normal = tf.keras.initializers.RandomNormal(stddev=0.1)
                self.position_embedding = self._new_table(
                    "position_embedding", normal, **ours
                )

    @property
    def value_dim(self):
        """Channels of one head's output; known once the layer is built."""
        return self.value.units // self.intra_depth

    def _build(self, inputs_shape, context_shape):
        filters = self._divisible(self.filters or inputs_shape[-1])
        shapes, intra = (inputs_shape, context_shape), self.intra_depth
        values = filters // self.num_heads * intra
        units = self.num_heads * self.key_dim, self.key_dim * intra, values
        self._build_projections(shapes, units, query_scale=1 / self.key_dim)
        self.query_norm = self._norm("query_norm", self.query.units)
        self.value_norm = self._norm("value_norm", self.value.units)
        shared = self.position_embedding
        if shared is not None and not shared.built:
            self._build_sublayer(shared, inputs_shape)
        self.position_bias = None
        if self.use_position_bias:
            self.position_bias = self.add_weight(
                name="position_bias",
                shape=(self.key_dim,),
                initializer=self._initializers(self.position_bias_initializer),
                trainable=True,
            )
        batch, *grid = inputs_shape[:-1]
        geometry = None if None in grid else self._geometry(grid)
        # `_place` plans for other grids and batch sizes.
        self.plan = self._plan(geometry, True, batch)
        self.inference_plan = self._plan(geometry, False, batch)

    def _norm(self, name, units) -> Any:
        if not self.use_batch_norm:
            return None
        norm = BatchNormalization(
            momentum=self.norm_momentum,
            epsilon=self.norm_epsilon,
            synchronized=self.use_sync_bn,
            **self._of_sublayer(name),
        )
        return self._build_sublayer(norm, (None, None, units))

    def _plan(self, geometry, training, batch=None) -> Any:
        """Returns the plan of a call; None if the layer has no table."""
        if self.position_embedding is None:
            return None
        dims = ops.Dims(
            self.num_heads, self.key_dim, self.value_dim, self.intra_depth
        )
        return ops.plan_for(
            geometry, dims, self.implementation, training=training, batch=batch
        )

    def _place(self, grid, training, batch):
        """Returns the geometry of a grid, and the plan of a call on it."""
        # Keras 2 may pass `training` as a tensor, which can be True.
        training = tf.is_tensor(training) or bool(training)
        key: Any = *grid, training, batch, target_device()
        found = _places.setdefault(self, {})
        if any(map(tf.is_tensor, grid)):  # valid in one trace only
            key, found = None, {}
        if key not in found:
            geometry = self._geometry(grid)
            found[key] = geometry, self._plan(geometry, training, batch)
        return found[key]

    def _outputs(self, operands, place, training, state=None):
        """Returns `ops.lambda_output` of the result of `_operands`."""
        x, context, embeddings, masks = operands
        geometry, plan = place
        return ops.lambda_output(
            *self._projected(x, context, masks, training),
            embeddings=embeddings,
            geometry=geometry,
            plan=plan,
            normalization=self.key_normalization,
            masks=masks,
            position_bias=self.position_bias,
            state=state,
        )

    def _projected(self, x, context, masks, training):
        """Returns queries, keys (None if there is no content), values."""
        x, context = masks.filled(x, context)
        queries, values = self.query(x), self.value(context)
        if self.use_batch_norm:
            phase = {"training": training}
            queries = self.query_norm(queries, mask=masks.query, **phase)
            values = self.value_norm(values, mask=masks.context, **phase)
        queries = grids.split(queries, self.num_heads, self.key_dim)
        if self.query_normalization == "softmax":
            wide = tf.cast(queries, ops.accumulation_dtype(queries.dtype))
            queries = tf.cast(tf.nn.softmax(wide), queries.dtype)
        keys = None
        if self.use_content:
            keys = self.key(context)
            keys = grids.split(keys, self.key_dim, self.intra_depth)
        value_dim = values.shape[-1] // self.intra_depth
        values = grids.split(values, value_dim, self.intra_depth)
        return queries, keys, values  # [b, n, h, k], [b, m, k, u], [b, m, v, u]

    def read(self, inputs, position=None, **arguments) -> ops.Reading:
        """Returns how much queries read from each position, in inference.

        A lambda layer forms no attention map, but implies one: if you apply
        these weights to the values and add the bias, you get the layer's own
        outputs. The content and position parts are separate.

        Args:
            inputs: as in a call, with known sizes.
            position: the queries, on the grid of the outputs: one index per
                spatial axis, or a list of these. On one axis, an int or a list
                of ints. None for all of them, in row-major order.
            **arguments: the other arguments of a call, such as masks.

        Returns:
            An `ops.Reading`, in float32 or wider: weights `(batch, positions,
            heads, *context grid, intra_depth)`, and the values.

        Raises:
            ValueError: if a position is not on the grid.
        """
        arguments.pop("training", None)
        arguments = with_keras_masks(inputs, arguments)
        inputs = tf.cast(inputs, self.compute_dtype)
        operands, sizes = self._operands(inputs, **arguments)
        x, context, embeddings, masks = operands
        queries, keys, values = (
            x if x is None else tf.cast(x, ops.accumulation_dtype(x.dtype))
            for x in self._projected(x, context, masks, training=False)
        )
        rest = {
            "geometry": self._geometry(sizes[1]),
            "plan": "query_first",
            "normalization": self.key_normalization,
            "masks": masks,
            "position_bias": self.position_bias,
        }

        def equation(*operands):
            return ops.lambda_output(queries, *operands, **rest)[0]

        places = places_of(position, sizes[0])
        return reading_of(
            equation, keys, values, embeddings, places, sizes, self.num_heads
        )

    def _table(self):
        """Returns the table `(*entries, key_dim, intra_depth)`, or None."""
        if self.position_embedding is None:
            return None
        return tf.convert_to_tensor(self.position_embedding.embeddings)
