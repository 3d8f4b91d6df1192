"""Benchmarks of networks: that they run and append, and what they compare."""

import unittest.mock

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import records
from benchmarks.networks import comparison
from benchmarks.networks import floor
from benchmarks.networks import speed
from benchmarks.networks import timm_speed
from benchmarks.networks import vision_transformer
from benchmarks.tpu import comparison as comparison_tpu
from benchmarks.views import networks as views
from lambdanet_tf import layers
from lambdanet_tf import models
from lambdanet_tf import ops
from lambdanet_tf.analysis import analyze

pytestmark = pytest.mark.once


def tiny_network(**arguments):
    return models.LambdaResNetSmall(
        stages=("L",), widths=(8,), strides=(1,), **arguments
    )


@pytest.fixture
def tiny(monkeypatch):
    """Two networks that are timed quickly, in place of all."""
    both = dict.fromkeys(("CCCC", "CCLL"), tiny_network)
    monkeypatch.setattr(speed, "NETWORKS", both)


LEAST = ["--batch", "2", "--size", "8", "--seconds", "0", "--results"]


@pytest.mark.slow
def test_times_of_networks_are_appended(tiny, tmp_path):
    speed.main([*LEAST, str(tmp_path)])
    speed.main([*LEAST, str(tmp_path), "--norm", "--only", "CCCC"])
    found = records.read("networks", tmp_path)
    pairs = [row for row in found if "against" in row["case"]]
    against = [row["case"]["against"] for row in pairs]
    assert against == ["CCCC"] * 2 + [speed.NORM] * 2
    assert len(found) - len(pairs) == 4
    for row in pairs:
        assert all(len(x) == speed.LEAST for x in row["seconds"].values())


@pytest.mark.slow
def test_the_floor_is_appended(tmp_path, monkeypatch, tiny):
    networks = {"CCCC": tiny_network, "LLLL": tiny_network}
    monkeypatch.setattr(speed, "NETWORKS", networks)
    monkeypatch.setattr(floor.layers_speed, "matrix_rate", lambda: 1e11)
    monkeypatch.setattr(floor, "copy_rate", lambda: 1e10)
    floor.main([*LEAST, str(tmp_path)])
    (row,) = records.read("floor", tmp_path)
    assert row["seconds"].keys() == {"CCCC", "LLLL", "rest"}
    assert row["operations"] > 0


def test_the_rest_of_a_layer_is_its_content_lambda():
    inputs = tf.random.stateless_normal([2, 6, 5, 16], (0, 1))
    whole = layers.LambdaLayer(scope=3)
    content = layers.LambdaLayer(use_position=False)
    whole(inputs), content(inputs)
    paths = {w.path.split("/", 1)[1]: w for w in whole.weights}
    for weight in content.weights:
        weight.assign(paths[weight.path.split("/", 1)[1]])
    with unittest.mock.patch.object(
        ops, "lambda_step", floor.without_position_lambdas
    ):
        rest = whole(inputs)
    np.testing.assert_allclose(rest, content(inputs), atol=1e-6)
    assert np.max(np.abs(rest - whole(inputs))) > 1e-3


def test_work_is_that_of_all_layers_for_the_batch():
    inputs = tf.keras.Input([56, 56, 64])
    large = layers.LambdaLayer(scope=23)
    small = layers.LambdaLayer(scope=23)
    pooled = tf.keras.layers.AveragePooling2D(8)(large(inputs))
    model = tf.keras.Model(inputs, small(pooled))
    names = [x.inference_plan.algorithm for x in (large, small)]
    assert names == ["fourier", "query_first"]
    operations, moved = floor.position_work(model, 3)
    # Lambdas before and after the inverse, written and read; scores.
    lambdas, scores = 56**2 * 16 * 16, 7**2 * 4 * 7**2
    assert moved == 3 * 4 * (4 * lambdas + 2 * scores)
    plans = [x.inference_plan for x in (large, small)]
    assert operations == sum(
        3 * x.operations + x.table_operations for x in plans
    )


def test_pairs_with_timm_are_appended(tmp_path, monkeypatch):
    def instead(commands, seconds):
        assert [command[1] for command in commands.values()] == [*commands]
        return {side: [2.0] * 6 for side in commands}

    monkeypatch.setattr(timm_speed.timm_models, "missing", lambda: "")
    monkeypatch.setattr(timm_speed.timing, "worker_turns", instead)
    arguments = ["--batch", "1", "--only", "LambdaResNet26T"]
    for _ in range(2):  # what is known is not measured again
        timm_speed.main([*arguments, "--results", str(tmp_path)])
    found = records.read("timm", tmp_path)
    phases = [row["case"]["phase"] for row in found]
    assert phases == ["inference"] * 2 + ["training"] * 2


def test_networks_have_a_family():
    for key, network in comparison.NETWORKS.items():
        assert 75 < network.top1 < 86
        assert key == f"{network.build.__name__}, {network.image_size} px"
        assert network.family in views.FAMILIES
    assert comparison.NETWORKS.keys() > comparison.ONLY_WITH_ALL
    # Table 20: 0.38 s for 1024 images.
    facts = comparison.NETWORKS["LambdaResNet152, 224 px"].facts
    assert facts["published"] == pytest.approx(0.38 / 1024)


@pytest.mark.slow
@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    ("build", "parameters"),
    [
        (vision_transformer.DeiTSmall, 22_050_664),
        (vision_transformer.DeiTBase, 86_567_656),
    ],
)
def test_vision_transformers_have_the_published_size(build, parameters):
    assert build(input_shape=(224, 224, 3)).count_params() == parameters


def test_seconds_at_an_accuracy():
    # The second is slower and worse than the third.
    points = [(70.0, 1.0), (75.0, 9.0), (80.0, 4.0), (90.0, 16.0)]
    at = views.seconds_at
    assert at(points, 80.0) == pytest.approx(4.0)
    assert at(points, 75.0) == pytest.approx(2.0)  # sqrt(1 * 4)
    assert at(points, 85.0) == pytest.approx(8.0)
    assert at(points, 69.9) is None
    assert at(points, 90.1) is None


def tiny_networks():
    networks = (
        comparison.Network(family, family, size, top1, None, tiny_network)
        for family, size, top1 in (
            ("LambdaResNet", 8, 70.0),
            ("EfficientNet", 12, 75.0),
        )
    )
    return {network.key: network for network in networks}


@pytest.mark.slow
def test_networks_are_compared_and_appended(tmp_path, monkeypatch):
    networks = tiny_networks()
    monkeypatch.setattr(comparison, "NETWORKS", networks)
    found = comparison.measure(next(iter(networks)), 2, 0)
    size = analyze(tiny_network(input_shape=(8, 8, 3))).total("parameters")
    assert found["parameters"] == size
    monkeypatch.setattr(comparison.timing, "in_child", lambda *_: found)
    comparison.main(["--all", "--results", str(tmp_path)])
    rows = records.read("comparison", tmp_path)
    assert {row["case"]["network"] for row in rows} == networks.keys()


@pytest.mark.slow
def test_a_step_is_lowered_for_the_compiler(monkeypatch):
    networks, key = tiny_networks(), "EfficientNet, 12 px"
    monkeypatch.setattr(comparison, "NETWORKS", networks)
    text, facts = comparison_tpu.lower(key, 2)
    assert facts["images"] == 2
    assert facts["parameters"] == networks[key].model().count_params()
    assert "tensor<2x12x12x" in text
    assert "tensor<?" not in text
