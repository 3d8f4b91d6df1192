"""The layers that all blocks use: convolution, normalization, pooling."""

import dataclasses
from typing import Any

import tensorflow as tf

from lambdanet_tf import ops
from lambdanet_tf import specs
from lambdanet_tf.arguments import boolean
from lambdanet_tf.arguments import fraction
from lambdanet_tf.arguments import one_of
from lambdanet_tf.layers import BatchNormalization
from lambdanet_tf.layers.randomness import Initializers


@dataclasses.dataclass(frozen=True)
class LayerFactory:
    """Makes the layers of one network, with their common arguments."""

    spec: specs.ResNetSpec | specs.MobileNetSpec
    initializer: Any
    kernel_regularizer: Any
    norm_momentum: float
    use_sync_bn: bool
    implementation: str
    _initializers: Initializers = dataclasses.field(
        default_factory=Initializers
    )

    def __post_init__(self):
        fraction("norm_momentum", self.norm_momentum)
        boolean("use_sync_bn", self.use_sync_bn)
        one_of("implementation", self.implementation, ops.implementations())
        tf.keras.activations.get(self.spec.activation)

    @property
    def lambda_arguments(self):
        """Returns the arguments of every lambda layer."""
        return {
            "implementation": self.implementation,
            "kernel_regularizer": self.kernel_regularizer,
            "norm_momentum": self.norm_momentum,
            "norm_epsilon": self.spec.norm_epsilon,
            "use_sync_bn": self.use_sync_bn,
        }

    def kernel_initializer(self):
        """Returns the initializer of the next kernel."""
        return self._initializers(self.initializer)

    def conv(self, x, filters, kernel_size, name, strides=1):
        """Applies a convolution, depthwise if `filters` is None."""
        padding = "same"
        if self.spec.padding == "symmetric" and strides > 1 and kernel_size > 1:
            margin = kernel_size // 2
            x = tf.keras.layers.ZeroPadding2D(margin, name=f"{name}_pad")(x)
            padding = "valid"
        arguments = {
            "kernel_size": kernel_size,
            "strides": strides,
            "padding": padding,
            "use_bias": False,
            "name": name,
        }
        if filters is None:
            return tf.keras.layers.DepthwiseConv2D(
                depthwise_initializer=self.kernel_initializer(),
                depthwise_regularizer=self.kernel_regularizer,
                **arguments,
            )(x)
        return tf.keras.layers.Conv2D(
            filters,
            kernel_initializer=self.kernel_initializer(),
            kernel_regularizer=self.kernel_regularizer,
            **arguments,
        )(x)

    def norm(self, x, name, activate=True, zero_gamma=False):
        """Applies batch normalization, then the activation."""
        x = BatchNormalization(
            momentum=self.norm_momentum,
            epsilon=self.spec.norm_epsilon,
            synchronized=self.use_sync_bn,
            gamma_initializer="zeros" if zero_gamma else "ones",
            name=f"{name}_norm",
        )(x)
        return self.activation(x, f"{name}_act") if activate else x

    def conv_norm(
        self, x, filters, kernel_size, name, strides=1, **norm_arguments
    ):
        """Applies a convolution, its normalization and activation."""
        x = self.conv(x, filters, kernel_size, name, strides)
        return self.norm(x, name, **norm_arguments)

    def activation(self, x, name):
        """Applies the network's activation."""
        return tf.keras.layers.Activation(self.spec.activation, name=name)(x)

    def max_pool(self, x, name):
        """Applies 3x3 max pooling of stride 2; padding is never the maximum."""
        if self.spec.padding == "same":
            return tf.keras.layers.MaxPooling2D(3, 2, "same", name=name)(x)
        # "same" is symmetric with stride 1: pool densely, then subsample.
        x = tf.keras.layers.MaxPooling2D(3, 1, "same", name=f"{name}_dense")(x)
        return tf.keras.layers.MaxPooling2D(1, 2, name=name)(x)


def average_pool(x, window, strides, name):
    """Applies average pooling if strides are above 1."""
    if strides == 1:
        return x
    return tf.keras.layers.AveragePooling2D(
        window, strides, "same", name=f"{name}_pool"
    )(x)
