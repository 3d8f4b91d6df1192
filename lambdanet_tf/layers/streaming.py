"""Causal lambda layers that process a sequence piece by piece."""

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.layers import grids
from lambdanet_tf.layers.base import not_converted
from lambdanet_tf.layers.context import with_keras_masks
from lambdanet_tf.layers.lambda_base import LambdaBase


class StreamingLambda(LambdaBase):
    """Adds `initial_state` and `step` to the base of lambda layers.

    Subclasses stream if `causal` is set. Their `_causal_window` returns how
    many table entries lie at or before the query, the stride and the dilation.
    """

    def state_spec(
        self, batch_size: int | None = None
    ) -> dict[str, tf.TensorSpec]:
        """Returns the shapes and dtypes of a state, for a signature.

        Args:
            batch_size: int, or None if it varies.

        Returns:
            A dictionary of specifications. The content part has "content",
            `(batch, key_dim, intra_depth, value_dim)`. With softmax it also
            has "key_sum" and "key_maximum", `(batch, key_dim, intra_depth)`;
            with l2, "key_sum". The position part has the latest "values",
            `(batch, (p - 1) * dilation, value_dim, intra_depth)` in the
            compute dtype. p is `scope // 2 + 1` in `LambdaLayer` and
            `kernel_size` in `LambdaConv`. The state does not grow.

        Raises:
            ValueError: if the layer is not causal, or if its position part is
                global or explicit and so needs all of its past.
        """
        self._check_streams()
        spec = {}
        if self.use_content:
            spec = ops.content_state_spec(
                self.key_dim,
                self.value_dim,
                self.intra_depth,
                self.key_normalization,
                self.compute_dtype,
            )
        if self._window():
            shape = [None, self._window(), self.value_dim, self.intra_depth]
            spec["values"] = tf.TensorSpec(shape, self.compute_dtype)
        return {
            name: tf.TensorSpec([batch_size, *x.shape[1:]], x.dtype, name)
            for name, x in spec.items()
        }

    def initial_state(
        self, batch_size: int | tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Creates the state of sequences before their first position.

        Args:
            batch_size: int or scalar tensor. Number of sequences.
        """
        return ops.initial_state(self.state_spec(), batch_size)

    @not_converted
    def step(
        self,
        inputs: tf.Tensor,
        state: dict[str, tf.Tensor],
        mask: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Computes the outputs of the next positions, in inference.

        They equal the outputs of a call on the whole sequence with
        `training=False`.

        Args:
            inputs: `(batch, n, channels)`: one or more new positions, a
                multiple of `strides`.
            state: the state from `initial_state` or the previous step.
            mask: None or boolean `(batch, n)`. False is padding, which later
                positions do not see.

        Returns:
            `(batch, n / strides, filters)`, and the next state.

        Raises:
            ValueError: if the layer does not stream, or if the inputs or the
                state do not fit.
        """
        mask = with_keras_masks(inputs, {"mask": mask})["mask"]
        inputs = tf.cast(inputs, self.compute_dtype)
        state = tf.nest.map_structure(tf.convert_to_tensor, state or {})
        taps, stride, dilation = self._causal_window()
        self._check_step(inputs, state, stride)
        real = ops.padding_mask(inputs, mask=mask)
        x = inputs[:, ::stride]
        query_mask = None if real is None else real[:, ::stride]
        masks = ops.Masks.of(query_mask, real, causal=True)
        positions = self._window() + ops.size(inputs, 1)
        axis = ops.valid_axis(positions, taps, stride, dilation)
        geometry = ops.Geometry.of([axis])
        place = geometry, self._plan(geometry, training=False)
        operands = x, inputs, self._table(), masks
        outputs, state = self._outputs(
            operands, place, False, state
        )  # [b, n / stride, h, v]
        return grids.unflatten(outputs, [ops.size(outputs, 1)]), state

    def _window(self):
        """Returns how many earlier values the state keeps."""
        taps, _, dilation = self._causal_window()
        return (taps - 1) * dilation if self.use_position else 0

    def _check_step(self, inputs, state, stride):
        grids.check_grid("inputs", inputs.shape)
        spec = self.state_spec(inputs.shape[0])
        if state.keys() != spec.keys() or not all(
            part.is_compatible_with(state[name]) for name, part in spec.items()
        ):
            raise ValueError(
                "`state` must come from streaming.initial_state(model, "
                "batch_size) or layer.initial_state(batch_size): "
                f"{spec}. Received: {state}."
            )
        message = "the length of `inputs` must be a multiple of `strides`"
        length, known = ops.size(inputs, 1), inputs.shape[1] is not None
        if known and length % stride:
            raise ValueError(
                f"In a step, {message}={stride}. Received: {length} positions."
            )
        if not known and stride > 1:
            tf.debugging.Assert(length % stride == 0, [message, length])

    def _check_streams(self):
        is_local = self.position_embedding is not None and self.scope
        why = ""
        if not self.causal:
            why = (
                "its outputs depend on later positions. Set causal=True in "
                "`LambdaLayer`, or padding='causal' in `LambdaConv`"
            )
        elif self.use_position and not is_local:
            why = (
                "its state would grow, because each past position has its own "
                "embedding. Set `scope` to an odd number, without "
                "position_embedding='explicit', or set use_position=False"
            )
        if why:
            raise ValueError(f"Layer {self.name!r} cannot stream: {why}.")
