"""Networks in KerasHub's detectors and segmenters, as their users use them."""

import copy as copy_module
import importlib
import sys

import keras
import numpy as np
import pytest

from lambdanet_tf import analysis
from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.environment import is_there
from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from tests.support import checks
from tests.support.arrays import assert_same

if KERAS_3 and is_there("keras_hub"):
    import keras_hub

    from lambdanet_tf.keras_hub import NetworkBackbone

pytestmark = [
    pytest.mark.keras_hub,
    # Of KerasHub and Keras: compiling at loading, shuffling, optimizers.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

SHAPE = (64, 64, 3)
TINY = {
    "stages": ("C", "C", "CL", "L"),
    "widths": (4, 4, 8, 8),
    "stem_filters": (8,),
    "scope": 5,
    "key_dim": 4,
    "num_heads": 2,
}


def encoder(**arguments):
    return NetworkBackbone("ResNet50", SHAPE, **{**TINY, **arguments})


def images(rng, count=2):
    return rng.uniform(0, 255, (count, *SHAPE)).astype("float32")


def detector():
    backbone = keras_hub.models.RetinaNetBackbone(
        encoder(), min_level=3, max_level=4, use_p5=False, image_shape=SHAPE
    )
    boxes = np.array([[[4, 4, 40, 40], [10, 20, 50, 60]]] * 2, "float32")
    task = keras_hub.models.RetinaNetObjectDetector(
        backbone,
        num_classes=3,
        bounding_box_format="yxyx",
        pre_logits_num_conv_layers=1,
    )
    return task, {"boxes": boxes, "labels": np.array([[0, 2]] * 2)}


def segmenter():
    backbone = keras_hub.models.DeepLabV3Backbone(
        encoder(),
        spatial_pyramid_pooling_key="P5",
        upsampling_size=8,
        dilation_rates=[1, 2],
        low_level_feature_key="P2",
        image_shape=SHAPE,
    )
    task = keras_hub.models.DeepLabV3ImageSegmenter(backbone, num_classes=3)
    masks = np.zeros((2, *SHAPE[:2], 3), "float32")
    masks[:, :20, :, 0] = masks[:, 20:, :, 2] = 1
    return task, masks


@pytest.mark.thorough
@pytest.mark.parametrize("make", [detector, segmenter])
def test_a_task_is_trained_saved_and_loaded(make, rng, tmp_path):
    task, truth = make()
    x = images(rng)
    task.compile(keras.optimizers.Adam(1e-3), jit_compile=False)
    history = task.fit(
        x, truth, epochs=3, verbose=0, validation_data=(x, truth)
    ).history
    assert history["loss"][-1] < history["loss"][0]
    assert np.all(np.isfinite(history["val_loss"]))
    task.save(tmp_path / "task.keras")
    loaded = keras.models.load_model(tmp_path / "task.keras")
    image_encoder = loaded.backbone.image_encoder
    assert isinstance(image_encoder, NetworkBackbone)
    assert list(image_encoder.pyramid_outputs) == ["P2", "P3", "P4", "P5"]
    checks.assert_close(
        *(
            np.concatenate([np.ravel(x) for x in keras.tree.flatten(outputs)])
            for outputs in (loaded(x), task(x))
        ),
        1e-5,
    )
    found, again = (m.predict(x, verbose=0) for m in (task, loaded))
    assert_same(*map(keras.tree.flatten, (found, again)), rtol=1e-4, atol=1e-4)


def test_feature_maps_are_those_of_the_network(rng):
    backbone = encoder()
    network = models.build("ResNet50", input_shape=SHAPE, **TINY)
    checks.randomize(network, rng)
    arrays = {
        k: np.asarray(w)
        for k, w in models.named_weights(network).items()
        if not k.startswith("predictions")
    }
    models.set_weights(backbone, arrays, "the network")
    x = images(rng)
    pair = [
        keras.Model(m.input, m.pyramid_outputs)(x) for m in (backbone, network)
    ]
    assert pair[0].keys() == pair[1].keys()
    for level, found in pair[0].items():
        checks.assert_close(found, pair[1][level], 1e-5)
        assert found.shape[1] == 64 // 2 ** int(level[1:])
    checks.assert_close(backbone(x), pair[0]["P5"], 1e-6)


def test_a_preset_is_saved_and_loaded(rng, tmp_path):
    backbone = encoder(
        kernel_regularizer=keras.regularizers.L2(0.1), name="mine"
    )
    checks.randomize(backbone, rng)
    backbone.save_to_preset(str(tmp_path))
    loaded = keras_hub.models.Backbone.from_preset(str(tmp_path))
    assert isinstance(loaded, NetworkBackbone)
    assert loaded.name == "mine"
    assert loaded.get_config() == backbone.get_config()
    assert len(loaded.losses) == len(backbone.losses) > 0
    x = images(rng)
    checks.assert_close(loaded(x), backbone(x), 1e-6)


@pytest.mark.slow
def test_what_is_frozen_inside_stays_frozen(tmp_path):
    backbone = encoder(share_embeddings=True)
    models.freeze(backbone, "stage3", normalization=True)
    task = keras.Sequential([keras.Input(SHAPE), backbone])
    backbone.save(tmp_path / "backbone.keras")
    for copy in (
        keras.models.load_model(tmp_path / "backbone.keras"),
        copy_module.deepcopy(backbone),
        models.clone_network(task).layers[-1],
    ):
        assert isinstance(copy, NetworkBackbone)
        kept, wanted = (
            [n for n, w in models.named_weights(m).items() if w.trainable]
            for m in (copy, backbone)
        )
        assert kept == wanted
        assert len(copy.trainable_weights) == len(backbone.trainable_weights)


@pytest.mark.slow
def test_rows_of_a_network_are_saved(tmp_path):
    backbone = NetworkBackbone(
        "LambdaMobileNetV2",
        (32, 32, 3),
        rows=(specs.InvertedRow(1, 8, 1, 2), specs.InvertedRow(2, 8, 2, 2)),
        lambda_blocks=(3,),
        stem_filters=8,
        head_filters=8,
    )
    backbone.save(tmp_path / "backbone.keras")
    loaded = keras.models.load_model(tmp_path / "backbone.keras")
    assert loaded.count_params() == backbone.count_params()


def test_precision_is_that_of_dtype():
    backbone = encoder(dtype="mixed_bfloat16")
    assert backbone.output.dtype == "bfloat16"
    assert {w.dtype for w in backbone.weights} == {"float32"}
    assert keras.config.dtype_policy().name == "float32"
    copy = NetworkBackbone.from_config(backbone.get_config())
    assert copy.output.dtype == "bfloat16"


def test_begins_from_a_weight_file(tmp_path):
    network = models.build("ResNet50", input_shape=SHAPE, classes=7, **TINY)
    models.save_weights(network, tmp_path / "weights.npz")
    backbone = encoder(weights=str(tmp_path / "weights.npz"))
    wanted = models.named_weights(network)
    for name, weight in models.named_weights(backbone).items():
        np.testing.assert_array_equal(weight, wanted[name], err_msg=name)
    assert "weights" not in backbone.get_config()


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="no head.*Received: classes"):
        encoder(classes=3)
    with pytest.raises(ValueError, match="must be a network.*LambdaResNet50"):
        NetworkBackbone("LambdaResNet51")


