"""The base of lambda layers and attention: projections to heads."""

from typing import Any
from typing import ClassVar

import tensorflow as tf

from lambdanet_tf.layers.argument import keras_argument
from lambdanet_tf.layers.base import BaseLayer
from lambdanet_tf.layers.position_embedding import RelativePositionEmbedding
from lambdanet_tf.layers.randomness import Initializers


class ProjectionLayer(BaseLayer):
    """A layer that projects its inputs to queries, keys and values.

    Subclasses declare `filters`, `num_heads` and `position_embedding`, which is
    a layer or one of `_position_embeddings`.
    """

    _position_embeddings: ClassVar[tuple[str | None, ...]]

    query_initializer: Any = keras_argument(default=None)
    key_initializer: Any = keras_argument(default=None)
    value_initializer: Any = keras_argument(default=None)
    embeddings_initializer: Any = keras_argument(default=None)
    kernel_regularizer: Any = keras_argument(default=None)
    embeddings_regularizer: Any = keras_argument(default=None)
    kernel_constraint: Any = keras_argument(default=None)
    embeddings_constraint: Any = keras_argument(default=None)

    def __post_init__(self):
        self.supports_masking = True
        self._initializers = Initializers()
        if self.filters is not None:
            self._divisible(self.filters)
        # The attribute itself will hold the table.
        given = self._position_embedding_argument = self.position_embedding
        is_table = isinstance(given, RelativePositionEmbedding)
        if not is_table and given not in self._position_embeddings:
            raise ValueError(
                "`position_embedding` must be "
                f"{', '.join(map(repr, self._position_embeddings))} or a "
                "`RelativePositionEmbedding` layer of this Keras. Received: "
                f"position_embedding={given!r}."
            )

    def _divisible(self, filters):
        if filters % self.num_heads:
            raise ValueError(
                "`num_heads` must divide `filters`. Received: "
                f"num_heads={self.num_heads}, filters={filters}."
            )
        return filters

    def _build_projections(self, shapes, units, query_scale=1.0):
        """Creates and builds `query`, `key` (or None) and `value`."""
        inputs, context = shapes
        self.query = self._projection("query", units[0], inputs, query_scale)
        self.key: Any = None
        if self.use_content:
            self.key = self._projection("key", units[1], context)
        self.value = self._projection("value", units[2], context)

    def _projection(self, name, units, shape, scale=1.0):
        """Returns a Dense without bias, N(0, scale / channels) by default."""
        normal = tf.keras.initializers.VarianceScaling(
            scale, "fan_in", "untruncated_normal"
        )
        given = getattr(self, f"{name}_initializer")
        dense = tf.keras.layers.Dense(
            units,
            use_bias=False,
            kernel_initializer=self._initializers(given or normal),
            kernel_regularizer=self.kernel_regularizer,
            kernel_constraint=self.kernel_constraint,
            **self._of_sublayer(name),
        )
        return self._build_sublayer(dense, (None, None, shape[-1]))

    def _new_table(self, name, initializer, key_dim, **arguments):
        """Returns a table of this layer's own."""
        return RelativePositionEmbedding(
            key_dim,
            embeddings_initializer=self._initializers(
                self.embeddings_initializer or initializer
            ),
            embeddings_regularizer=self.embeddings_regularizer,
            embeddings_constraint=self.embeddings_constraint,
            **arguments,
            **self._of_sublayer(name),
        )

    def _check_shared(self, table, **ours):
        """Raises a ValueError unless a shared table fits this layer."""
        given = {name: getattr(table, name) for name in ours}
        if ours != given:
            raise ValueError(
                "`position_embedding` must have the same arguments as this "
                f"layer, because the two share it: {ours}. Received: {given}."
            )

    def _shared(self, table):
        """Returns a shared table, and freezes it with this layer."""
        if not self.trainable:
            table.trainable = False
        return table

    def get_config(self):
        config = super().get_config()
        argument = self._position_embedding_argument
        if isinstance(argument, RelativePositionEmbedding):
            # Keras marks an object as shared from the second call on, and
            # copies it the first time. So we call it twice.
            tf.keras.layers.serialize(argument)
            argument = tf.keras.layers.serialize(argument)
        config["position_embedding"] = argument
        return config

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        if isinstance(config.get("position_embedding"), dict):
            config["position_embedding"] = tf.keras.layers.deserialize(
                config["position_embedding"]
            )
        return super().from_config(config)
