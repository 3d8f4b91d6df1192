"""Counts against closed forms, the paper's tables and TensorFlow."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import records
from benchmarks.networks import paper_tables as tables
from lambdanet_tf import cli
from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.analysis import analyze
from lambdanet_tf.layers import LambdaConv
from lambdanet_tf.layers import LambdaLayer
from lambdanet_tf.layers import RelativeAttention
from lambdanet_tf.ops import planning_for
from tests.support import closed_form
from tests.support.networks import shapes_alone

pytestmark = pytest.mark.once

FIGURES = tables.read_figures("tests/paper_tables.json")
BLOCKS = {row.depth: row.blocks for row in specs.TABLE_19}


def stages(pattern, depth=50):
    blocks = BLOCKS[depth]
    return [letter * n for letter, n in zip(pattern, blocks, strict=True)]


def hybrid(depth):
    (row,) = [row for row in specs.TABLE_19 if row.depth == depth]
    c4 = ["C"] * row.blocks[2]
    for block in row.lambda_blocks_c4:
        c4[block - 1] = "L"
    c2, c3, _, c5 = stages("CCCL", depth)
    return [c2, c3, "".join(c4), c5]


def stages_of(builder):
    """The letters of a network of a given depth."""
    depth = int("".join(filter(str.isdigit, builder.removesuffix("C4"))))
    if builder.startswith("ResNetRS"):
        return stages("CCCC", depth)
    return stages("CCLL", depth) if builder.endswith("C4") else hybrid(depth)


def formula(builder, size, arguments):
    """The closed form of a call of a builder."""
    arguments = dict(arguments)
    if builder.endswith("MobileNetV2"):
        blocks = (10, 16) if builder.startswith("Lambda") else ()
        return closed_form.mobilenet(size, blocks)
    names = {"key_dim": "k", "num_heads": "h", "intra_depth": "u", "scope": "r"}
    names |= {"use_content": "content", "use_position": "position"}
    values = {
        names[key]: arguments.pop(key) for key in names if key in arguments
    }
    if builder == "ResNet50":
        se = [arguments.pop("se_ratio", 0)] * 4
        letters = stages(arguments.pop("pattern", "CCCC"))
        values |= {"se": se}
    else:
        letters, se = stages_of(builder), (0.25, 0.25, 0, 0)
        if builder.startswith("ResNetRS"):
            se = [arguments.pop("se_ratio", 0.25)] * 4
        values |= {"deep": True, "se": se}
    assert not arguments, arguments
    return closed_form.resnet(letters, size, **values)


def test_published_parameters_are_the_closed_forms():
    seen = 0
    for name, preset in specs.PRESETS.items():
        others = "LambdaResNet26", "LambdaResNet50TS", "LambdaResNetSmall"
        if name.startswith(others):
            continue  # Of timm, and of nobody.
        parameters, _ = formula(name, 224, {})
        assert preset.parameters == parameters, name
        if name != "ResNet50" and not name.endswith("MobileNetV2"):
            assert preset.spec.stages == tuple(stages_of(name)), name
        seen += 1
    assert seen >= 20


@pytest.mark.slow
@pytest.mark.representatives(4)
@pytest.mark.parametrize(
    ("builder", "size", "arguments"),
    [
        ("ResNet50", 64, {"pattern": "LCLC", "se_ratio": 1 / 16}),
        ("ResNet50", 70, {"pattern": "LLLL", "intra_depth": 4, "scope": 7}),
        ("ResNet50", 64, {"pattern": "LLLL", "scope": None, "num_heads": 8}),
        ("ResNet50", 64, {"pattern": "CLLL", "use_content": False}),
        ("ResNet50", 64, {"pattern": "CCLL", "use_position": False}),
        ("ResNet50", 64, {"pattern": "SAXP"}),
        ("ResNet50", 70, {"pattern": "PSAX"}),
        ("LambdaResNet50", 96, {"key_dim": 8}),
        ("LambdaResNet50C4", 64, {}),
        ("ResNetRS50", 75, {}),
        ("ResNetRS50", 64, {"se_ratio": 0.0}),
        ("MobileNetV2", 64, {}),
        ("LambdaMobileNetV2", 70, {}),
    ],
)
def test_counts_are_the_closed_forms(builder, size, arguments):
    with shapes_alone():
        model = models.build(builder, input_shape=(size, size, 3), **arguments)
        counted = analyze(model, executed=False)
    parameters, flops = formula(builder, size, arguments)
    assert counted.total("parameters") == parameters
    assert counted.total("flops") == flops
    trained = sum(np.prod(w.shape) for w in model.trainable_weights)
    assert counted.total("parameters") == trained
    assert not counted.not_counted


def assert_as_documented(comparisons):
    for comparison in comparisons:
        assert comparison.agrees or comparison.explanation, comparison
        if comparison.reproduced:
            assert comparison.agrees, comparison


def test_closed_forms_reproduce_the_paper(monkeypatch):
    """And are what the records hold."""
    monkeypatch.setattr(tables, "_counts", formula)
    comparisons = tables.compare(FIGURES)
    assert len(comparisons) == 61
    ours = {
        (c.table, c.row, c.quantity): pytest.approx(c.ours) for c in comparisons
    }
    found = records.latest("paper_tables")
    assert {tuple(x["case"].values()): x["value"] for x in found} == ours
    assert_as_documented(comparisons)
    # What the file of figures marks is what is held, but for one figure.
    marked = sum(c.reproduced for c in comparisons if c.table != "4")
    assert marked == 43


@pytest.mark.thorough
def test_networks_reproduce_the_paper(monkeypatch):
    """One of each family and kind of arguments; others differ in numbers."""
    build, built = tables._counts.__wrapped__, set()

    def counts(builder, size, arguments):
        expected = formula(builder, size, arguments)
        family = "".join(c for c in builder if not c.isdigit())
        kind = family, *(name for name, _ in arguments)
        if kind not in built:
            built.add(kind)
            with shapes_alone():
                found = build(builder, size, arguments)
            assert found == tuple(expected), (builder, size, arguments)
        return expected

    monkeypatch.setattr(tables, "_counts", counts)
    assert_as_documented(tables.compare(FIGURES))
    assert len(built) > 10


def test_a_wrong_count_is_an_error(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(tables, "_counts", lambda *_: (15_100_000, 12e9))
    assert tables.main(["--results", str(tmp_path)]) == 1
    assert "'row': 'conv'" in capsys.readouterr().err
    assert len(records.read("paper_tables", tmp_path)) == 61


def test_memory_of_table_4():
    ours = [c for c in tables.compare(FIGURES, ["4"]) if c.agrees]
    assert len(ours) == 4  # All but k = 8: see the explanation.


@pytest.mark.parametrize(
    ("bias", "scope", "implementation"),
    # The bias is added whatever the algorithm is.
    [
        (False, 3, "einsum"),
        (True, None, "einsum"),
        (True, 3, "conv2d"),
        (False, None, "conv2d"),
        (False, 3, "depthwise"),
        (True, None, "depthwise"),
    ],
)
def test_executed_operations_of_a_layer(bias, scope, implementation):
    """And its memory."""
    images = tf.keras.Input((5, 7, 6))
    layer = LambdaLayer(
        8,
        num_heads=2,
        key_dim=3,
        intra_depth=2,
        scope=scope,
        use_position_bias=bias,
        implementation=implementation,
    )
    (_, row) = analyze(tf.keras.Model(images, layer(images))).layers
    n, k, h, u, v = 35, 3, 2, 2, 4
    projections = n * 6 * (h * k + k * u + v * u)
    content = n * k * v * u + n * h * k * v
    seen = 9 if scope else 9 * 13
    if implementation == "einsum":
        position = min(n * k * (n * v * u + h * v), n * h * n * u * (k + v))
    else:
        summed = 1 if implementation == "conv2d" else u  # Before or after u.
        position = n * k * (seen * v * u + h * v * summed)
    # The bias is a sum of elementwise products, which are not counted.
    assert row.executed_flops == 2 * (projections + content + position)
    assert row.table_bytes == 4 * seen * k * u
    assert row.embedding_bytes == 4 * n * n * k * u
    inner = h * k + k * u + v * u + k * v
    assert row.activation_bytes == 4 * n * (8 + inner)
    assert row.algorithm == implementation


@pytest.mark.parametrize(
    ("arguments", "seen", "scored", "pairs", "table"),
    # Positions and embeddings that a query meets, then embeddings of the map
    # and of the table.
    [
        ({}, 35, 5 + 7, 25 + 49, 9 + 13),
        ({"position_embedding": "joint"}, 35, 35, 35 * 35, 9 * 13),
        ({"position_embedding": None}, 35, 0, 0, 0),
        ({"axis": 2}, 7, 7, 49, 13),
        ({"use_content": False}, 35, 5 + 7, 25 + 49, 9 + 13),
        ({"axis": 1}, 5, 5, 25, 9),
        ({"scope": 3}, 9, 3 + 3, 25 + 49, 3 + 3),
    ],
)
def test_operations_and_memory_of_attention(
    arguments, seen, scored, pairs, table
):
    images = tf.keras.Input((5, 7, 6))
    layer = RelativeAttention(8, num_heads=2, key_dim=3, **arguments)
    (_, row) = analyze(tf.keras.Model(images, layer(images))).layers
    n, h, k, v = 35, 2, 3, 4
    content = arguments.get("use_content", True)
    projected = h * ((1 + content) * k + v)
    scores = h * k * (content * seen + scored)
    assert row.flops == 2 * n * (6 * projected + scores + h * seen * v)
    if "scope" not in arguments:  # One block: nothing in vain.
        assert row.executed_flops == row.flops
    assert row.activation_bytes == 4 * n * (8 + projected + h * seen)
    assert row.embedding_bytes == 4 * pairs * k
    assert row.table_bytes == 4 * table * k
    assert row.kind == "RelativeAttention"


def of_a_sequence(layer, length=10, channels=6):
    """The operations of a layer on a sequence, by the paper's convention."""
    tokens = tf.keras.Input((length, channels))
    counted = analyze(tf.keras.Model(tokens, layer(tokens)), executed=False)
    assert not counted.not_counted
    return counted.total("flops")


