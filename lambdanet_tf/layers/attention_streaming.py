"""Streaming: causal attention called piece by piece, with keys and values."""

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.arguments import scope_per_axis
from lambdanet_tf.layers.calls import not_converted
from lambdanet_tf.layers.grids import split
from lambdanet_tf.layers.grids import unflatten
from lambdanet_tf.layers.projections import ProjectionLayer
from lambdanet_tf.layers.streaming import Streaming


class StreamingAttention(Streaming, ProjectionLayer):
    """Adds `initial_state` and `step` to attention.

    Subclasses declare `scope`, `axis`, `use_content` and `causal`, and know
    their tables once they are built.
    """

    def state_spec(
        self, batch_size: int | None = None
    ) -> dict[str, tf.TensorSpec]:
        """Returns the shapes and dtypes of a state, for a signature.

        Args:
            batch_size: int, or None if it varies.

        Returns:
            From name to specification: "keys", `(batch, past, num_heads,
            key_depth)`, unless use_content=False; "values", `(batch, past,
            num_heads, value_dim)`, both in the compute dtype; and "real",
            boolean `(batch, past)`: which of them were seen and are not
            padding. Past is the window `scope // 2`; with scope=None it is
            unknown, and grows with what is seen.

        Raises:
            ValueError: if the layer is not built, not causal, or not called
                on sequences.
        """
        self._check_streams()
        past = self._past()
        if past == 0:
            return {}
        shapes = {}
        if self.use_content:
            shapes["keys"] = [self.num_heads, self.key_depth]
        shapes["values"] = [self.num_heads, self.value_dim]
        spec = {
            name: tf.TensorSpec(
                [batch_size, past, *shape], self.compute_dtype, name
            )
            for name, shape in shapes.items()
        }
        spec["real"] = tf.TensorSpec([batch_size, past], tf.bool, "real")
        return spec

    @property
    def max_positions(self) -> int | None:
        """The longest stream, that of the table; None if any length will do."""
        if self.scope is not None or not self.tables():
            return None
        (table,) = self.tables()
        return table.embeddings.shape[0] // 2 + 1

    @not_converted
    def step(
        self,
        inputs: tf.Tensor,
        state: dict[str, tf.Tensor],
        mask: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Computes the outputs of the next positions.

        Equal to the outputs that a call on the whole sequence has at these
        positions.

        Args:
            inputs: `(batch, n, channels)`: one or several new positions.
            state: of the positions before, from `initial_state` or a step.
            mask: None or boolean `(batch, n)`; False = padding, which later
                positions do not see.

        Returns:
            `(batch, n, filters)`, and the next state.

        Raises:
            ValueError: as `state_spec`; if shapes do not fit, the state is
                not of this layer, or the sequence is longer than a global
                table. Where lengths are known at run time only, that is a
                `tf.errors.InvalidArgumentError`.
        """
        inputs = tf.cast(tf.convert_to_tensor(inputs), self.compute_dtype)
        self._check_step(inputs, state)
        length = ops.size(inputs, 1)
        real = ops.padding_mask(inputs, mask=mask)
        masks = ops.Masks(real, real, causal=True)
        x, c, nonfinite, hidden = masks.finite_inputs(inputs, inputs)
        queries, keys, values = self._projected(x, c, hidden)
        if real is None:
            real = tf.ones([tf.shape(inputs)[0], length], tf.bool)
        new = {"values": values, "real": real}
        if keys is not None:
            new["keys"] = keys
        seen = {
            name: tf.concat([state[name], part], axis=1)
            if name in state
            else part
            for name, part in new.items()
        }
        geometry, masks = self._geometry_of_step(seen["real"], length)
        outputs = ops.relative_attention(
            queries,  # [b, n, h, k]
            seen.get("keys"),  # [b, past + n, h, k]
            seen["values"],
            self._embeddings(),
            geometry,
            masks,
        )  # [b, n, h, v]
        outputs = ops.propagate_nan(outputs, nonfinite)
        if self.scope is not None:
            seen = {name: x[:, length:] for name, x in seen.items()}
        state = {name: seen[name] for name in state}
        return unflatten(outputs, [length]), state

    def _geometry_of_step(self, real, length):
        """What new positions see of those kept and their own.

        Args:
            real: boolean `(batch, past + n)`.
            length: int or scalar tensor: n.
        """
        context = ops.size(real, 1)
        past = self._past()
        if past is not None:
            axis = ops.valid_axis(context, past + 1)
            return ops.Geometry.of([axis]), ops.Masks(context=real)
        self._check_length(context)
        pairs = tf.ones([length, context], tf.bool)
        pairs = tf.linalg.band_part(pairs, -1, context - length)
        return None, ops.Masks(context=real, attention=(pairs,))

    def _past(self):
        """How many positions before the new ones are kept; None for all."""
        scope = scope_per_axis("scope", self.scope, rank=1)
        return None if scope is None else scope[0] // 2

    def _projected(self, x, context, nonfinite):
        """Queries, keys (None without content) and values of heads.

        Args:
            x: `(batch, n, channels)`.
            context: `(batch, m, channels)`.
            nonfinite: None or boolean `(batch, m)`: what was not finite.
        """
        queries = self._heads(self.query, x)  # [b, n, h, k]
        queries *= self.key_depth**-0.5
        keys = self._heads(self.key, context) if self.use_content else None
        values = self._heads(self.value, context)  # [b, m, h, v]
        # Of what a query sees, one of the two is enough.
        return queries, keys, ops.propagate_nan(values, nonfinite)

    def _heads(self, projection, x):
        """`(batch, n, channels)` -> `(batch, n, heads, depth)`."""
        depth = projection.units // self.num_heads
        return split(projection(x), self.num_heads, depth)

    def _embeddings(self):
        """The tables `(*entries, key_dim)`: one of all axes, one each, none."""
        tables = tuple(
            tf.convert_to_tensor(table.embeddings)[..., 0]  # no intra-depth
            for table in self.tables()
        )
        if self.position_embedding is not None:
            return tables[0]
        return tables or None

    def _check_streams(self):
        self._once_built("state", "value")
        if not self.causal:
            raise ValueError(
                f"Layer {self.name!r} cannot stream: its outputs depend on "
                "positions that come later. `RelativeAttention` needs "
                "causal=True."
            )
        if len(self._build_shapes[0]) != 3:
            raise ValueError(
                f"Layer {self.name!r} cannot stream: it was built for inputs "
                f"of shape {self._build_shapes[0]}. Streams are sequences, "
                "(batch, positions, channels)."
            )

    def _check_length(self, length):
        """Raises an error where a stream is longer than a global table."""
        longest = self.max_positions
        if longest is None:
            return
        message = (
            f"Layer {self.name!r} has embeddings for a stream of {longest} "
            "positions, those that it was built for. Build it for longer "
            "inputs, enlarge it by `lambdanet_tf.models.resize_embeddings`, "
            "or give `scope` an odd number."
        )
        if not isinstance(length, int):
            tf.debugging.Assert(length <= longest, [message, length])
        elif length > longest:
            raise ValueError(f"{message} Received: {length} positions.")
