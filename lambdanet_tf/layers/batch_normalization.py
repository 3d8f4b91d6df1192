"""Batch normalization by one fused operation, or in two passes."""

import numpy as np
import tensorflow as tf

from lambdanet_tf.environment import is_compiled_by_xla
from lambdanet_tf.layers.base import refuse_other_keras

# The default of every layer and network. Recipes (training/recipe.py,
# recipes.json) and garden/experiments.py have their own.
NORM_MOMENTUM = 0.9
_FUSED = (tf.float16, tf.bfloat16, tf.float32)


@tf.keras.utils.register_keras_serializable(package="lambdanet_tf")
class BatchNormalization(tf.keras.layers.BatchNormalization):
    """Normalizes every channel over a batch.

    It has the arguments, weights and function of Keras' layer, but its default
    momentum is 0.9. With Keras' 0.99, inference differs from training for some
    hundred steps.

    In a graph it calls TensorFlow's fused operation for half precision and
    float32, if there is no mask and replicas do not share statistics.
    Otherwise it computes in two passes, in float32 or wider. It also does so
    if XLA compiles the call, and in eager calls on a CPU, where threads must
    not share the fused operation. Keras' own code handles axes other than the
    last, `renorm` and `virtual_batch_size`.

    Under both Kerases and for every rank, the moving variance averages the
    biased variance of the batch. An empty batch changes no average. With
    `synchronized=True`, the batch spans all replicas, which may have different
    numbers of examples.

    Examples:
        >>> norm = BatchNormalization()
        >>> norm(tf.random.normal([8, 4, 4, 16]), training=True).shape
        TensorShape([8, 4, 4, 16])
        >>> norm.momentum
        0.9

    Reference: [Ioffe and Szegedy, 2015](https://arxiv.org/abs/1502.03167).
    """

    def __init__(self, axis=-1, momentum=NORM_MOMENTUM, *args, **kwargs):
        super().__init__(axis, momentum, *args, **kwargs)

    def __call__(self, inputs, *args, **kwargs):
        refuse_other_keras(self, inputs)
        return super().__call__(inputs, *args, **kwargs)

    def call(self, inputs, training=None, mask=None):
        if tf.is_tensor(training):
            # Keras 2 passes a tensor of unknown value to functional models.
            known = tf.get_static_value(training)
        else:
            known = bool(training)
        rank, (axis, *more) = len(inputs.shape), tf.nest.flatten(self.axis)
        names = "renorm", "virtual_batch_size"
        more += [name for name in names if getattr(self, name, None)]
        if known is None or more or axis % rank != rank - 1:
            return super().call(inputs, training=training, mask=mask)
        training = bool(known and self.trainable)
        replica, mask = (self._replica(), mask) if training else (None, None)
        if mask is None and replica is None and self._is_fused(inputs):
            outputs, *statistics = self._by_operation(inputs, training)
        else:
            dtype = tf.float64 if inputs.dtype == tf.float64 else tf.float32
            outputs, *statistics = self._in_two_passes(
                tf.cast(inputs, dtype), training, mask, replica
            )
        if training:
            self._move(*statistics)
        return tf.cast(outputs, self.compute_dtype)

    def _is_fused(self, inputs):
        if tf.executing_eagerly():
            is_safe = "CPU" not in inputs.device
        else:
            is_safe = not is_compiled_by_xla()
        is_taken = inputs.dtype in _FUSED and inputs.dtype == self.compute_dtype
        return is_safe and is_taken

    def _replica(self):
        context = tf.distribute.get_replica_context()
        if not self.synchronized or context is None:
            return None
        return context if context.num_replicas_in_sync > 1 else None

    def _weights_in(self, dtype):
        """Returns gamma, beta and the moving mean and variance in a dtype."""
        channels = self.moving_mean.shape
        gamma = tf.ones(channels) if self.gamma is None else self.gamma
        beta = tf.zeros(channels) if self.beta is None else self.beta
        weights = gamma, beta, self.moving_mean, self.moving_variance
        return [tf.cast(weight, dtype) for weight in weights]

    def _by_operation(self, inputs, training):
        """Returns outputs, count, mean and variance, by the operation."""
        gamma, beta, mean, variance = self._weights_in(tf.float32)
        images, channels = inputs, inputs.shape[-1]
        if len(inputs.shape) != 4:  # all that the operation supports
            images = tf.reshape(inputs, [-1, 1, 1, channels])
        outputs, of_batch, variance_of_batch, *_ = tf.raw_ops.FusedBatchNormV3(
            x=images,
            scale=gamma,
            offset=beta,
            mean=tf.zeros([0]) if training else mean,
            variance=tf.zeros([0]) if training else variance,
            epsilon=self.epsilon,
            is_training=training,
        )
        if images is not inputs:
            outputs = tf.reshape(outputs, tf.shape(inputs))
        count = tf.cast(tf.size(inputs) // channels, tf.float32)
        mean = tf.where(count > 0.0, of_batch, 0.0)
        # The operation returns the unbiased variance.
        share = tf.math.divide_no_nan(count - 1.0, count)
        variance = tf.where(count > 1.0, variance_of_batch * share, 0.0)
        return outputs, count, mean, variance

    def _in_two_passes(self, x, training, mask, replica):
        """Returns outputs, count, mean and variance, in float32 or wider."""
        gamma, beta, mean, variance = self._weights_in(x.dtype)
        count = rest = 0.0
        if training:
            count, mean, rest, variance = _moments(x, mask, replica)
        scale = gamma * tf.math.rsqrt(variance + self.epsilon)
        outputs = (x - mean - rest) * scale + beta
        return outputs, count, mean + rest, variance

    def _move(self, count, *statistics):
        """Updates the moving averages, unless the batch is empty."""
        share = tf.minimum(count, 1.0 - self.momentum)  # Counts are integers.
        averages = self.moving_mean, self.moving_variance
        for average, value in zip(averages, statistics, strict=True):
            old = tf.cast(average, value.dtype)
            new = old + (value - old) * tf.cast(share, value.dtype)
            average.assign(tf.cast(new, average.dtype))


def _moments(x, mask, replica):
    """Returns count, mean (in two parts) and variance of each channel.

    The second part of the mean is the rounding error of the first, so that a
    large mean loses no digits.
    """
    axes = list(range(len(x.shape) - 1))
    count = tf.size(x) // x.shape[-1]
    if mask is not None:
        mask = tf.cast(mask, tf.bool)
        mask.shape.assert_has_rank(len(axes))
        mask = mask[..., None]
        count = tf.reduce_sum(tf.cast(mask, tf.int32))
    count = tf.fill(x.shape[-1:], tf.cast(count, x.dtype))

    def mean(x):
        x = x if mask is None else tf.where(mask, x, 0.0)
        return tf.math.divide_no_nan(tf.reduce_sum(x, axes), count)

    near = tf.stop_gradient(mean(x))
    near = _as_stored(near) if is_compiled_by_xla() else near
    rest = mean(x - near)
    variance = mean(tf.square(x - near - rest))
    if replica is None:
        return count, near, rest, variance
    return _joint(replica, count, near, rest, variance)


def _as_stored(x):
    """Rounds a value so that every reader gets the same one.

    XLA may compute it again in each of its loops, in some by a fused
    multiply-add, which does not round. Reading its bits prevents that.
    """
    integer = tf.int64 if x.dtype == tf.float64 else tf.int32
    even = tf.bitwise.bitwise_and(tf.bitcast(x, integer), -2)
    return tf.bitcast(even, x.dtype)


def _joint(replica, *moments):
    """Returns the moments of all replicas, from those of each.

    Each replica fills its own row, so that the sum holds the rows of all.
    """
    own = replica.replica_id_in_sync_group
    known = tf.get_static_value(own)  # None on TPUs
    rows = np.arange(replica.num_replicas_in_sync, dtype=np.int32)
    is_own = rows[:, None, None] == (own if known is None else known)
    rows = tf.where(is_own, tf.stack(moments), 0.0)
    counts, nears, rests, variances = tf.unstack(
        _sum_over_replicas(replica, rows), axis=1
    )
    near = moments[1]
    rests += nears - near  # relative to this replica's
    count = tf.reduce_sum(counts, 0)
    share = tf.math.divide_no_nan(counts, count)
    rest = tf.reduce_sum(share * rests, 0)
    variance = tf.reduce_sum(share * (variances + tf.square(rests - rest)), 0)
    return count, near, rest, variance


def _sum_over_replicas(replica, x):
    """Sums a tensor over all replicas.

    TensorFlow's custom gradients search for variables between their outputs and
    inputs, and so enter the graphs of the other replicas. `stop_gradient` ends
    that search. The gradient is one more all-reduce.
    """

    @tf.custom_gradient
    def reduce(x):
        total = _all_reduce(replica, tf.stop_gradient(x))
        return total, lambda upstream: _sum_over_replicas(replica, upstream)

    return reduce(x)


def _all_reduce(replica, x):
    if is_compiled_by_xla():  # where replicas cannot be merged
        return replica.all_reduce("sum", x)

    def merged(strategy, x):
        return strategy.extended.reduce_to("sum", x, destinations=x)

    return replica.merge_call(merged, args=(x,))
