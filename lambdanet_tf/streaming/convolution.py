"""A causal convolution of Keras, piece by piece."""

import tensorflow as tf

from lambdanet_tf import ops


class ConvolutionStep:
    """Steps in place of a `Conv1D`, with the inputs that its window holds.

    Args:
        layer: with padding "causal" and a stride of 1.

    Raises:
        ValueError: for any other.
    """

    def __init__(self, layer: tf.keras.layers.Layer):
        (stride,), (self._dilation,) = layer.strides, layer.dilation_rate
        for is_wrong, given, remedy in (
            (
                layer.padding != "causal",
                f"padding={layer.padding!r}",
                "padding='causal'",
            ),
            (stride != 1, f"strides={stride}", "strides=1"),
            (
                layer.data_format != "channels_last",
                f"data_format={layer.data_format!r}",
                "data_format='channels_last'",
            ),
        ):
            if is_wrong:
                raise ValueError(
                    f"Layer {layer.name!r} cannot stream with {given}. Use "
                    f"{remedy}."
                )
        self.layer = layer
        self._window = (layer.kernel_size[0] - 1) * self._dilation

    def state_spec(
        self, batch_size: int | None = None
    ) -> dict[str, tf.TensorSpec]:
        """Returns the specification of the last inputs, "inputs"."""
        if not self._window:
            return {}
        channels = self.layer.kernel.shape[1] * self.layer.groups
        shape = [batch_size, self._window, channels]
        return {
            "inputs": tf.TensorSpec(shape, self.layer.compute_dtype, "inputs")
        }

    def initial_state(self, batch_size: int | tf.Tensor) -> dict:
        """Returns zeros, as Keras pads with."""
        return ops.initial_state(self.state_spec(), batch_size)

    def step(
        self, inputs: tf.Tensor, state: dict, mask: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, dict]:
        """Computes the outputs of the next positions, and the next state.

        Args:
            inputs: `(batch, n, channels)`.
            state: of the positions before.
            mask: not read, as by Keras' layer.
        """
        x = tf.cast(inputs, self.layer.compute_dtype)
        length = ops.size(x, 1)
        if self._window:
            x = tf.concat([state["inputs"], x], axis=1)
            state = {"inputs": x[:, length:]}
        kernel = tf.cast(tf.convert_to_tensor(self.layer.kernel), x.dtype)
        outputs = tf.nn.convolution(
            x, kernel, padding="VALID", dilations=[self._dilation]
        )  # [b, n, filters]
        if self.layer.use_bias:
            bias = tf.convert_to_tensor(self.layer.bias)
            outputs += tf.cast(bias, x.dtype)
        return self.layer.activation(outputs), state
