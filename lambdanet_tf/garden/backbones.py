"""The networks of this package as backbones of the Model Garden."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Any

import tensorflow as tf
import tf_keras
from official.modeling import hyperparams
from official.vision.configs import backbones
from official.vision.configs import common

from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.arguments import one_of

# Fields of a config that keep what the network of its `name` has.
DEFAULT = "default"
HEAD_MAP = "head"  # What the classifier of a MobileNet sees.

_NETWORKS = {name: preset.spec for name, preset in specs.PRESETS.items()}
# Attributes of a spec that the Model Garden has elsewhere: the classifier's
# dropout, `norm_activation.activation` and the size of the inputs.
_ELSEWHERE = ("name", "image_size", "dropout_rate", "activation")


def _config_class(title, spec_class, network):
    """Makes the config class that has every attribute of a spec as a field."""
    fields = [
        (field.name, field.type | str, DEFAULT)
        for field in dataclasses.fields(spec_class)
        if field.name not in _ELSEWHERE
    ]
    doc = f"""A network of `lambdanet_tf.specs`, changed where a field says so.

    Every attribute of `{spec_class.__name__}` is a field; `"default"` keeps
    what the network has. The activation and the normalization come from
    `norm_activation`, the rate of dropout from the task's model.

    Attributes:
        name: of the network, one of `lambdanet_tf.models.names()`.
        weights: None, or what to begin from, as `lambdanet_tf.models.build`
            takes it: a weight file, a run folder, a `.safetensors` file of
            timm, or `"imagenet"`.
        implementation: algorithm of the lambda layers.
    """
    return dataclasses.make_dataclass(
        title,
        [
            ("name", str, network),
            ("weights", str | None, None),
            ("implementation", str, "auto"),
            *fields,
        ],
        bases=(hyperparams.Config,),
        namespace={"__doc__": doc, "__module__": __name__},
    )


LambdaResNet: Any = _config_class(
    "LambdaResNet", specs.ResNetSpec, "LambdaResNet50"
)
LambdaMobileNet: Any = _config_class(
    "LambdaMobileNet", specs.MobileNetSpec, "LambdaMobileNetV2"
)


@dataclasses.dataclass
class Backbone(backbones.Backbone):
    """The Model Garden's backbones and ours; `type` names one.

    Attributes:
        lambda_resnet: LambdaResNets, ResNet-RS, ResNet-50, and any network of
            their blocks.
        lambda_mobilenet: MobileNetV2 with any blocks as lambda blocks.
    """

    # The Model Garden reads these annotations, of classes made above.
    lambda_resnet: LambdaResNet = dataclasses.field(  # pyright: ignore[reportInvalidTypeForm]
        default_factory=LambdaResNet
    )
    lambda_mobilenet: LambdaMobileNet = dataclasses.field(  # pyright: ignore[reportInvalidTypeForm]
        default_factory=LambdaMobileNet
    )


@tf_keras.utils.register_keras_serializable(package="lambdanet_tf")
class NetworkBackbone(tf_keras.Model):
    """Feature maps of a network, by level; level l has stride 2^l.

    The layers with weights are attributes under their own names. So a
    checkpoint has the weights under the names that our weight files have, and
    fits networks that differ in layers without weights, such as those that
    drop paths.

    Args:
        network: str. One of `lambdanet_tf.models.names()`.
        image_shape: (height, width, channels); height and width can be None
            where the lambda layers are local.
        changes: attributes of the network's spec to change.
        weights: None, or what `lambdanet_tf.models.build` takes.
        **arguments: of the builders of `lambdanet_tf.models`: implementation,
            regularizer and normalization.

    Call arguments:
        images: `(batch, height, width, channels)`, normalized as
            `lambdanet_tf.models.preprocess_input` does it for networks without
            preprocessing, and the Model Garden.
        training: bool.

    Output:
        dict from level, `"2"` to `"5"` in the published networks, to feature
        map. MobileNets have one more, the map that their classifier sees.

    Raises:
        ValueError: naming the field, if a value is out of its range.
    """

    def __init__(
        self,
        network: str = "LambdaResNet50",
        image_shape: tuple[int | None, ...] = (None, None, 3),
        changes: Mapping[str, Any] | None = None,
        weights: str | None = None,
        name: str = "backbone",
        **arguments: Any,
    ):
        one_of("name", network, _NETWORKS)
        super().__init__(name=name)
        changes = dict(changes or {})
        config = {
            "network": network,
            "image_shape": tuple(image_shape),
            "changes": changes,
            "name": name,
            **arguments,
        }
        # A plain dict would be tracked, and so become one of Keras' own kind.
        self._config = types.MappingProxyType(config)
        self._levels = _levels(specs.replace(_NETWORKS[network], changes))
        model = models.build(
            network,
            input_tensor=tf_keras.Input(image_shape, name="images"),
            endpoints=tuple(self._levels.values()),
            include_preprocessing=False,
            weights=weights,
            **arguments,
            **changes,
        )
        for layer in model.layers:
            if layer.weights:
                setattr(self, layer.name, layer)
        # A method is not tracked: the model would bring its layers a second
        # time, by their numbers.
        self._maps = model.__call__
        self._output_specs = {
            level: model.output[endpoint].shape
            for level, endpoint in self._levels.items()
            if endpoint != HEAD_MAP
        }

    def call(self, images, training=None):
        maps = self._maps(images, training=training)
        return {level: maps[name] for level, name in self._levels.items()}

    @property
    def output_specs(self) -> dict[str, tf.TensorShape]:
        """Shapes of the maps that decoders take, by level."""
        return self._output_specs

    def get_config(self) -> dict[str, Any]:
        return {
            **self._config,
            "kernel_regularizer": tf_keras.regularizers.serialize(
                self._config.get("kernel_regularizer")
            ),
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        config["kernel_regularizer"] = tf_keras.regularizers.get(
            config["kernel_regularizer"]
        )
        return cls(**config)


def _levels(spec):
    """The last map of each stride by its level: `{"2": "c2", ...}`."""
    for endpoint, stride in spec.map_strides.items():
        if stride & (stride - 1):
            raise ValueError(
                "Strides must be powers of two at the end of a stage, for the "
                f"Model Garden numbers maps by them. Received: {spec.name} "
                f"with a stride of {stride} at {endpoint}."
            )
    levels = specs.pyramid_levels(spec)
    if isinstance(spec, specs.MobileNetSpec):
        levels[max(levels) + 1] = HEAD_MAP
    return {str(level): endpoint for level, endpoint in levels.items()}


def build_backbone(
    input_specs: tf_keras.layers.InputSpec,
    backbone_config: Backbone,
    norm_activation_config: common.NormActivation,
    l2_regularizer: tf_keras.regularizers.Regularizer | None = None,
) -> NetworkBackbone:
    """Builds a backbone, as the factory of the Model Garden calls it."""
    # Not None: its type has chosen this function.
    config = backbone_config.get().as_dict()  # pyright: ignore[reportOptionalMemberAccess]
    arguments = {key: config.pop(key) for key in ("weights", "implementation")}
    network = config.pop("name")
    changes = {key: v for key, v in config.items() if v != DEFAULT}
    norm = norm_activation_config
    return NetworkBackbone(
        network,
        image_shape=tuple(input_specs.shape or ())[1:],
        changes={"activation": norm.activation, **changes},
        name=network,
        kernel_regularizer=l2_regularizer,
        norm_momentum=norm.norm_momentum,
        norm_epsilon=norm.norm_epsilon,
        use_sync_bn=norm.use_sync_bn,
        **arguments,
    )