@pytest.mark.parametrize(
    ("scope", "seen"),
    # What is not in the future: of 3 entries 2, of a global layer's 11 the
    # mean of 1 to 11, of a scope beyond the sequence the same.
    [(3, 2), (None, 6), (31, 6)],
)
@pytest.mark.parametrize("layer", [LambdaLayer, RelativeAttention])
def test_causal_layers_count_what_they_see(layer, scope, seen):
    arguments = {"num_heads": 2, "key_dim": 3, "scope": scope}
    n, h, k, v = 11, 2, 3, 4
    one_pair = k * v if layer is LambdaLayer else h * (2 * k + v)
    future = (3 if scope == 3 else n) - seen
    whole, causal = (
        of_a_sequence(layer(8, causal=x, **arguments), length=n)
        for x in (False, True)
    )
    assert whole - causal == 2 * n * future * one_pair


def test_all_taps_of_a_causal_lambda_convolution_are_of_the_past():
    whole, causal = (
        of_a_sequence(LambdaConv(8, 5, padding=padding, num_heads=2))
        for padding in ("same", "causal")
    )
    assert whole == causal


@pytest.mark.parametrize(
    ("kind", "gates"), [("SimpleRNN", 1), ("GRU", 3), ("LSTM", 4)]
)
@pytest.mark.parametrize("return_sequences", [False, True])
def test_operations_of_recurrent_layers(kind, gates, return_sequences):
    layer = getattr(tf.keras.layers, kind)
    flops = of_a_sequence(layer(5, return_sequences=return_sequences))
    assert flops == 2 * 10 * gates * 5 * (6 + 5)


