"""What a layer learned, on layers whose answer is known by construction."""

import numpy as np
import pytest
import tensorflow as tf

from lambdanet_tf import analysis
from lambdanet_tf import models
from lambdanet_tf.analysis import parts
from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativePositionEmbedding
from tests.support import checks

pytestmark = pytest.mark.once

_SMALL = {"num_heads": 2, "key_dim": 3, "use_batch_norm": False}


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


def one_entry(layer, *entry):
    """Sets all of a layer's table to zero but one relative position."""
    table = np.zeros(layer.position_embedding.embeddings.shape)
    table[entry] = 1.0
    layer.position_embedding.embeddings.assign(table)


@pytest.mark.parametrize("source", ["model", "layer"])
def test_one_entry_of_the_table_is_the_receptive_field(source):
    layer = LambdaLayer(8, scope=5, use_content=False, **_SMALL)
    model = network(layer)
    one_entry(layer, 1, 4)  # One row up, two columns to the right.
    field = analysis.receptive_field(
        model, layer, images(model), position=(3, 4), source=source
    )
    assert field.shape == (7, 9)
    # The query itself depends on its own position, the values on the entry's.
    assert np.argwhere(field).tolist() == [[2, 6], [3, 4]]


def test_parts_have_fields_of_their_own():
    layer = LambdaLayer(8, scope=3, **_SMALL)
    model = network(layer)
    fields = {
        part: analysis.receptive_field(
            model, layer.name, images(model), part=part
        )
        for part in ("both", "content", "position")
    }
    assert np.all(fields["content"] > 0)
    assert np.all(fields["both"] > 0)
    near = np.zeros([7, 9], bool)
    near[2:5, 3:6] = True  # Around the center, (3, 4).
    np.testing.assert_array_equal(fields["position"] > 0, near)


def test_every_example_counts_however_many_are_computed_at_once(monkeypatch):
    layer = LambdaLayer(1, num_heads=1, key_dim=3, use_batch_norm=False)
    model = network(layer, shape=(5, 4))
    x = images(model, 4)
    whole = analysis.receptive_field(model, layer, x)
    single = [analysis.receptive_field(model, layer, one[None]) for one in x]
    checks.assert_close(whole, np.mean(single, axis=0), 1e-5)
    monkeypatch.setattr(parts, "_BATCH", 2)
    checks.assert_close(analysis.receptive_field(model, layer, x), whole, 1e-5)


@pytest.mark.slow
def test_receptive_field_is_the_norm_of_the_jacobian():
    layer = LambdaLayer(8, scope=3, **_SMALL)
    model = network(layer, shape=(5, 4))
    x = tf.constant(images(model, 2))
    with tf.GradientTape() as tape:
        tape.watch(x)
        output = model(x)[:, 2]
    jacobian = tape.batch_jacobian(output, x).numpy()  # [b, out, n, channels]
    expected = np.sqrt((jacobian**2).sum((1, 3))).mean(0)
    field = analysis.receptive_field(model, layer, x, probes=400)
    checks.assert_close(field, expected, 0.1)


def test_receptive_field_through_a_network_and_of_any_layer():
    before = tf.keras.layers.Conv2D(4, 3, padding="same")
    layer = LambdaConv(8, 3, use_content=False, strides=2, **_SMALL)
    model = network(before, layer, tf.keras.layers.ReLU(), shape=(11, 11, 2))
    field = analysis.receptive_field(model, layer, images(model))
    near = np.zeros([11, 11], bool)
    near[4:9, 4:9] = True  # 3x3 of 3x3 around position 6.
    np.testing.assert_array_equal(field > 0, near)
    field = analysis.receptive_field(model, before, images(model))
    near[:] = False
    near[4:7, 4:7] = True
    np.testing.assert_array_equal(field > 0, near)


@pytest.mark.parametrize("multi_head", [False, True])
def test_parts_add_up(multi_head):
    layer = LambdaLayer(
        8, num_heads=2, key_dim=3, scope=3, multi_head=multi_head, intra_depth=2
    )
    model = network(layer)
    x = images(model)
    content, position = (
        analysis.layer_part(layer, part)(x) for part in ("content", "position")
    )
    checks.assert_close(content + position, layer(x), 1e-6)
    (row,) = analysis.part_norms(model, x)
    sizes = [np.sqrt(np.mean(np.square(y))) for y in (content, position)]
    np.testing.assert_allclose([row.content, row.position], sizes, rtol=1e-5)
    both = np.sqrt(np.mean(np.square(layer(x))))
    np.testing.assert_allclose(row.both, both, rtol=1e-5)
    share = sizes[0] ** 2 / (sizes[0] ** 2 + sizes[1] ** 2)
    np.testing.assert_allclose(row.content_share, share, rtol=1e-4)
    cosine = np.mean(content * position) / sizes[0] / sizes[1]
    np.testing.assert_allclose(row.cosine, cosine, atol=1e-3)


