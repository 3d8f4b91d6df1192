"""Batch normalization by one operation."""

import tensorflow as tf

from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.layers.base import CheckedCall
from lambdanet_tf.layers.grids import with_shape

_FUSED = (tf.float16, tf.bfloat16, tf.float32)


@tf.keras.utils.register_keras_serializable(package="lambdanet_tf")
class BatchNormalization(CheckedCall, tf.keras.layers.BatchNormalization):
    """Normalizes every channel over a batch, by one operation.

    The function, the arguments and the weights of Keras' layer. The momentum is
    0.9 by default: with Keras' 0.99 a model's inference is far from its
    training for some hundred steps.

    Keras 3 adds the function up from a dozen elementwise operations, whose
    intermediates all go through memory; here TensorFlow's fused operation
    computes it, as under Keras 2, wherever there is one: channels last, half
    precision or float32, no mask, no batch renormalization, and no statistics
    over all replicas.

    Reference: [Ioffe and Szegedy, 2015](https://arxiv.org/abs/1502.03167).
    """

    def __init__(self, axis=-1, momentum=0.9, *args, **kwargs):
        super().__init__(axis, momentum, *args, **kwargs)

    def __call__(self, inputs, *args, **kwargs):
        if self.built and tf.is_tensor(inputs):
            rank = self.input_spec.ndim
            axes = {axis % rank: n for axis, n in self.input_spec.axes.items()}
            inputs = with_shape(inputs, [axes.get(i) for i in range(rank)])
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs, training=None, mask=None):
        if not KERAS_3 or not self._is_fused(inputs, training, mask):
            return super().call(inputs, training=training, mask=mask)
        training = bool(training and self.trainable)
        images, channels = inputs, inputs.shape[-1]
        if len(inputs.shape) != 4:  # all that the operation knows
            images = tf.reshape(inputs, [-1, 1, 1, channels])
        gamma = tf.ones(channels) if self.gamma is None else self.gamma
        beta = tf.zeros(channels) if self.beta is None else self.beta
        mean = tf.cast(self.moving_mean, tf.float32)
        variance = tf.cast(self.moving_variance, tf.float32)
        outputs, batch_mean, batch_variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=images,
            scale=tf.cast(gamma, tf.float32),
            offset=tf.cast(beta, tf.float32),
            mean=mean[:0] if training else mean,
            variance=variance[:0] if training else variance,
            epsilon=self.epsilon,
            is_training=training,
        )
        if training:
            # The operation divides by one less, as for a sample's variance.
            count = tf.cast(tf.size(inputs) // channels, tf.float32)
            batch_variance *= (count - 1.0) / count
            self._move(self.moving_mean, mean, batch_mean)
            self._move(self.moving_variance, variance, batch_variance)
        if images is not inputs:
            outputs = tf.reshape(outputs, tf.shape(inputs))
        return outputs

    def _is_fused(self, inputs, training, mask):
        return (
            mask is None
            and inputs.dtype in _FUSED
            and self.axis in (-1, len(inputs.shape) - 1)
            and not (training and self.synchronized)
            and not getattr(self, "renorm", False)
        )

    def _move(self, average, value, statistic):
        share = 1.0 - self.momentum
        average.assign(value * self.momentum + statistic * share)
