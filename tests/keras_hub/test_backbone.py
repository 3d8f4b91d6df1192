"""Networks as backbones of KerasHub, as their users use them."""

import importlib
import sys

import keras
import numpy as np
import pytest

from lambdanet_tf import models
from lambdanet_tf.environment import KERAS_3
from lambdanet_tf.environment import is_there
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


def images(rng):
    return rng.uniform(0, 255, (2, *SHAPE)).astype("float32")


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


@pytest.mark.slow
@pytest.mark.parametrize("make", [detector, segmenter])
def test_a_task_is_trained_saved_and_loaded(make, rng, tmp_path):
    (task, truth), x = make(), images(rng)
    task.compile(keras.optimizers.Adam(1e-3), jit_compile=False)
    history = task.fit(x, truth, epochs=3, verbose=0).history
    assert history["loss"][-1] < history["loss"][0]
    loaded = checks.COPIES["keras_file"](task, tmp_path)
    assert isinstance(loaded.backbone.image_encoder, NetworkBackbone)
    outputs = (keras.tree.flatten(m(x)) for m in (loaded, task))
    checks.assert_each_close(*outputs, 1e-5)
    found, again = (m.predict(x, verbose=0) for m in (task, loaded))
    assert_same(*map(keras.tree.flatten, (found, again)), rtol=1e-4, atol=1e-4)


def test_feature_maps_are_those_of_the_network(rng, tmp_path):
    network = models.build("ResNet50", input_shape=SHAPE, **TINY)
    checks.randomize(network, rng)
    models.save_weights(network, tmp_path / "weights.npz")
    backbone = encoder(weights=str(tmp_path / "weights.npz"))
    assert "weights" not in backbone.get_config()
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
    models.freeze(backbone, "stage3", normalization=True)
    checks.randomize(backbone, rng)
    backbone.save_to_preset(str(tmp_path))
    loaded = keras_hub.models.Backbone.from_preset(str(tmp_path))
    assert isinstance(loaded, NetworkBackbone)
    assert loaded.name == "mine"
    assert loaded.get_config() == backbone.get_config()
    assert len(loaded.losses) == len(backbone.losses) > 0
    x = images(rng)
    checks.assert_close(loaded(x), backbone(x), 1e-6)
    ways = ("keras_file", "deepcopy")
    copies = [checks.COPIES[way](backbone, tmp_path) for way in ways]
    learning, *others = (
        [n for n, w in models.named_weights(m).items() if w.trainable]
        for m in (backbone, loaded, *copies)
    )
    assert others == [learning] * 3


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="no head.*arguments: classes"):
        encoder(classes=3)
    assert encoder(dtype="mixed_bfloat16").output.dtype == "bfloat16"
    assert keras.config.dtype_policy().name == "float32"
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
    kinds = [type(layer).__name__ for layer in new.layers]
    # Of a convolution with strides, and of one without.
    assert [kinds.count(x) for x in ("LambdaConv", "LambdaLayer")] == [1, 1]
    x = images(rng)
    assert np.all(np.isfinite(new(x, training=True)))


def test_without_the_extra_or_keras_3(monkeypatch):
    monkeypatch.delitem(sys.modules, "lambdanet_tf.keras_hub")
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(ImportError, match=r'pip install "lambdanet-tf\[keras_'):
        importlib.import_module("lambdanet_tf.keras_hub")
    monkeypatch.setattr("lambdanet_tf.environment.KERAS_3", False)
    with pytest.raises(ImportError, match="Unset.*TF_USE_LEGACY_KERAS before"):
        importlib.import_module("lambdanet_tf.keras_hub")