@pytest.mark.parametrize(
    "arguments", [{"padding": "causal", "dilation_rate": 2}, {"groups": 2}]
)
def test_operations_of_convolutions_of_sequences(arguments):
    layer = tf.keras.layers.Conv1D(4, 3, **{"padding": "same"} | arguments)
    flops = of_a_sequence(layer)
    assert flops == 2 * 10 * 3 * 6 // arguments.get("groups", 1) * 4


def test_lambda_convolution_with_strides():
    images = tf.keras.Input((8, 8, 16))
    layer = LambdaConv(16, 5, strides=2, key_dim=8)
    counted = analyze(tf.keras.Model(images, layer(images)), executed=False)
    expected = closed_form.lambda_layer(8, 16, 2, k=8, h=4, u=1, r=5)
    assert counted.total("parameters") == expected[0]
    assert counted.total("flops") == expected[1]


@pytest.mark.slow
def test_executed_operations_of_a_network():
    model = models.ResNet50(input_shape=(32, 32, 3))
    counted = analyze(model)
    assert counted.total("executed_flops") == counted.total("flops")
    for layer in counted.layers:
        assert layer.executed_flops == layer.flops, layer


@pytest.mark.slow
def test_shared_embeddings_count_once():
    def parameters(**arguments):
        model = models.LambdaResNetSmall(
            stages=("CL", "LLL", "LL"), **arguments
        )
        total = analyze(model, executed=False).total("parameters")
        trained = sum(np.prod(w.shape) for w in model.trainable_weights)
        assert total == trained
        return total

    saved = parameters() - parameters(share_embeddings=True)
    assert saved == 7 * 7 * 16  # Of the two unstrided lambda layers of c3.


@pytest.mark.slow
def test_other_image_sizes():
    model, larger, free = (
        models.LambdaResNetSmall(stages=("C", "L", "L"), input_shape=shape)
        for shape in ((8, 8, 1), (9, 13, 1), (None, None, 1))
    )
    expected = analyze(larger)
    assert analyze(model, (9, 13)).layers == expected.layers
    assert analyze(free, (9, 13)).total("flops") == expected.total("flops")
    with pytest.raises(ValueError, match="`image_size` must be given"):
        analyze(free)


