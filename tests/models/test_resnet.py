"""The residual networks: counts, sizes, ends, precision, training, errors."""

import collections
import functools
import inspect
import re
import warnings

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.layers import RelativeAttention
from lambdanet_tf.models.images import PREPROCESSING
from tests.support import checks
from tests.support import networks

DEPTHS = (101, 152, 200, 270, 350, 420)
DEEPER = {
    f"{name}50{end}": [f"{name}{depth}{end}" for depth in DEPTHS]
    for name, end in (
        ("LambdaResNet", ""),
        ("LambdaResNet", "C4"),
        ("ResNetRS", ""),
    )
}
BUILT = specs.PRESETS.keys() - {
    name for deep in DEEPER.values() for name in deep
}


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.parametrize("name", sorted(BUILT))
def test_exact_parameters(name):
    """Deeper networks have more of the same blocks."""
    with networks.shapes_alone():
        model = models.build(name)
    sizes = collections.Counter()
    for key, weight in models.named_weights(model).items():
        block = re.match(r"(?:stage\d_block\d+_)?", key)[0]
        sizes[block] += weight.trainable * int(np.prod(weight.shape))
    assert sum(sizes.values()) == specs.PRESETS[name].parameters

    def blocks(stages):
        """The blocks, each with stage, letter, and whether it is the first."""
        for stage, letters in enumerate(stages, 2):
            for i, letter in enumerate(letters, 1):
                yield f"stage{stage}_block{i}_", (stage, letter, i == 1)

    for other in DEEPER.get(name, ()):
        spec, deep = specs.PRESETS[name].spec, specs.PRESETS[other].spec
        differ = {k for k, x in vars(spec).items() if x != getattr(deep, k)}
        free = {"name", "stages", "image_size", "dropout_rate"}
        assert differ <= free | {"drop_path_rate", "randaugment_magnitude"}
        size = {kind: sizes[block] for block, kind in blocks(spec.stages)}
        total = sizes[""] + sum(size[kind] for _, kind in blocks(deep.stages))
        assert total == specs.PRESETS[other].parameters, other


@pytest.mark.parametrize("name", ["LambdaResNetSmall", "ResNetRS50"])
def test_residual_branches_are_zero_at_the_start(name):
    model = models.build(name, input_shape=(32, 32, 3))
    ends = "_conv3_norm", "_se", "_drop"
    blocks = [x for x in model.layers if x.name.startswith("stage")]
    branches = [x.output for x in blocks if x.name.endswith(ends)]
    assert len(branches) >= len([x for x in model.layers if "_add" in x.name])
    probe = tf.keras.Model(model.input, branches)
    for training in (False, True):
        outputs = probe(networks.some_images(2, 32, 32, 3), training=training)
        assert not any(map(np.any, outputs))


def test_options_reach_every_attention():
    options = {"attention_heads": 4, "attention_key_dim": 6}
    options |= {"attention_scope": 5, "parallel_values": 0.5}
    model = models.ResNet(networks.ATTENTION, input_shape=(9, 7, 3), **options)
    found = [x for x in model.layers if isinstance(x, RelativeAttention)]
    assert {layer.num_heads for layer in found} == {4}
    # That next to a convolution has 20 per head at least, and 16 / 2 values.
    assert [layer.key_depth for layer in found] == [6, 6, 6, 6, 20]
    assert (found[0].scope, found[-1].value_dim) == (5, 2)
    assert [layer.axis for layer in found[2:4]] == [1, 2]


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_preprocessing_inside_equals_outside(channels):
    shape = 16, 16, channels
    inside = networks.tiny(shape)
    outside = networks.tiny(shape, include_preprocessing=False)
    models.set_weights(outside, networks.arrays(inside), "inside")
    images = networks.some_images(2, *shape)
    normalize = functools.partial(
        models.preprocess_input, include_preprocessing=False
    )
    checks.assert_close(outside(normalize(images)), inside(images), 1e-5)
    assert models.preprocess_input(images) is images
    # Also of a network in half precision it is computed in float32.
    tf.keras.mixed_precision.set_global_policy("mixed_bfloat16")
    half = networks.tiny(shape)
    assert tf.as_dtype(half.output.dtype) == tf.float32
    normalized = half.get_layer(PREPROCESSING)(images)
    np.testing.assert_array_equal(normalized, normalize(images), strict=True)


def test_options_reach_every_layer():
    model = networks.tiny(
        implementation="depthwise",
        norm_momentum=0.9,
        norm_epsilon=1e-5,
        use_sync_bn=True,
        se_ratio=0.25,
        kernel_regularizer=tf.keras.regularizers.L2(1e-4),
    )
    # Kernels are regularised, and nothing else.
    kernels = [w for w in model.trainable_weights if len(w.shape) > 1]
    embeddings = [w for w in kernels if "embeddings" in w.name]
    assert len(model.losses) == len(kernels) - len(embeddings)
    layer = model.get_layer("stage3_block1_lambda")
    assert layer.implementation == "depthwise"
    norms = [x for x in model.layers if x.name.endswith("_norm")]
    for norm in (*norms, layer.query_norm, layer.value_norm):
        options = norm.momentum, norm.epsilon, norm.synchronized
        assert options == (0.9, 1e-5, True)


def test_named_builders_show_their_arguments():
    _, _, *common = inspect.signature(models.Network).parameters
    for name, preset in specs.PRESETS.items():
        builder = getattr(models, name)
        assert f" {preset.parameters:,} parameters;" in builder.__doc__
        shown = inspect.signature(builder).parameters
        assert list(shown)[: len(common) - 1] == common[:-1]
        attributes = {k: x for k, x in vars(preset.spec).items() if k != "name"}
        assert {key: shown[key].default for key in attributes} == attributes


@pytest.mark.parametrize("make", [np.array, tf.constant])
def test_images_between_0_and_1_are_warned_of(make):
    images = make(networks.some_images(2, 8, 8, 3) / 255)
    with pytest.warns(UserWarning, match=r"scaled to \[0, 1\]"):
        models.preprocess_input(images)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        models.preprocess_input(255 * images)
        models.preprocess_input(make(np.zeros((1, 2, 2, 3), np.uint8)))
        models.preprocess_input(tf.keras.Input((8, 8, 3)))


def test_names_of_imagenet():
    decoded = models.decode_predictions(np.eye(1000), top=1)
    indices, names, scores = zip(*[best for (best,) in decoded], strict=True)
    assert indices == tuple(range(1000))
    assert set(scores) == {1.0}
    assert names[281] == "tabby"
    # Two birds and machines, two bathing suits.
    assert len(set(names)) == 998


tiny = networks.tiny


def test_layers_that_see_maps_of_one_size_share_their_embeddings():
    model = tiny(stages=("CL", "CL", "LLL"), share_embeddings=True)
    names = [f"stage4_block{number}_lambda" for number in (1, 2, 3)]
    tables = [model.get_layer(name).position_embedding for name in names]
    assert tables[0] is not tables[1] is tables[2]