def test_a_part_that_is_off_is_zero():
    first = LambdaLayer(8, use_content=False, **_SMALL)
    second = LambdaLayer(8, use_position=False, **_SMALL)
    third = LambdaLayer(8, **_SMALL)
    model = network(first, second, third)
    table = third.position_embedding.embeddings
    table.assign(np.zeros(table.shape))
    rows = analysis.part_norms(model, images(model, 40))
    assert [row.name for row in rows] == [
        x.name for x in (first, second, third)
    ]
    assert [row.content_share for row in rows] == [0.0, 1.0, 1.0]
    assert all(row.both > 0 for row in rows)
    with pytest.raises(ValueError, match="no content part"):
        analysis.receptive_field(model, first, images(model), part="content")


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    "name", ["LambdaResNetSmall", "LambdaResNet50", "LambdaMobileNetV2"]
)
def test_every_kind_of_network(name):
    arguments = {"stages": ("C", "C", "CLL", "LL"), "share_embeddings": True}
    if name != "LambdaResNet50":
        arguments = {}
    size = 16 if name == "LambdaResNetSmall" else 64
    model = models.build(
        name, input_shape=(size, size, 3), classes=3, **arguments
    )
    x = 255 * np.random.default_rng(0).random((2, size, size, 3), "float32")
    layers = analysis.lambda_layers(model)
    assert len(analysis.part_norms(model, x)) == len(layers) > 0
    field = analysis.receptive_field(model, layers[-1], x, probes=1)
    assert field.shape == (size, size)
    assert np.all(np.isfinite(field))
    assert field.max() > 0


def test_lambda_layers_of_a_model_inside_are_there():
    inputs = tf.keras.Input((7, 4))
    inner = tf.keras.Model(inputs, LambdaLayer(8, **_SMALL)(inputs), name="own")
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(2)(inner(inputs)))
    for look in (
        analysis.lambda_layers,
        lambda model: analysis.part_norms(model, images(model)),
        lambda model: analysis.read(model, images(model)),
    ):
        assert len(look(inner)) == 1
        with pytest.raises(ValueError, match="in the model 'own': give that"):
            look(model)


def test_what_cannot_be_told_apart_is_an_error():
    inputs = tf.keras.Input((7, 4))
    masked = LambdaLayer(8, **_SMALL)
    x = masked(inputs, attention_mask=np.tri(7))
    dense = tf.keras.layers.Dense(2)
    model = tf.keras.Model(inputs, dense(x))
    x = images(model)
    with pytest.raises(ValueError, match="mask"):
        analysis.part_norms(model, x)
    for layer, arguments, message in (
        (dense, {"part": "content"}, "Only lambda layers"),
        (f"{dense.name}s", {}, "Did you mean"),
        (masked, {"part": "value"}, "`part` must be one of"),
        (masked, {"position": (7,)}, "one index per spatial axis"),
        (masked, {"position": (1, 2)}, "one index per spatial axis"),
    ):
        with pytest.raises(ValueError, match=message):
            analysis.receptive_field(model, layer, x, **arguments)


def test_pictures_of_tables():
    layer = LambdaLayer(
        8, num_heads=2, key_dim=3, scope=(3, 5), intra_depth=2, multi_head=True
    )
    layer.build((None, 7, 9, 4))
    one_entry(layer, 0, 4, 1, 2, 0)  # Head 1, key channel 2, intra-depth 0.
    figure = analysis.position_table_figure(layer)
    pictures = [np.asarray(a.images[0].get_array()) for a in figure.axes[:12]]
    (index,) = [i for i, picture in enumerate(pictures) if picture.any()]
    assert index == 1 * 6 + 0 * 3 + 2
    assert np.argwhere(pictures[index]).tolist() == [[0, 4]]

    sequence = LambdaConv(8, 5, padding="causal", **_SMALL)
    sequence.build((None, None, 4))
    one_entry(sequence, 4, 1)
    axes = analysis.position_table_figure(sequence, title="mine").axes[0]
    picture = np.asarray(axes.images[0].get_array())
    assert np.argwhere(picture).tolist() == [[1, 4]]
    assert axes.images[0].get_extent()[:2] == [-4.5, 0.5]  # -4 to 0.
    assert axes.get_title() == "mine"

    table = RelativePositionEmbedding(key_dim=3, scope=3)
    table.build((None, 7, 4))
    assert analysis.position_table_figure(table).axes
    volume = LambdaLayer(8, scope=3, **_SMALL)
    volume.build((None, 3, 3, 3, 4))
    without = LambdaLayer(8, use_position=False, **_SMALL)
    without.build((None, 3, 3, 4))
    for layer, reason in ((volume, "one or two axes"), (without, "no table")):
        with pytest.raises(ValueError, match=reason):
            analysis.position_table_figure(layer)


def test_pictures_of_fields_and_norms(rng):
    fields = {"a": rng.random((5, 7)), "b": rng.random((5, 7))}
    figure = analysis.receptive_field_figure(fields, position=(2, 3))
    for axes, (title, field) in zip(figure.axes, fields.items(), strict=True):
        assert axes.get_title() == title
        np.testing.assert_array_equal(axes.images[0].get_array(), field)
    figure = analysis.receptive_field_figure({"a": rng.random(5)}, position=[2])
    assert len(figure.axes[0].lines) == 2
    norms = [analysis.PartNorms("stage2", 1.0, 2.0, 2.5)]
    (axes,) = analysis.part_norms_figure(norms).axes
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == [1.0, 2.0, 2.5]
