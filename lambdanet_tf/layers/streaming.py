"""Streaming: causal layers called piece by piece, with a state."""

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf.layers.base import BaseLayer
from lambdanet_tf.layers.base import not_converted
from lambdanet_tf.layers.grids import check_grid
from lambdanet_tf.layers.grids import unflatten
from lambdanet_tf.layers.lambda_base import LambdaBase


class Streaming(BaseLayer):
    """Adds a state to a layer: what `step` needs of the positions before.

    Subclasses have `state_spec` and `step`, and attributes of projections:
    `query`.
    """

    def state_spec(
        self, batch_size: int | None = None
    ) -> dict[str, tf.TensorSpec]:
        """Returns the shapes and dtypes of a state, for a signature."""
        raise NotImplementedError

    def initial_state(
        self, batch_size: int | tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Creates the state of sequences of which nothing was seen yet.

        Args:
            batch_size: int or scalar tensor. Number of sequences.

        Returns:
            A dictionary of tensors for `step`, see `state_spec`.

        Raises:
            ValueError: as `state_spec`; if `batch_size` is no integer of 0 or
                more.
        """
        return ops.initial_state(self.state_spec(), batch_size)

    def _check_step(self, inputs, state, stride=1):
        spec = self.state_spec(inputs.shape[0])
        check_grid("inputs", tuple(inputs.shape))
        channels = self.query.kernel.shape[0]
        if inputs.shape[2:] != (channels,):
            raise ValueError(
                "`inputs` must have the shape (batch, new positions, "
                f"{channels}). Received: {tuple(inputs.shape)}."
            )
        message = (
            "`inputs` of a step must have a multiple of `strides` positions. "
            f"Received: strides={stride}, positions"
        )
        if (length := inputs.shape[1]) is not None and length % stride:
            raise ValueError(f"{message}={length}.")
        if length is None and stride > 1:
            length = tf.shape(inputs)[1]
            tf.debugging.Assert(length % stride == 0, [message, length])
        check_state(state, spec, "layer")


def check_state(state, spec, owner):
    """Raises a `ValueError` if a state is not what a specification says.

    Args:
        state: what was given.
        spec: from name to `tf.TensorSpec`.
        owner: text, whose state it is.
    """

    def described(parts):
        return {
            name: f"{tf.as_dtype(x.dtype).name} {x.shape}"
            if hasattr(x, "dtype")
            else x
            for name, x in parts.items()
        }

    is_dict = isinstance(state, dict)
    if (
        not is_dict
        or state.keys() != spec.keys()
        or not all(
            part.dtype == getattr(state[name], "dtype", None)
            and part.shape.is_compatible_with(state[name].shape)
            for name, part in spec.items()
        )
    ):
        raise ValueError(
            f"`state` must come from this {owner} and batch, a dictionary "
            f"{described(spec)}. Received: state="
            f"{described(state) if is_dict else state!r}."
        )


class StreamingLambda(Streaming, LambdaBase):
    """Adds `initial_state` and `step` to the base of lambda layers.

    Subclasses say in `causal` whether they stream, and in `_causal_window`
    what their queries see: the entries of the table that lie at or before the
    query, the stride and the dilation.
    """

    def state_spec(
        self, batch_size: int | None = None
    ) -> dict[str, tf.TensorSpec]:
        """Returns the shapes and dtypes of a state, for a signature.

        Args:
            batch_size: int, or None if it varies.

        Returns:
            From name to specification. The content part has "content",
            `(batch, key_dim, intra_depth, value_dim)`; "key_sum" and
            "key_maximum", `(batch, key_dim, intra_depth)`, with softmax, and
            the former with l2. The position part has the last "values",
            `(batch, (p - 1) * dilation, value_dim, intra_depth)` in the
            compute dtype, with p entries
            for the query and its past: `scope // 2 + 1` in `LambdaLayer`,
            `kernel_size` in `LambdaConv`. No size depends on how many
            positions were seen.

        Raises:
            ValueError: if the layer is not built, not causal, or needs all of
                its past: a global or explicit position part.
        """
        self._check_streams()
        parts = {}
        if self.use_content:
            parts = ops.content_state_spec(
                self.key_dim,
                self.value_dim,
                self.intra_depth,
                self.key_normalization,
                self.compute_dtype,
            )
        if self._window():
            shape = [None, self._window(), self.value_dim, self.intra_depth]
            parts["values"] = tf.TensorSpec(shape, self.compute_dtype)
        return {
            name: tf.TensorSpec([batch_size, *part.shape[1:]], part.dtype, name)
            for name, part in parts.items()
        }

    @not_converted
    def step(
        self,
        inputs: tf.Tensor,
        state: dict[str, tf.Tensor],
        mask: tf.Tensor | None = None,
    ) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
        """Computes the outputs of the next positions, in inference.

        Equal to the outputs that a call on the whole sequence, with
        `training=False`, has at these positions.

        Args:
            inputs: `(batch, n, channels)`: one or several new positions, a
                multiple of `strides`.
            state: of the positions before, from `initial_state` or a step.
            mask: None or boolean `(batch, n)`; False = padding, which later
                positions do not see.

        Returns:
            `(batch, n / strides, filters)`, and the next state.

        Raises:
            ValueError: as `state_spec`; if shapes do not fit, or the state
                is not of this layer. Where lengths are known at run time
                only, that is a `tf.errors.InvalidArgumentError`.
        """
        inputs = tf.cast(tf.convert_to_tensor(inputs), self.compute_dtype)
        taps, stride, dilation = self._causal_window()
        self._check_step(inputs, state, stride)
        real = ops.padding_mask(inputs, mask=mask)
        x, query_mask = inputs, real
        if stride > 1:
            x = inputs[:, ::stride]
            query_mask = None if real is None else real[:, ::stride]
        masks = ops.Masks(query_mask, real, causal=True)
        positions = self._window() + ops.size(inputs, 1)
        axis = ops.valid_axis(positions, taps, stride, dilation)
        geometry = ops.Geometry.of([axis])
        outputs, state = self._outputs(
            x, inputs, self._table(), geometry, masks, False, state
        )  # [b, n / stride, h, v]
        return unflatten(outputs, [ops.size(outputs, 1)]), state

    def _window(self):
        """How many values before the new positions are kept."""
        taps, _, dilation = self._causal_window()
        return (taps - 1) * dilation if self.use_position else 0

    def _check_streams(self):
        if not self.causal:
            raise ValueError(
                f"Layer {self.name!r} cannot stream: its outputs depend on "
                "positions that come later. `LambdaLayer` needs causal=True, "
                "`LambdaConv` padding='causal'."
            )
        if self.use_position and self.position_embedding is None:
            raise ValueError(
                f"Layer {self.name!r} cannot stream: with position_embedding="
                "'explicit' every pair of positions has its own embedding."
            )
        if self.use_position and self.scope is None:
            raise ValueError(
                f"Layer {self.name!r} cannot stream: with scope=None every "
                "value that was ever seen keeps its own embedding, and the "
                "state would grow. Give `scope` an odd number, or leave the "
                "position part out with use_position=False."
            )
