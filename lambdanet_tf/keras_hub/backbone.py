"""The networks of this package as backbones of KerasHub."""

import contextlib
import dataclasses
from typing import Any

import keras
import keras_hub

from lambdanet_tf import models
from lambdanet_tf.models.weight_names import named_layers

# Arguments that are objects, and the modules that deserialize them.
_OBJECTS = {
    "kernel_initializer": keras.initializers,
    "kernel_regularizer": keras.regularizers,
}


@keras.saving.register_keras_serializable(package="lambdanet_tf")
class NetworkBackbone(
    keras_hub.models.FeaturePyramidBackbone  # pyright: ignore[reportAttributeAccessIssue]
):
    """A network of this package without its head, for KerasHub's tasks.

    Its output is the last feature map; `pyramid_outputs` has one per stride.

    Args:
        network: str. One of `lambdanet_tf.models.names()`.
        image_shape: (height, width, channels). Height and width can be None
            if the lambda layers are local.
        weights: as in `lambdanet_tf.models.build`.
        dtype: a dtype or policy for the layers; None for the global policy.
        name: the model's name; None for the network's.
        trainable: bool.
        frozen: names of inner layers that are not trained, as `get_config`
            returns them.
        **arguments: other arguments of the network's builder, including
            attributes of its spec.

    Call arguments:
        images: `(batch, height, width, channels)` in [0, 255].
        training: bool.

    Raises:
        ValueError: if an argument is unknown or out of range, or if it changes
            what the network returns.

    Examples:
        >>> encoder = NetworkBackbone(
        ...     "LambdaResNet50", image_shape=(128, 128, 3)
        ... )
        >>> {name: x.shape[1:] for name, x in encoder.pyramid_outputs.items()}
        {'P2': (32, 32, 256), 'P3': (16, 16, 512), 'P4': (8, 8, 1024),
         'P5': (4, 4, 2048)}
        >>> backbone = keras_hub.models.RetinaNetBackbone(
        ...     encoder, min_level=3, max_level=5, use_p5=False
        ... )
    """

    def __init__(
        self,
        network="LambdaResNet50",
        image_shape=(None, None, 3),
        weights=None,
        dtype=None,
        name=None,
        trainable=True,
        frozen=(),
        **arguments: Any,
    ):
        heads = {"include_top", "pooling", "endpoints", "classes"}
        heads |= {"input_shape", "input_tensor", "classifier_activation"}
        if refused := sorted(heads & set(arguments)):
            raise ValueError(
                "A backbone returns all feature maps and has no head, and "
                "`image_shape` sets the shape of its inputs. Remove these "
                f"arguments: {', '.join(refused)}."
            )
        for key, kind in _OBJECTS.items():
            if key in arguments:
                arguments[key] = kind.get(arguments[key])
        with _policy(dtype):
            model = models.build(
                network,
                input_shape=tuple(image_shape),
                include_top=False,
                weights=weights,
                **arguments,
            )
        super().__init__(
            inputs=model.inputs,
            outputs=model.output,
            dtype=dtype,
            name=name or network,
            trainable=trainable,
        )
        self.pyramid_outputs = model.pyramid_outputs
        self.network = network
        self.image_shape = tuple(image_shape)
        self.arguments = arguments
        for path, layer in named_layers(self):
            if path in frozen:
                layer.trainable = False

    def get_config(self):
        arguments = dict(self.arguments)
        for key in _OBJECTS.keys() & arguments.keys():
            arguments[key] = _OBJECTS[key].serialize(arguments[key])
        frozen = [
            path
            for path, layer in named_layers(self)
            if path and not layer.trainable
        ]
        return {
            **super().get_config(),
            "network": self.network,
            "image_shape": self.image_shape,
            "frozen": frozen,
            **{key: _plain(value) for key, value in arguments.items()},
        }


def _plain(value: Any) -> Any:
    """Converts an argument for JSON: rows of a network to dictionaries."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return value


@contextlib.contextmanager
def _policy(dtype):
    """Sets the dtype policy of new layers."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype or before)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
