"""timm's networks: its outputs, its names, and its weights."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.models.timm.weight_names import from_timm
from tests.support import checks
from tests.support import timm_golden
from tests.support.networks import assert_weights
from tests.support.timm_golden import TINY
from tests.support.timm_golden import VARIANTS


@pytest.mark.slow
@pytest.mark.parametrize("name", timm_golden.TIMM_NAMES)
def test_outputs_are_those_of_timm(name):
    golden = timm_golden.outputs(name)
    spec = specs.RESNETS[name]
    model = models.build(
        name,
        input_shape=(*golden["hw"], 3),
        classifier_activation=None,
        include_preprocessing=False,
        kernel_initializer="zeros",  # quick to draw
    )
    models.set_weights(model, timm_golden.weights(spec), "golden")
    stages = enumerate(spec.stages, start=2)
    ends = [f"stage{n}_block{len(letters)}_act" for n, letters in stages]
    maps = [model.get_layer(end).output for end in ("stem_pool", *ends)]
    probe = tf.keras.Model(model.input, [*maps, model.output])
    *maps, logits = probe(timm_golden.image(*golden["hw"]))
    checks.assert_close(logits, golden["logits"], 1e-5)
    means = [golden["stem"]] + [golden[f"stage{i}_mean"] for i in range(4)]
    for features, mean in zip(maps, means, strict=True):
        checks.assert_close(np.mean(features, (1, 2)), mean, 1e-5)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_weight_has_its_name_and_shape(variant):
    spec = specs.replace(TINY, VARIANTS[variant])
    model = models.ResNet(spec, input_shape=(32, 32, 3), classes=7)
    state = timm_golden.state_dict(spec, classes=7, image_size=32)
    ours = from_timm(state, spec)
    models.set_weights(model, ours, "theirs")
    assert_weights(model, ours)
    key = "stages.1.0.conv3_1x1.conv.weight"
    expected = state[key].transpose(2, 3, 1, 0)
    np.testing.assert_array_equal(ours["stage3_block1_conv3/kernel"], expected)


def test_state_dicts_that_do_not_fit():
    model = models.ResNet(TINY, input_shape=(32, 32, 3), classes=7)
    state = timm_golden.state_dict(TINY, classes=7, image_size=32)
    key = "stages.1.0.conv1_1x1.conv.weight"
    renamed = {k: array for k, array in state.items() if k != key}
    renamed |= {"layer1.0.conv1.weight": state[key], "b": state[key]}
    for wrong, message in (
        (renamed, "1 missing in the file: stage3_block1_conv1/kernel.* 2 un"),
        ({**state, key: state[key][:-1]}, r"kernel is \(1, 1, 32, 15\) in the"),
    ):
        with pytest.raises(ValueError, match=message):
            models.set_weights(model, from_timm(wrong, TINY), "theirs")
