"""What queries read in the layers of a network, and pictures of it."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import analysis
from lambdanet_tf import models
from lambdanet_tf.layers import LambdaLayer
from tests.support import checks


def classifier(rng):
    """Words with padding, a lambda layer, a mean."""
    words = tf.keras.Input((8,), dtype="int32")
    x = tf.keras.layers.Embedding(20, 8, mask_zero=True)(words)
    x = LambdaLayer(num_heads=2, key_dim=4, scope=5, name="reader")(x)
    model = tf.keras.Model(words, tf.keras.layers.GlobalAveragePooling1D()(x))
    checks.randomize(model, rng)
    return model


@pytest.mark.slow
def test_a_lambda_resnet_at_chosen_stages(rng):
    model = models.LambdaResNetSmall(input_shape=(16, 16, 3), classes=2)
    images = 255 * rng.random((2, 16, 16, 3), "float32")
    readings = analysis.read(model, images, (5, 13), layers=["stage4"])
    assert list(readings) == ["stage4_block1_lambda", "stage4_block2_lambda"]
    for name, reading in readings.items():
        layer = model.get_layer(name)
        place = tuple(x * layer.output.shape[1] // 16 for x in (5, 13))
        assert reading.places == (place,)
        outputs = tf.keras.Model(model.input, layer.output)(images)
        found = reading.outputs()[:, 0]
        checks.assert_close(found, outputs[:, place[0], place[1]], 1e-5)


def test_padding_of_a_text_is_not_read(rng):
    words = np.array([[3, 4, 5, 6, 7, 0, 0, 0]], "int32")
    reading = analysis.read(classifier(rng), words)["reader"]
    assert reading.places == ((4,),)
    assert np.all(np.asarray(reading.content)[0, 0, :, 5:] == 0)
    assert np.all(np.asarray(reading.content)[0, 0, :, :5] != 0)
    with pytest.raises(ValueError, match="'readers'.*Did you mean 'reader'"):
        analysis.read(classifier(rng), words, layers="readers")


@pytest.mark.slow
def test_pictures_over_images_and_texts(rng):
    pytest.importorskip("matplotlib")
    layer = LambdaLayer(8, num_heads=2, key_dim=4, intra_depth=2)
    x = rng.random((2, 4, 6, 3), "float32")
    layer(x)
    reading = layer.read(x, [(0, 1), (3, 5)])
    figure = analysis.reading_figure(reading, x[1], example=1, query=1)
    maps = [a for a in figure.axes if a.get_title()]
    drawn = np.asarray(maps[3].images[0].get_array())
    np.testing.assert_array_equal(drawn, reading.content[1, 1, 1, ..., 1])
    words = np.array([[3, 4, 5, 6, 1, 2, 9, 9]], "int32")
    reading = analysis.read(classifier(rng), words, 2)["reader"]
    figure = analysis.reading_figure(reading, [*"abcdefgh"])
    ticks = [t.get_text() for t in figure.axes[2].get_xticklabels()]
    assert ticks == [*"abcdefgh"]
