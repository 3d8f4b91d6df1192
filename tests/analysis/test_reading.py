"""What queries read in the layers of a network, and pictures of it."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import analysis
from lambdanet_tf import models
from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from tests.support import checks


def classifier(rng, classes=3):
    """Words with padding, a lambda layer, a mean."""
    words = tf.keras.Input((8,), dtype="int32")
    x = tf.keras.layers.Embedding(20, 8, mask_zero=True)(words)
    x = LambdaLayer(num_heads=2, key_dim=4, scope=5, name="reader")(x)
    x = tf.keras.layers.GlobalAveragePooling1D()(x)
    model = tf.keras.Model(words, tf.keras.layers.Dense(classes)(x))
    checks.randomize(model, rng)
    return model


@pytest.mark.slow
def test_a_lambda_resnet_at_chosen_stages(rng):
    model = models.LambdaResNetSmall(input_shape=(16, 16, 3), classes=2)
    images = 255 * rng.random((2, 16, 16, 3), "float32")
    names = [layer.name for layer in analysis.lambda_layers(model)]
    assert list(analysis.read(model, images)) == names
    readings = analysis.read(
        model, images, (5, 13), layers=["stage2", "stage4"]
    )
    assert list(readings) == [
        name for name in names if name.startswith(("stage2", "stage4"))
    ]
    for name, reading in readings.items():
        layer = model.get_layer(name)
        size = layer.output.shape[1]
        place = 5 * size // 16, 13 * size // 16
        assert reading.places == (place,)
        prefix = tf.keras.Model(model.input, [layer.input, layer.output])
        x, outputs = prefix(images)
        given = layer.read(x, place)
        np.testing.assert_array_equal(reading.content, given.content)
        checks.assert_close(
            reading.outputs()[:, 0], outputs[:, place[0], place[1]], 1e-5
        )


def test_the_center_of_a_strided_layer(rng):
    images = tf.keras.Input((9, 12, 3))
    layer = LambdaConv(8, 3, strides=3, key_dim=4, num_heads=2)
    model = tf.keras.Model(images, layer(images))
    x = rng.random((1, 9, 12, 3), "float32")
    (reading,) = analysis.read(model, x).values()
    assert reading.grid == (3, 4)
    assert reading.places == ((1, 2),)
    assert reading.position.shape == (1, 1, 2, 9, 12, 1)


def test_padding_of_a_text_is_not_read(rng):
    model = classifier(rng)
    words = np.array([[3, 4, 5, 6, 0, 0, 0, 0]], "int32")
    reading = analysis.read(model, words, 2)["reader"]
    assert np.all(np.asarray(reading.content)[0, 0, :, 4:] == 0)
    assert np.all(np.asarray(reading.content)[0, 0, :, :4] != 0)


def test_what_cannot_be_read(rng):
    model = classifier(rng)
    words = np.ones([1, 8], "int32")
    with pytest.raises(ValueError, match="'readers'.*Did you mean 'reader'"):
        analysis.read(model, words, layers="readers")
    with pytest.raises(ValueError, match="`position` must be one index"):
        analysis.read(model, words, 8)
    x = tf.keras.Input((5, 4))
    layer = LambdaLayer(4, num_heads=2, use_position=False)
    model = tf.keras.Model(x, layer(x, context=x[:, 1:]))
    with pytest.raises(ValueError, match="more than"):
        analysis.read(model, rng.random((1, 5, 4), "float32"))
    mask = np.ones([1, 5, 5], bool)
    mask[..., 3:] = False
    masked = tf.keras.Model(x, layer(x, attention_mask=tf.constant(mask)))
    with pytest.raises(ValueError, match="more than"):
        analysis.read(masked, rng.random((1, 5, 4), "float32"))


@pytest.mark.slow
def test_pictures_over_images_and_texts(rng):
    pytest.importorskip("matplotlib")
    layer = LambdaLayer(8, num_heads=2, key_dim=4, intra_depth=2)
    x = rng.random((2, 4, 6, 3), "float32")
    layer(x)
    reading = layer.read(x, [(0, 1), (3, 5)])
    figure = analysis.reading_figure(reading, x[1], example=1, query=1)
    maps = [a for a in figure.axes if a.get_title()]
    assert [a.get_title() for a in maps] == [
        f"head {head}, u {u}" for head in range(2) for u in range(2)
    ]
    drawn = np.asarray(maps[3].images[0].get_array())
    np.testing.assert_array_equal(drawn, reading.content[1, 1, 1, ..., 1])
    assert maps[3].lines[0].get_xdata() == [5]
    assert maps[3].lines[0].get_ydata() == [3]
    both = np.asarray(figure.axes[14].images[0].get_array())
    assert "both" in {a.get_ylabel() for a in figure.axes}
    assert both.shape == (4, 6)

    model = classifier(rng)
    words = np.array([[3, 4, 5, 6, 1, 2, 9, 9]], "int32")
    reading = analysis.read(model, words, 2)["reader"]
    text = ["this", "is", "what", "a", "query", "read", "there"] + ["."]
    figure = analysis.reading_figure(reading, text, title="a text")
    ticks = [t.get_text() for t in figure.axes[2].get_xticklabels()]
    assert ticks == text
    drawn = np.asarray(figure.axes[1].images[0].get_array())
    np.testing.assert_array_equal(drawn, reading.position[0, 0, ..., 0])
    with pytest.raises(ValueError, match="a word for each of 8 positions"):
        analysis.reading_figure(reading, text[:-1])
    volume = dataclasses.replace(
        reading, values=tf.zeros([1, 2, 2, 2, 1, 4, 1])
    )
    with pytest.raises(ValueError, match="one or two axes"):
        analysis.reading_figure(volume)
