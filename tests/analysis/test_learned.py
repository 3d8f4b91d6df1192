"""What layers learned, and what queries read: known by construction."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import analysis
from lambdanet_tf import models
from lambdanet_tf.analysis import parts
from lambdanet_tf.layers import LambdaLayer
from tests.support import checks

pytestmark = pytest.mark.once

_SMALL = {"num_heads": 2, "key_dim": 3, "use_batch_norm": False}
_DEEP = {"num_heads": 2, "key_dim": 3, "intra_depth": 2}


def network(*layers, shape=(7, 9, 4)):
    inputs = x = tf.keras.Input(shape)
    for layer in layers:
        x = layer(x)
    model = tf.keras.Model(inputs, x)
    checks.randomize(model, np.random.default_rng(3))
    return model


def images(model, count=5):
    shape = (count, *model.inputs[0].shape[1:])
    return np.random.default_rng(4).normal(size=shape).astype("float32")


def test_parts_have_fields_of_their_own():
    layer = LambdaLayer(8, scope=3, **_SMALL)
    model = network(layer)
    both, content, position = (
        analysis.receptive_field(model, layer.name, images(model), part=part)
        for part in ("both", "content", "position")
    )
    assert np.all([content > 0, both > 0])
    near = np.pad(np.ones([3, 3], bool), ((2, 2), (3, 3)))  # the center
    np.testing.assert_array_equal(position > 0, near)


def test_every_example_counts_however_many_are_computed_at_once(monkeypatch):
    layer = LambdaLayer(1, num_heads=1, key_dim=3, use_batch_norm=False)
    model = network(layer, shape=(5, 4))
    x = images(model, 4)
    field = analysis.receptive_field
    whole = field(model, layer, x, [1])
    single = [field(model, layer, y[None], [1], source="layer") for y in x]
    checks.assert_close(whole, np.mean(single, axis=0), 1e-5)
    monkeypatch.setattr(parts, "_BATCH", 2)
    checks.assert_close(field(model, layer, x, [1]), whole, 1e-5)


def test_parts_add_up():
    layer = LambdaLayer(8, scope=3, **_DEEP)
    model = network(layer)
    x = images(model)
    content, position = (
        parts.layer_part(layer, part)(x) for part in ("content", "position")
    )
    checks.assert_close(content + position, layer(x), 1e-6)
    (row,) = analysis.part_norms(model, x)
    found = row.content, row.position, row.both
    sizes = [np.sqrt(np.mean(y**2)) for y in (content, position, layer(x))]
    np.testing.assert_allclose(found, sizes, rtol=1e-5)
    share = sizes[0] ** 2 / (sizes[0] ** 2 + sizes[1] ** 2)
    np.testing.assert_allclose(row.content_share, share, rtol=1e-4)
    cosine = np.mean(content * position) / sizes[0] / sizes[1]
    np.testing.assert_allclose(row.cosine, cosine, atol=1e-3)


def test_a_layer_of_two_sizes_and_two_calls():
    layer = LambdaLayer(8, name="lambda", **_SMALL)
    _, model = network(layer, shape=(9, 9, 4)), network(layer)
    x = images(model)
    assert analysis.receptive_field(model, layer, x).shape == (7, 9)
    assert analysis.read(model, x)["lambda"].grid == (7, 9)
    twice = network(layer, tf.keras.layers.Dense(4), layer)
    names = ["lambda", "lambda_call2"]
    rows = analysis.part_norms(twice, x)
    assert [row.name for row in rows] == [*analysis.read(twice, x)] == names
    squares = [np.mean(y**2) for y in (layer(x), twice(x))]
    norms = [row.both**2 for row in rows]
    np.testing.assert_allclose(norms, squares, rtol=1e-5)
    fields = [analysis.receptive_field(twice, name, x) for name in names]
    assert np.max(np.abs(fields[1] - fields[0])) > 0.1 * np.max(fields[0])


def test_layers_of_nested_models_are_found():
    inner = network(LambdaLayer(4, scope=3, name="mix", **_SMALL))
    x = tf.keras.Input((7, 9, 4))
    head = LambdaLayer(8, name="head", **_SMALL)
    model = tf.keras.Model(x, head(inner(x)))
    given, name = images(model), f"{inner.name}/mix"
    readings = analysis.read(model, given)
    assert [*readings] == [name, "head"]
    outputs = inner(given)[:, 3, 4]
    checks.assert_close(readings[name].outputs()[:, 0], outputs, 1e-5)
    names = [row.name for row in analysis.part_norms(model, given)]
    assert names == [*readings]
    assert analysis.lambda_layers(model) == [inner.get_layer("mix"), head]
    found = analysis.receptive_field(model, name, given)
    alone = analysis.receptive_field(inner, "mix", given)
    checks.assert_close(found, alone, 1e-6)


def test_a_part_that_is_off_is_zero():
    first = LambdaLayer(8, use_content=False, **_SMALL)
    second = LambdaLayer(8, use_position=False, **_SMALL)
    model = network(first, second)
    x = images(model, 40)
    rows = analysis.part_norms(model, x)
    assert [row.content_share for row in rows] == [0.0, 1.0]
    with pytest.raises(ValueError, match="no content part"):
        analysis.receptive_field(model, first, x, part="content")
    for layer, arguments, message in (
        (f"{first.name}s", {}, "Did you mean"),
        (second, {"part": "value"}, "`part` must be one of"),
        (second, {"position": (7,)}, "one index per spatial axis"),
    ):
        with pytest.raises(ValueError, match=message):
            analysis.receptive_field(model, layer, x, **arguments)


def test_other_arguments_of_a_call_come_along():
    """Masks, and a context."""
    inputs = tf.keras.Input((7, 4))
    masked = LambdaLayer(8, name="masked", **_SMALL)
    other = LambdaLayer(8, use_position=False, name="other", **_SMALL)
    x = masked(inputs, attention_mask=np.tri(7))
    model = tf.keras.Model(inputs, other(x, context=inputs))
    x = images(model)
    inner = masked(x, attention_mask=np.tri(7))
    for row, outputs in zip(
        analysis.part_norms(model, x), (inner, model(x)), strict=True
    ):
        np.testing.assert_allclose(row.both**2, np.mean(outputs**2), rtol=1e-5)
    reading = analysis.read(model, x, 2)
    checks.assert_close(reading["masked"].outputs()[:, 0], inner[:, 2], 1e-5)
    checks.assert_close(reading["other"].outputs()[:, 0], model(x)[:, 2], 1e-5)
    field = analysis.receptive_field(model, "masked", x, [2])
    assert np.all(field[3:] == 0)
    assert np.all(field[:3] > 0)


def test_pictures_of_tables():
    layer = LambdaLayer(8, scope=(3, 5), **_DEEP)
    layer.build((None, 7, 9, 4))
    table = np.zeros(layer.position_embedding.embeddings.shape)
    table[0, 4, 2, 0] = 1.0  # Key channel 2, intra-depth 0.
    layer.position_embedding.embeddings.assign(table)
    figure = analysis.position_table_figure(layer)
    pictures = [np.asarray(a.images[0].get_array()) for a in figure.axes[:6]]
    assert np.argwhere(pictures).tolist() == [[0 * 3 + 2, 0, 4]]
    without = LambdaLayer(8, use_position=False, **_SMALL)
    without.build((None, 3, 3, 4))
    with pytest.raises(ValueError, match="no table"):
        analysis.position_table_figure(without)


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


def test_a_receptive_field_is_the_norm_of_a_derivative(rng):
    """Of one output channel it is exact: the norms of a kernel's rows."""
    kernel = rng.normal(size=[3, 3, 2, 1]).astype(np.float32)
    layer = tf.keras.layers.Conv2D(1, 3, padding="same", use_bias=False)
    model = network(layer, shape=(5, 5, 2))
    layer.set_weights([kernel])
    field = analysis.receptive_field(model, layer, images(model))
    norms = np.linalg.norm(kernel[..., 0], axis=-1)
    np.testing.assert_allclose(field[1:4, 1:4], norms, rtol=1e-5)