@pytest.mark.slow
def test_layers_are_replaced_in_a_backbone_of_keras_hub(rng):
    backbone = keras_hub.models.ResNetBackbone(
        input_conv_filters=[64],
        input_conv_kernel_sizes=[7],
        stackwise_num_filters=[64, 64],
        stackwise_num_blocks=[1, 2],
        stackwise_num_strides=[1, 2],
        block_type="bottleneck_block",
        image_shape=SHAPE,
    )
    rule = models.convolution_rule(scope=5, names="stack1_block._2")
    new = models.replace_layers(backbone, rule)
    kinds = LambdaLayer, LambdaConv
    assert len([x for x in new.layers if isinstance(x, kinds)]) == 2
    compared = analysis.compare(backbone, new, executed=False)
    assert len(compared.replaced()) == 2
    assert new.output_shape == backbone.output_shape
    x = images(rng)
    same = models.replace_layers(backbone, lambda layer, place: None)
    np.testing.assert_array_equal(same(x), backbone(x))
    assert np.all(np.isfinite(new(x, training=True)))


def test_without_the_extra(monkeypatch):
    monkeypatch.delitem(sys.modules, "lambdanet_tf.keras_hub")
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(ImportError, match=r'pip install "lambdanet-tf\[keras_'):
        importlib.import_module("lambdanet_tf.keras_hub")


def test_with_tf_keras(monkeypatch):
    monkeypatch.delitem(sys.modules, "lambdanet_tf.keras_hub")
    monkeypatch.setattr("lambdanet_tf.environment.KERAS_3", False)
    with pytest.raises(ImportError, match="Unset.*TF_USE_LEGACY_KERAS before"):
        importlib.import_module("lambdanet_tf.keras_hub")
