"""The networks of this package as backbones of the Model Garden."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import tf_keras
from official.modeling import hyperparams
from official.vision.configs import backbones
from official.vision.configs import common
from official.vision.modeling.backbones import factory

from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.arguments import one_of

# The value of fields that the config does not change.
DEFAULT = "default"
HEAD_MAP = "head"  # the input of a MobileNet's classifier


@dataclasses.dataclass
class _Network(hyperparams.Config):
    """A network of `lambdanet_tf.specs` with changed attributes.

    `"default"` keeps the network's own value. `norm_activation` defines the
    activation and the normalization, and the task's model the dropout rate.

    Attributes:
        name: the network, one of `lambdanet_tf.models.names()`.
        weights: None, or initial weights as in `lambdanet_tf.models.build`: a
            weight file, a run folder, a `.safetensors` file of timm, or
            `"imagenet"`.
        implementation: algorithm of the lambda layers.
    """

    name: str = ""
    weights: str | None = None
    implementation: str = "auto"
    stem_filters: Any = DEFAULT
    padding: str = DEFAULT
    num_heads: int | str = DEFAULT
    key_dim: int | str = DEFAULT
    intra_depth: int | str = DEFAULT


@dataclasses.dataclass
class LambdaResNet(_Network):
    """A network with the attributes of `specs.ResNetSpec`."""

    name: str = "LambdaResNet50"
    stages: list[str] | str = DEFAULT
    drop_path_rate: float | str = DEFAULT
    drop_path_schedule: str = DEFAULT
    widths: list[int] | str = DEFAULT
    strides: list[int] | str = DEFAULT
    expansion: int | str = DEFAULT
    stem_strides: list[int] | str = DEFAULT
    stem_kernel_size: int | str = DEFAULT
    stem_pool: bool | str = DEFAULT
    shortcut: str = DEFAULT
    lambda_pool: int | str = DEFAULT
    se_ratio: float | str = DEFAULT
    se_stages: list[int] | str = DEFAULT
    scope: Any = DEFAULT
    use_content: bool | str = DEFAULT
    use_position: bool | str = DEFAULT
    use_position_bias: bool | str = DEFAULT
    key_normalization: str | None = DEFAULT
    query_normalization: str | None = DEFAULT
    use_batch_norm: bool | str = DEFAULT
    share_embeddings: bool | str = DEFAULT
    attention_heads: int | str = DEFAULT
    attention_key_dim: Any = DEFAULT
    attention_scope: Any = DEFAULT
    attention_pool: int | str = DEFAULT
    parallel_keys: float | str = DEFAULT
    parallel_values: float | str = DEFAULT


@dataclasses.dataclass
class LambdaMobileNet(_Network):
    """A network with the attributes of `specs.MobileNetSpec`."""

    name: str = "LambdaMobileNetV2"
    rows: Any = DEFAULT
    lambda_blocks: list[int] | str = DEFAULT
    head_filters: int | str = DEFAULT
    kernel_size: int | str = DEFAULT


@dataclasses.dataclass
class Backbone(backbones.Backbone):
    """The Model Garden's backbones and ours; `type` names one.

    Attributes:
        lambda_resnet: LambdaResNets, ResNet-RS, ResNet-50, and any network of
            their blocks.
        lambda_mobilenet: MobileNetV2, in which any block can be a lambda block.
    """

    lambda_resnet: LambdaResNet = dataclasses.field(
        default_factory=LambdaResNet
    )
    lambda_mobilenet: LambdaMobileNet = dataclasses.field(
        default_factory=LambdaMobileNet
    )


class NetworkBackbone(tf_keras.Model):
    """Feature maps of a network, by level; level l has stride 2^l.

    Layers with weights are attributes under their own names. So the names in
    checkpoints are those of our weight files, and a checkpoint also fits a
    network with other layers without weights, such as stochastic depth.

    Args:
        network: one of `lambdanet_tf.models.names()`.
        image_shape: (height, width, channels); height and width can be None
            if the lambda layers are local.
        changes: attributes of the network's spec to change.
        **arguments: arguments of `lambdanet_tf.models.build`, such as
            `weights`.

    Call arguments:
        images: `(batch, height, width, channels)`, normalized by the Model
            Garden.

    Output:
        A dictionary from level, `"2"` to `"5"` in the published networks, to
        feature map. MobileNets add the map that their classifier reads.
    """

    def __init__(
        self,
        network: str = "LambdaResNet50",
        image_shape: tuple[int | None, ...] = (None, None, 3),
        changes: Mapping[str, Any] | None = None,
        name: str = "backbone",
        **arguments: Any,
    ):
        one_of("name", network, specs.PRESETS)
        super().__init__(name=name)
        changes = dict(changes or {})
        self._levels = _levels(network, changes)
        model = models.build(
            network,
            input_tensor=tf_keras.Input(image_shape, name="images"),
            endpoints=tuple(self._levels.values()),
            include_preprocessing=False,
            **arguments,
            **changes,
        )
        for layer in model.layers:
            if layer.weights:
                setattr(self, layer.name, layer)
        # Keras does not track a method. It would track the model, and so save
        # its layers a second time, by number.
        self._maps = model.__call__
        # Decoders read the shapes of the maps here.
        self.output_specs = {
            level: model.output[endpoint].shape
            for level, endpoint in self._levels.items()
            if endpoint != HEAD_MAP
        }

    def call(self, images, training=None):
        maps = self._maps(images, training=training)
        return {level: maps[name] for level, name in self._levels.items()}


def _levels(network, changes):
    """Returns the last map of each stride by level: `{"2": "c2", ...}`."""
    spec = specs.replace(specs.PRESETS[network].spec, changes)
    levels = specs.pyramid_levels(spec)
    if isinstance(spec, specs.MobileNetSpec):
        levels[max(levels) + 1] = HEAD_MAP
    return {str(level): endpoint for level, endpoint in levels.items()}


@factory.register_backbone_builder("lambda_resnet")
@factory.register_backbone_builder("lambda_mobilenet")
def build_backbone(
    input_specs: tf_keras.layers.InputSpec,
    backbone_config: Backbone,
    norm_activation_config: common.NormActivation,
    l2_regularizer: tf_keras.regularizers.Regularizer | None = None,
) -> NetworkBackbone:
    """Builds a backbone; the factory of the Model Garden calls it."""
    # Not None, because its type selected this function.
    config = backbone_config.get().as_dict()  # pyright: ignore[reportOptionalMemberAccess]
    arguments = {key: config.pop(key) for key in ("weights", "implementation")}
    network = config.pop("name")
    changes = {key: v for key, v in config.items() if v != DEFAULT}
    return NetworkBackbone(
        network,
        image_shape=tuple(input_specs.shape or ())[1:],
        changes={"activation": norm_activation_config.activation, **changes},
        name=network,
        kernel_regularizer=l2_regularizer,
        norm_momentum=norm_activation_config.norm_momentum,
        norm_epsilon=norm_activation_config.norm_epsilon,
        use_sync_bn=norm_activation_config.use_sync_bn,
        **arguments,
    )
