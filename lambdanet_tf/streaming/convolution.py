"""Steps of Keras' causal `Conv1D`; its state is the last inputs."""

from typing import Any

import tensorflow as tf


def streams(layer: Any) -> bool:
    """Returns whether a layer is a causal convolution of several positions."""
    if type(layer) is not tf.keras.layers.Conv1D:
        return False
    return layer.padding == "causal" and layer.kernel_size[0] > 1


def initial_state(layer: Any, batch_size: int | tf.Tensor) -> dict:
    """Returns zeros, the padding that Keras uses."""
    window = (layer.kernel_size[0] - 1) * layer.dilation_rate[0]
    shape = [batch_size, window, layer.kernel.shape[1] * layer.groups]
    return {"inputs": tf.zeros(shape, layer.compute_dtype)}


def step(layer: Any, inputs: tf.Tensor, state: dict) -> tuple[tf.Tensor, dict]:
    """Returns the outputs of the next positions, and the next state."""
    if "inputs" not in state:
        raise ValueError(
            "`state` must come from `initial_state` or `step` of this model. "
            f"Received: no state of the layer {layer.name!r}."
        )
    new = tf.cast(inputs, layer.compute_dtype)
    x = tf.concat([state["inputs"], new], axis=1)
    outputs = tf.nn.convolution(
        x,
        tf.cast(tf.convert_to_tensor(layer.kernel), x.dtype),
        strides=layer.strides,
        padding="VALID",
        dilations=layer.dilation_rate,
    )  # [b, n, filters]
    if layer.use_bias:
        outputs += tf.cast(tf.convert_to_tensor(layer.bias), x.dtype)
    return layer.activation(outputs), {"inputs": x[:, tf.shape(new)[1] :]}
