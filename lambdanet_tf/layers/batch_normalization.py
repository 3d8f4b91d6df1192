"""Batch normalization by one operation, or in two passes."""

import numpy as np
import tensorflow as tf

from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.layers.calls import CheckedCall
from lambdanet_tf.layers.grids import with_shape
from lambdanet_tf.ops.geometry import is_compiled_by_xla

_FUSED = (tf.float16, tf.bfloat16, tf.float32)


@tf.keras.utils.register_keras_serializable(package="lambdanet_tf")
class BatchNormalization(CheckedCall, tf.keras.layers.BatchNormalization):
    """Normalizes every channel over a batch.

    The arguments, the weights and the function of Keras' layer. The momentum is
    0.9 by default: with Keras' 0.99 a model's inference is far from its
    training for some hundred steps.

    In a graph, TensorFlow's fused operation computes it where there is one:
    half precision or float32, no mask, no statistics of several replicas.
    Elsewhere it is computed in two passes, in float32 or wider. So are eager
    calls on a CPU, where threads must not share the operation, and what XLA
    compiles, which would lose the variance of channels far from zero.

    Under both Kerases and for every rank, the variance that moves the average
    is that of the batch, divided by its number of values. Without values, in a
    batch without examples or with a mask that leaves none, the moving
    statistics stay as they are.

    With `synchronized=True` a batch is that of all replicas, whose numbers of
    examples may differ: outputs, gradients and moving statistics are those of
    one device with the whole batch and the whole mask. Replicas exchange four
    numbers a channel for each replica in the forward pass and two in the
    backward pass, in one all-reduce each. Without it, replicas of a
    `MirroredStrategy` have moving statistics of their own: Keras 3 keeps those
    of the first one, tf_keras their mean, as Keras' own layers do.

    Batch renormalization and, in tf_keras, several axes, `virtual_batch_size`
    and `adjustment`, are left to Keras' layer.

    Examples:
        >>> norm = BatchNormalization()
        >>> norm(tf.random.normal([8, 4, 4, 16]), training=True).shape
        TensorShape([8, 4, 4, 16])
        >>> norm.momentum
        0.9

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
        if tf.is_tensor(training):
            known = tf.get_static_value(training)
        else:
            known = training or False
        # Keras 2 builds functional models with a tensor of unknown value.
        if known is None or self._is_left_to_keras():
            return super().call(inputs, training=training, mask=mask)
        training = bool(known and self.trainable)
        mask = _broadcast(mask, inputs) if training else None
        rank = len(inputs.shape)
        order = list(range(rank))
        order.append(order.pop(_axes(self.axis)[0]))
        if order[-1] == rank - 1:
            return self._normalize(inputs, mask, training)
        inputs = tf.transpose(inputs, order)
        mask = None if mask is None else tf.transpose(mask, order)
        outputs = self._normalize(inputs, mask, training)
        return tf.transpose(outputs, [order.index(i) for i in range(rank)])

    def _normalize(self, inputs, mask, training):
        """Normalizes the last axis, and moves the averages in training."""
        replica = self._replica() if training else None
        if mask is None and replica is None and self._is_fused(inputs):
            outputs, *statistics = self._by_operation(inputs, training)
        else:
            dtype = tf.float64 if inputs.dtype == tf.float64 else tf.float32
            gamma, beta = self._gamma_and_beta(dtype)
            if training:
                outputs, *statistics = _by_batch(
                    inputs, gamma, beta, self.epsilon, mask, replica
                )
            else:
                variance = tf.cast(self.moving_variance, dtype)
                scale = gamma * tf.math.rsqrt(variance + self.epsilon)
                mean = tf.cast(self.moving_mean, dtype)
                outputs = (tf.cast(inputs, dtype) - mean) * scale + beta
                statistics = ()
        if training:
            self._move(*statistics)
        return tf.cast(outputs, self.compute_dtype)

    def _by_operation(self, inputs, training):
        """Outputs; count, mean and variance of the batch."""
        gamma, beta = self._gamma_and_beta(tf.float32)
        mean = variance = tf.zeros([0])
        if not training:
            mean = tf.cast(self.moving_mean, tf.float32)
            variance = tf.cast(self.moving_variance, tf.float32)
        images, channels = inputs, inputs.shape[-1]
        if len(inputs.shape) != 4:  # all that the operation knows
            images = tf.reshape(inputs, [-1, 1, 1, channels])
        outputs, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=images,
            scale=gamma,
            offset=beta,
            mean=mean,
            variance=variance,
            epsilon=self.epsilon,
            is_training=training,
        )
        if images is not inputs:
            outputs = tf.reshape(outputs, tf.shape(inputs))
        if not training:
            return (outputs,)
        count = tf.cast(tf.size(inputs) // channels, tf.float32)
        mean = tf.where(count > 0.0, mean, 0.0)
        # The operation divides by one less, as for a sample's variance.
        variance = tf.where(count > 1.0, variance * (count - 1.0) / count, 0.0)
        return outputs, count, mean, variance

    def _is_left_to_keras(self):
        return (
            getattr(self, "renorm", False)
            or len(_axes(self.axis)) > 1
            or getattr(self, "virtual_batch_size", None) is not None
            or getattr(self, "adjustment", None) is not None
        )

    def _is_fused(self, inputs):
        """Whether the operation takes such inputs, and is safe and right."""
        is_right = not is_compiled_by_xla()
        if tf.executing_eagerly():
            is_right = "CPU" not in inputs.device
        is_taken = inputs.dtype in _FUSED and inputs.dtype == self.compute_dtype
        return is_right and is_taken

    def _replica(self):
        """The context of one of several replicas that share statistics."""
        context = tf.distribute.get_replica_context()
        if not self.synchronized or context is None:
            return None
        return context if context.num_replicas_in_sync > 1 else None

    def _gamma_and_beta(self, dtype):
        channels = self.moving_mean.shape
        gamma = tf.ones(channels) if self.gamma is None else self.gamma
        beta = tf.zeros(channels) if self.beta is None else self.beta
        return tf.cast(gamma, dtype), tf.cast(beta, dtype)

    def _move(self, count, *statistics):
        """Moves the averages, unless there were no values."""
        share = tf.minimum(count, 1.0 - self.momentum)  # Counts are integers.
        averages = self.moving_mean, self.moving_variance
        for average, value in zip(averages, statistics, strict=True):
            old = tf.cast(average, value.dtype)
            new = old + (value - old) * tf.cast(share, value.dtype)
            new = tf.cast(new, average.dtype)
            if KERAS_3:
                average.assign(new)
            else:  # Keras 2 decides whether averages move here.
                self.add_update(lambda a=average, new=new: a.assign(new))


def _by_batch(inputs, gamma, beta, epsilon, mask, replica):
    """Outputs; count, mean and variance of the batch.

    Computed in the dtype of gamma and beta. The mask is None or has the shape
    of the inputs; the replica is None or the context of one of several.
    """
    dtype, axes = gamma.dtype, tf.constant([*range(len(inputs.shape) - 1)])
    statistics = []

    @tf.custom_gradient
    def normalize(inputs, gamma, beta):
        x = tf.cast(inputs, dtype)
        count, near, rest, variance = _statistics(x, axes, mask, replica)
        statistics[:] = count, near + rest, variance
        scale = tf.math.rsqrt(variance + epsilon)
        steepness = gamma * scale
        outputs = (x - near - rest) * steepness + beta

        def gradient(upstream):
            unit = (tf.cast(inputs, dtype) - near - rest) * scale
            product = unit * upstream
            if mask is not None:  # Padding may be anything.
                product = tf.math.multiply_no_nan(unit, upstream)
            d_gamma = tf.reduce_sum(product, axes)
            d_beta = tf.reduce_sum(upstream, axes)
            sums = tf.stack([d_gamma, d_beta])
            if replica is not None:
                sums = _sum_over_replicas(replica, sums)
            slope, offset = tf.unstack(
                tf.math.divide_no_nan(sums, count), num=2
            )
            # What the inputs change through the statistics.
            through = unit * slope + offset
            if mask is not None:
                through = tf.where(mask, through, 0.0)
            d_inputs = tf.cast((upstream - through) * steepness, inputs.dtype)
            return d_inputs, d_gamma, d_beta

        return outputs, gradient

    return normalize(inputs, gamma, beta), *statistics


def _statistics(x, axes, mask, replica):
    """Count, mean (in two parts) and variance of each channel.

    The first part of the mean is near it, and what is squared is relative to
    it; the second part is what the first lost by rounding. So no digits are
    lost where the mean is large.
    """
    if mask is None:
        count = tf.cast(tf.size(x) // x.shape[-1], x.dtype)
        count = tf.fill([x.shape[-1]], count)
    else:
        count = tf.cast(tf.reduce_sum(tf.cast(mask, tf.int32), axes), x.dtype)

    def mean(x):
        x = x if mask is None else tf.where(mask, x, 0.0)
        return tf.math.divide_no_nan(tf.reduce_sum(x, axes), count)

    near = _as_stored(mean(x)) if is_compiled_by_xla() else mean(x)
    x -= near
    rest = mean(x)
    variance = tf.maximum(mean(tf.square(x)) - tf.square(rest), 0.0)
    if replica is None:
        return count, near, rest, variance
    return _joint(replica, count, near, rest, variance)


def _as_stored(x):
    """Rounds a value so that it is the same wherever it is read.

    XLA computes it anew in each of its loops, in one of them maybe by a fused
    multiply-add, which does not round. It cannot where bits are looked at.
    """
    integer = tf.int64 if x.dtype == tf.float64 else tf.int32
    even = tf.bitwise.bitwise_and(tf.bitcast(x, integer), -2)
    return tf.bitcast(even, x.dtype)


def _joint(replica, *statistics):
    """The statistics of all replicas, from those of each.

    Every replica fills rows of its own, so that a sum holds the rows of all.
    """
    own = replica.replica_id_in_sync_group
    known = tf.get_static_value(own)  # None on TPUs
    rows = np.arange(replica.num_replicas_in_sync, dtype=np.int32)
    is_own = rows[:, None, None] == (own if known is None else known)
    rows = tf.where(is_own, tf.stack(statistics), 0.0)
    counts, nears, rests, variances = tf.unstack(
        _sum_over_replicas(replica, rows), axis=1
    )
    near, first = statistics[1], tf.constant(0)
    rests += nears - near  # relative to this replica's
    count = tf.reduce_sum(counts, first)
    share = tf.math.divide_no_nan(counts, count)
    rest = tf.reduce_sum(share * rests, first)
    variance = share * (variances + tf.square(rests - rest))
    return count, near, rest, tf.reduce_sum(variance, first)


def _sum_over_replicas(replica, x):
    """The sum of what all replicas have.

    TensorFlow's custom gradients look for variables between their outputs and
    inputs, and so walk into the graphs of the other replicas, unless an
    operation without a gradient ends the walk. Its own all-reduce has one more.
    """

    @tf.custom_gradient
    def reduce(x):
        total = _all_reduce(replica, tf.stop_gradient(x))
        return total, lambda upstream: _sum_over_replicas(replica, upstream)

    return reduce(x)


def _all_reduce(replica, x):
    """As `replica.all_reduce`, without a gradient."""
    if is_compiled_by_xla():  # where replicas cannot be merged
        return replica.all_reduce("sum", x)

    def merged(strategy, x):
        return strategy.extended.reduce_to("sum", x, destinations=x)

    return replica.merge_call(merged, args=(x,))


def _broadcast(mask, inputs):
    """A mask over positions, for every channel; None stays None."""
    if mask is None:
        return None
    if len(mask.shape) != len(inputs.shape) - 1:
        raise ValueError(
            "`mask` must have one axis less than the inputs, those of shape "
            f"{tuple(inputs.shape)}. Received a mask of shape "
            f"{tuple(mask.shape)}."
        )
    mask = tf.cast(mask, tf.bool)[..., None]
    return tf.broadcast_to(mask, tf.shape(inputs))


def _axes(axis):
    """As a list; Keras 2 has one after building."""
    return [axis] if isinstance(axis, int) else list(axis)
