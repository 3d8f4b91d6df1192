"""Counts against the paper's tables, formulas and TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import records
from benchmarks.networks import paper_tables as tables
from lambdanet_tf import cli
from lambdanet_tf.analysis import analyze
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention
from tests.support.networks import shapes_alone

pytestmark = pytest.mark.once


@pytest.mark.slow
def test_counts_are_those_of_the_paper():
    """In the records of all tables; those of two tables are counted here."""
    rows = records.latest("paper_tables")
    found = {tuple(x["case"].values()): x["value"] for x in rows}
    assert len(found) == 61
    assert sum(row["verdict"] == "agrees" for row in rows) == 48
    figures = tables.read_figures(tables.FIGURES)
    with shapes_alone():
        counted = tables.compare(figures, ("9", "17"))
    for figure in counted:
        assert figure.verdict != "differs", figure
        assert figure.agrees or not figure.reproduced, figure
        case = figure.table, figure.row, figure.quantity
        assert found[case] == pytest.approx(figure.ours), case


# The bias is added whatever the algorithm is.
CASES = [(False, 3, "einsum"), (True, 3, "conv2d"), (True, None, "depthwise")]


@pytest.mark.parametrize(("bias", "scope", "implementation"), CASES)
def test_executed_operations_of_a_layer(bias, scope, implementation):
    """And its memory."""
    images = tf.keras.Input((5, 7, 6))
    sizes = {"num_heads": 2, "key_dim": 3, "intra_depth": 2, "scope": scope}
    chosen = {"use_position_bias": bias, "implementation": implementation}
    layer = LambdaLayer(8, **sizes, **chosen)
    (row,) = analyze(tf.keras.Model(images, layer(images))).layers
    n, k, h, u, v = 35, 3, 2, 2, 4
    projections = n * 6 * (h * k + k * u + v * u)
    content = n * k * v * u + n * h * k * v
    seen = 9 if scope else 9 * 13
    if implementation == "einsum":
        position = min(n * k * (n * v * u + h * v), n * h * n * u * (k + v))
    else:
        summed = 1 if implementation == "conv2d" else u  # Before or after u.
        position = n * k * (seen * v * u + h * v * summed)
    clipped = n * (9 if scope else n) * k * v * u
    assert row.flops == 2 * (projections + content + clipped + bias * n * h * k)
    # The bias is a sum of elementwise products, which are not counted.
    assert row.executed_flops == 2 * (projections + content + position)
    inner = h * k + k * u + v * u + k * v
    assert row.activation_bytes == 4 * n * (8 + inner)
    assert row.algorithm == implementation


def of_a_sequence(layer):
    """The operations of a layer on a sequence, by the paper's convention."""
    x = tf.keras.Input((11, 6))
    counted = analyze(tf.keras.Model(x, layer(x)), executed=False)
    assert not counted.not_counted
    return counted.total("flops")


# What is not in the future: of 3 entries 2, of a global layer's 11 the mean of
# 1 to 11.
@pytest.mark.parametrize(("scope", "seen"), [(3, 2), (None, 6)])
@pytest.mark.parametrize("layer", [LambdaLayer, RelativeAttention])
def test_causal_layers_count_what_they_see(layer, scope, seen):
    h, k, v = 2, 3, 4
    whole, causal = (
        of_a_sequence(layer(8, num_heads=h, key_dim=k, scope=scope, causal=x))
        for x in (False, True)
    )
    one_pair = k * v if layer is LambdaLayer else h * (2 * k + v)
    assert whole - causal == 2 * 11 * ((scope or 11) - seen) * one_pair


def test_operations_on_a_second_input():
    """Explicit embeddings count as a global table."""
    x = tf.keras.Input((4, 9, 6))
    context = tf.keras.layers.Conv2D(5, 1, (1, 3))(x)
    for layer in (
        LambdaLayer(8, use_position=False),
        RelativeAttention(8, position_embedding=None),
    ):
        row = analyze(tf.keras.Model(x, layer(x, context))).layers[-1]
        assert row.flops == row.executed_flops, layer
    explicit = LambdaLayer(8, position_embedding="explicit")
    given = np.ones([11, 11, 16], "float32")
    flops = of_a_sequence(lambda x: explicit(x, embeddings=given))
    assert flops == of_a_sequence(LambdaLayer(8))


def one_layer(*shape):
    images = tf.keras.Input(shape, name="images")
    layer = LambdaLayer(8, num_heads=2, implementation="einsum", name="lambda")
    return tf.keras.Model(images, layer(images))


def test_operations_are_those_of_one_image_of_a_size():
    small = one_layer(6, 5, 4)
    assert analyze(small, (9, 7)).layers == analyze(one_layer(9, 7, 4)).layers
    x = tf.keras.Input((None,), dtype="int32")
    words = tf.keras.layers.Embedding(9, 6)(x)
    model = tf.keras.Model(x, LambdaLayer(8, scope=3)(words))
    counted = analyze(model, 11)
    assert counted.total("flops") == of_a_sequence(LambdaLayer(8, scope=3))
    with pytest.raises(ValueError, match="`image_size` must be set"):
        analyze(model)


def test_calls_are_counted_one_by_one_also_in_nested_models():
    inner = tf.keras.Sequential([tf.keras.Input((6, 3)), dense := dense_of(3)])
    x = tf.keras.Input((6, 3))
    outer = tf.keras.Model(x, dense_of(4)(inner(inner(x))))
    counted = analyze(outer)
    names = [f"{inner.name}/{dense.name}", f"{inner.name}_call2/{dense.name}"]
    assert [row.name for row in counted.layers[:2]] == names
    assert [row.flops for row in counted.layers] == [108, 108, 144]
    assert [row.parameters for row in counted.layers] == [12, 0, 16]
    assert counted.total("executed_flops") == counted.total("flops")


def dense_of(units):
    return tf.keras.layers.Dense(units)


def test_layers_that_are_not_counted_are_named():
    images = tf.keras.Input((6, 6, 3))
    conv = tf.keras.layers.Conv2D(3, 3, padding="same", groups=3, name="conv")
    x = tf.keras.layers.Conv2DTranspose(3, 2, name="up")(conv(conv(images)))
    lost = tf.keras.layers.EinsumDense("abcd,de->abce", (None, 7, 4))
    counted = analyze(tf.keras.Model(images, lost(x)))
    assert counted.not_counted == ("up", lost.name)
    assert counted.total("flops") == 2 * 2 * 6 * 6 * 9 * 3
    executed = [row.executed_flops for row in counted.layers[:3]]
    assert executed == [2 * 2 * 6 * 6 * 9 * 3, 0, 2 * 6 * 6 * 4 * 3 * 3]
    assert "not counted: up" in counted.table()


@pytest.mark.slow
def test_summary_prints_a_table(capsys, tmp_path):
    arguments = ["summary", "LambdaResNetSmall", "--size", "16"]
    assert cli.main(arguments) == 0
    text = capsys.readouterr().out
    assert text.startswith("LambdaResNetSmall at 16x16x3, per image\n")
    assert "stage4  2 L" in text
    assert cli.main([*arguments, "--layers"]) == 0
    assert "stage4_block2_lambda" in capsys.readouterr().out
    assert cli.main(["summary", "LambdaResNet51"]) == 2
    assert "Did you mean 'LambdaResNet5" in capsys.readouterr().err
    model, path = one_layer(6, 5, 4), str(tmp_path / "model.keras")
    model.compile(loss=of_a_sequence)  # A file need not know it.
    model.save(path)
    assert cli.main(["summary", path]) == 0
