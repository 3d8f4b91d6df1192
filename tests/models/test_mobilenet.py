"""MobileNetV2 with depthwise convolutions and with lambda convolutions."""

import pytest

from lambdanet_tf import models
from lambdanet_tf.layers import LambdaConv
from tests.support.networks import assert_trains
from tests.support.networks import some_images
from tests.support.networks import tiny_mobilenet


@pytest.mark.slow
def test_the_two_lambda_blocks_of_the_paper():
    model = models.LambdaMobileNetV2(input_shape=(32, 32, 3))
    lambdas = {
        layer.name: (layer.filters, layer.kernel_size, layer.key_dim)
        for layer in model.layers
        if isinstance(layer, LambdaConv)
    }
    assert lambdas == {
        "stage4_block10_lambda": (64, 5, 32),
        "stage5_block16_lambda": (160, 5, 32),
    }


@pytest.mark.slow
@pytest.mark.representatives(2)
@pytest.mark.parametrize("blocks", [(), (1,), (2, 4), (1, 2, 3, 4)])
def test_any_blocks_can_be_lambda_blocks(blocks):
    key_dim = {"key_dim": 4} if blocks else {}
    model = tiny_mobilenet(lambda_blocks=blocks, **key_dim)
    lambdas = [x for x in model.layers if isinstance(x, LambdaConv)]
    numbers = [int(x.name.split("block")[1].split("_")[0]) for x in lambdas]
    assert tuple(sorted(numbers)) == blocks
    assert_trains(model, some_images(8, 16, 16, 3), classes=5)


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.once
@pytest.mark.parametrize("padding", ["same", "symmetric"])
def test_sizes_are_rounded_up(padding):
    model = models.LambdaMobileNetV2(
        lambda_blocks=(2, 4, 7, 14),  # All that stride.
        input_shape=(None, None, 3),
        endpoints=("c2", "c3", "c4", "c5"),
        padding=padding,
    )
    for height_width in ((32, 32), (33, 47)):
        maps = model(some_images(1, *height_width, 3))
        for stride, channels, name in zip(
            (4, 8, 16, 32), (24, 32, 96, 320), maps, strict=True
        ):
            sizes = [-(-size // stride) for size in height_width]
            assert tuple(maps[name].shape) == (1, *sizes, channels)


@pytest.mark.slow
def test_pyramid_outputs_are_the_last_maps_of_each_stride():
    pyramid = models.MobileNetV2(input_shape=(64, 64, 3)).pyramid_outputs
    assert {k: tuple(x.shape[1:]) for k, x in pyramid.items()} == {
        "P1": (32, 32, 16),
        "P2": (16, 16, 24),
        "P3": (8, 8, 32),
        "P4": (4, 4, 96),
        "P5": (2, 2, 320),
    }


def test_too_small_images():
    with pytest.raises(ValueError, match="at least 32x32 pixels"):
        models.MobileNetV2(input_shape=(31, 64, 3))