@pytest.mark.slow
@pytest.mark.parametrize("scope", [None, 5])
def test_other_image_sizes_share_what_the_network_shares(scope):
    arguments = {
        "stages": ("LLL",),
        "widths": (8,),
        "strides": (1,),
        "share_embeddings": True,
        "scope": scope,
    }
    small = models.LambdaResNetSmall(**arguments, input_shape=(8, 8, 1))
    large = models.LambdaResNetSmall(**arguments, input_shape=(12, 10, 1))
    counted = analyze(small, image_size=(12, 10), executed=False)
    assert counted.layers == analyze(large, executed=False).layers


def test_algorithms_are_those_of_a_batch():
    images = tf.keras.Input((28, 28, 256))
    with planning_for("tpu"):
        model = tf.keras.Model(images, LambdaLayer(scope=23)(images))
        rows = {
            batch: analyze(model, executed=False, batch_size=batch).layers[-1]
            for batch in (None, 32, 128)
        }
    assert rows[128].algorithm == "fourier_tpu"
    assert rows[32].algorithm == "query_first"
    for row in rows.values():
        assert row.flops == rows[None].flops
        assert row.output_shape == (28, 28, 256)


@pytest.mark.parametrize("batch", [1, 3])
def test_operations_are_those_of_one_image_of_a_batch(batch):
    images = tf.keras.Input((6, 5, 4), name="images")
    layer = LambdaLayer(
        8, num_heads=2, key_dim=3, scope=3, implementation="einsum"
    )
    model = tf.keras.Model(images, layer(images))
    counted = analyze(model, batch_size=batch)
    assert counted.layers == analyze(model).layers
    with pytest.raises(ValueError, match="`batch_size`.*positive.*-1"):
        analyze(model, batch_size=-1)


def test_layers_that_are_not_counted_are_named():
    """Or counted once, though called twice."""
    images = tf.keras.Input((6, 6, 3))
    conv = tf.keras.layers.Conv2D(3, 3, padding="same", name="conv")
    x = tf.keras.layers.Conv2DTranspose(3, 2, name="up")(conv(conv(images)))
    counted = analyze(tf.keras.Model(images, x), executed=False)
    assert counted.counted_once == ("conv",)
    assert counted.not_counted == ("up",)
    assert counted.total("flops") == 2 * 6 * 6 * 9 * 3 * 3
    assert "counted once: conv" in counted.table()
    assert "not counted: up" in counted.table()


@pytest.mark.slow
def test_summary_prints_a_table(capsys):
    arguments = ["summary", "LambdaResNetSmall", "--size", "16"]
    assert cli.main(arguments) == 0
    text = capsys.readouterr().out
    assert text.startswith("LambdaResNetSmall at 16x16x3, per image\n")
    assert "stage4  2 L" in text
    assert cli.main([*arguments, "--layers"]) == 0
    assert "stage4_block2_lambda" in capsys.readouterr().out


@pytest.mark.slow
def test_summary_is_quiet_about_tensorflow():
    environment = {
        k: v for k, v in os.environ.items() if k != "TF_CPP_MIN_LOG_LEVEL"
    }
    done = subprocess.run(
        [sys.executable, "-m", "lambdanet_tf", "summary", "LambdaResNetSmall"]
        + ['--model-arguments={"input_shape": [8, 8, 1], "classes": 10}'],
        env=environment,
        cwd=pathlib.Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.slow
def test_stages_name_their_letters():
    stages = ("CS", "AX", "PL")
    rows = analyze(models.LambdaResNetSmall(stages=stages)).stages()
    kinds = {row.name: row.kind for row in rows}
    assert kinds["stage2"] == "1 C 1 S"
    assert kinds["stage3"] == "1 A 1 X"
    assert kinds["stage4"] == "1 L 1 P"


def test_summary_of_an_unknown_network(capsys):
    assert cli.main(["summary", "LambdaResNet51"]) == 2
    assert "Did you mean 'LambdaResNet5" in capsys.readouterr().err
    assert cli.main(["summary", "LambdaResNet50", "--size", "31"]) == 2
    assert "at least 32x32 pixels" in capsys.readouterr().err


@pytest.mark.slow
def test_a_stream_has_a_state_of_fixed_size(tmp_path, capsys):
    tokens = tf.keras.Input((40, 6))
    x = LambdaLayer(8, num_heads=2, key_dim=3, scope=5, causal=True)(tokens)
    x = LambdaLayer(8, num_heads=2, key_dim=3, causal=True)(x)  # Has no state.
    model = tf.keras.Model(tokens, x)
    # Content and two rows of the softmax, float32, and two values.
    expected = 4 * (3 * 4 + 2 * 3 + 2 * 4)
    counts = analyze(model, executed=False)
    assert counts.total("state_bytes") == expected
    model.save(tmp_path / "model.keras")
    assert cli.main(["summary", str(tmp_path / "model.keras"), "--layers"]) == 0
    assert f"state of a stream: {expected:,} bytes" in capsys.readouterr().out
