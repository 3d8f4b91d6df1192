"""Lambda networks as backbones of the Model Garden, and their configs."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf import specs
from tests.support import networks

garden = pytest.importorskip("lambdanet_tf.garden", exc_type=ImportError)
exp_factory = pytest.importorskip("official.core.exp_factory")
factory = pytest.importorskip("official.vision.modeling.backbones.factory")
hyperparams = pytest.importorskip("official.modeling.hyperparams")
common = pytest.importorskip("official.vision.configs.common")
optimizers = pytest.importorskip("official.modeling.optimization")
preprocess_ops = pytest.importorskip("official.vision.ops.preprocess_ops")
experiments = pytest.importorskip("lambdanet_tf.garden.experiments")

pytestmark = pytest.mark.garden

# Two stages suffice for every kind of layer.
TINY = {
    "name": "ResNet50",
    "stages": ["C", "CL"],
    "widths": [8, 16],
    "strides": [1, 2],
    "scope": 5,
    "key_dim": 4,
}
NORM = {"norm_momentum": 0.7, "norm_epsilon": 0.01, "use_sync_bn": True}


def build(size=32, kind="lambda_resnet", **fields):
    """A backbone by the Model Garden's own factory."""
    config = garden.Backbone(type=kind)
    tiny = TINY if kind == "lambda_resnet" else {}
    config.override({kind: {**tiny, **fields}})
    return factory.build_backbone(
        tf.keras.layers.InputSpec(shape=[None, size, size, 3]),
        config,
        common.NormActivation(**NORM),
    )


def test_features_are_those_of_our_network_of_the_same_file(tmp_path, rng):
    source = models.build(**TINY, input_shape=(32, 32, 3), classes=7)
    path = str(tmp_path / "weights.npz")
    networks.vary(source)
    models.save_weights(source, path)
    backbone = build(weights=path)
    networks.assert_weights(backbone, source)
    arguments = {**TINY, "norm_epsilon": 0.01, "endpoints": ("c2", "c3")}
    network = models.build(**arguments, input_shape=(32, 32, 3), weights=path)
    images = rng.integers(0, 256, (2, 32, 32, 3)).astype(np.uint8)
    normalized = tf.stack([preprocess_ops.normalize_image(x) for x in images])
    found = backbone(normalized, training=False)
    wanted = network(tf.cast(images, tf.float32), training=False)
    assert sorted(found) == ["2", "3"]
    for level, name in (("2", "c2"), ("3", "c3")):
        np.testing.assert_allclose(found[level], wanted[name], 1e-4, 1e-5)
        assert found[level].shape[1:] == backbone.output_specs[level][1:]


def test_mobile_networks_have_the_map_of_their_classifier():
    name = "LambdaMobileNetV2"
    backbone = build(64, kind="lambda_mobilenet", name=name)
    assert sorted(backbone.output_specs) == ["1", "2", "3", "4", "5"]
    maps = backbone(tf.zeros([1, 64, 64, 3]))
    assert maps[max(maps)].shape == (1, 2, 2, 1280)
    without_classifier = models.build(name, include_top=False)
    assert backbone.count_params() == without_classifier.count_params()


def test_an_attribute_reaches_every_layer():
    wanted = {
        "key_dim": 3, "num_heads": 2, "scope": None, "intra_depth": 2,
        "query_normalization": "softmax", "key_normalization": None,
        "implementation": "einsum",
    }  # fmt: skip
    own = [*build(**wanted).submodules]
    (layer,) = [x for x in own if isinstance(x, layers.LambdaLayer)]
    config = layer.get_config()
    assert {name: config[name] for name in wanted} == wanted
    kind = tf.keras.layers.BatchNormalization
    norms = [x for x in own if isinstance(x, kind)]
    assert {"query_norm", "value_norm"} < {norm.name for norm in norms}
    for norm in norms:
        found = norm.momentum, norm.epsilon, norm.synchronized
        assert found == (0.7, 0.01, True), norm.name


def test_every_attribute_of_a_spec_is_a_field():
    elsewhere = {"image_size", "dropout_rate", "activation", "norm_epsilon"}
    elsewhere |= {"image_mean", "image_std"}
    for config, spec in (
        (garden.LambdaResNet, specs.ResNetSpec),
        (garden.LambdaMobileNet, specs.MobileNetSpec),
    ):
        attributes = {field.name for field in dataclasses.fields(spec)}
        fields = {field.name for field in dataclasses.fields(config)}
        missing = attributes - elsewhere - fields
        assert not missing
        assert fields - attributes == {"weights", "implementation"}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"name": "LambdaResNet51"}, "`name` must be one of.*LambdaResNet50'"),
        ({"key_dim": "many"}, "`key_dim` must be int"),
        ({"weights": "missing.npz"}, "No such file: missing.npz. Weights are"),
    ],
)
def test_wrong_values_name_their_field(fields, message):
    with pytest.raises(ValueError, match=message):
        build(**fields)


@pytest.mark.parametrize("name", list(experiments.EXPERIMENTS))
def test_experiments_survive_their_yaml_file(name, tmp_path):
    params = exp_factory.get_exp_config(name)
    params.validate()
    params.override({"task": {"model": {"backbone": {"lambda_resnet": TINY}}}})
    path = str(tmp_path / "params.yaml")
    hyperparams.save_params_dict_to_yaml(params, path)
    read = exp_factory.get_exp_config(name)
    read = hyperparams.override_params_dict(read, path, is_strict=True)
    assert read.as_dict() == params.as_dict()
    assert isinstance(read.task.model.backbone, garden.Backbone)
    typo = "task.model.backbone.lambda_resnet.depth=50"
    with pytest.raises(KeyError, match="depth"):
        hyperparams.override_params_dict(params, typo, is_strict=True)


# Appendix F.3: 0.32 in 1000 steps, a tenth at 90, 95 and 97.5 per cent.
COCO = {0: 0.0, 500: 0.16, 1000: 0.32, 116_000: 0.32}
COCO |= {118_000: 0.032, 124_000: 0.0032, 127_000: 0.00032}
# Linear to 1.6 in 5 epochs of 312 steps, then 345 of a cosine to 0.
IMAGENET = {0: 0.0, 780: 0.8, 1560: 1.6, 1560 + 312 * 345 / 2: 0.8}
IMAGENET |= {1560 + 312 * 345 * 3 / 4: 0.8 * (1 - 0.5**0.5)}


@pytest.mark.parametrize(
    ("name", "rates"), [("maskrcnn_coco", COCO), ("imagenet", IMAGENET)]
)
def test_learning_rates_are_the_papers(name, rates):
    trainer = exp_factory.get_exp_config(f"lambda_resnet_{name}").trainer
    factory = optimizers.OptimizerFactory(trainer.optimizer_config)
    schedule = factory.build_learning_rate()
    found = [float(schedule(step)) for step in rates]
    np.testing.assert_allclose(found, [*rates.values()], rtol=1e-5)
