"""Residual blocks of attention: their options, and the papers in NumPy."""

import dataclasses

import numpy as np
import pytest

from lambdanet_tf import models
from lambdanet_tf.layers import RelativeAttention
from tests.support import checks
from tests.support import networks
from tests.support import numpy_network
from tests.support.networks import ATTENTION

pytestmark = pytest.mark.once


def test_options_reach_every_layer():
    model = models.ResNet(
        ATTENTION,
        input_shape=(9, 7, 3),
        attention_heads=4,
        attention_key_dim=6,
        attention_scope=5,
        parallel_values=0.5,
    )
    found = {
        layer.name.split("_", 2)[2]: layer
        for layer in model.layers
        if isinstance(layer, RelativeAttention)
    }
    assert len(found) == 5
    assert all(layer.num_heads == 4 for layer in found.values())
    depths = {name: layer.key_depth for name, layer in found.items()}
    assert depths.pop("parallel_attention") == 20  # at least
    assert set(depths.values()) == {6}
    assert found["local_attention"].scope == 5
    assert found["parallel_attention"].value_dim == 2  # of 16 channels: 8 / 4
    assert [found[f"{n}_attention"].axis for n in ("height", "width")] == [1, 2]


def test_the_augmented_convolution_of_bello_et_al():
    """Keys of 0.2 and values of 0.1 of the width, 20 per head at least."""
    model = models.ResNet50(
        pattern="CPPP", input_shape=(32, 32, 3), kernel_initializer="zeros"
    )
    found = {
        stage: model.get_layer(f"stage{stage}_block1_parallel_attention")
        for stage in (3, 4, 5)
    }
    values = {n: layer.value.units for n, layer in found.items()}
    assert values == {3: 8, 4: 24, 5: 48}  # of 12.8, 25.6 and 51.2
    assert {layer.key_depth for layer in found.values()} == {20}
    convolution = model.get_layer("stage5_block1_parallel_conv")
    assert convolution.filters == 512 - 48


@pytest.mark.parametrize("letter", "SAXP")
def test_blocks_are_the_papers_in_numpy(letter):
    """A strided block of each letter, in float64."""
    spec = dataclasses.replace(
        ATTENTION, stages=(letter,), widths=(20,), strides=(2,)
    )
    model, weights, images = networks.in_float64(spec)

    def middle(x, weights, name):
        return MIDDLES[letter](x, weights, model, name)

    x = numpy_network.conv_norm(images, weights, "stem_conv1")
    x = numpy_network.strided_block(x, weights, "stage2_block1", middle)
    checks.assert_close(model(images), x, 1e-10)


def attend(x, model, name):
    return checks.oracle_output(model.get_layer(name), {"inputs": x})


def one_layer(suffix):
    def middle(x, weights, model, name):
        x = numpy_network.pool(attend(x, model, f"{name}_{suffix}"), 2)
        return numpy_network.norm_relu(x, weights, f"{name}_{suffix}")

    return middle


def axial(x, weights, model, name):
    x = attend(x, model, f"{name}_height_attention")
    x = numpy_network.norm(x, weights, f"{name}_height_attention")
    return one_layer("width_attention")(x, weights, model, name)


def parallel(x, weights, model, name):
    name = f"{name}_parallel"
    attended = numpy_network.pool(attend(x, model, f"{name}_attention"), 2)
    attended = numpy_network.conv(attended, weights, f"{name}_mix")
    # SAME padding of odd sizes: windows are centered on every other position.
    convolved = numpy_network.conv(x, weights, f"{name}_conv")[:, ::2, ::2]
    x = np.concatenate([convolved, attended], axis=-1)
    return numpy_network.norm_relu(x, weights, name)


MIDDLES = {
    "S": one_layer("local_attention"),
    "A": one_layer("attention"),
    "X": axial,
    "P": parallel,
}
