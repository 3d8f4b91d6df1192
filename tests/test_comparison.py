"""The comparison of networks: accuracies, times at an accuracy, the page."""

import pytest

from benchmarks import comparison
from benchmarks import comparison_report
from benchmarks import vision_transformer
from lambdanet_tf import models
from lambdanet_tf.analysis import analyze

pytestmark = pytest.mark.once


def test_networks_have_a_source():
    for key, network in comparison.NETWORKS.items():
        assert 75 < network.top1 < 86
        assert key == f"{network.build.__name__}, {network.image_size} px"
        assert network.family in comparison_report.SOURCES
    assert set(comparison.CHOSEN) <= comparison.NETWORKS.keys()
    published = comparison_report.published_steps()
    assert comparison_report.RESNET_RS_STEPS.keys() <= (
        comparison.NETWORKS.keys()
    )
    # Table 20: 0.38 s for 1024 images.
    assert published["LambdaResNet152, 224 px"] == pytest.approx(0.38 / 1024)


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
    at = comparison_report.seconds_at
    assert at(points, 80.0) == pytest.approx(4.0)
    assert at(points, 75.0) == pytest.approx(2.0)  # sqrt(1 * 4)
    assert at(points, 85.0) == pytest.approx(8.0)
    assert at(points, 69.9) is None
    assert at(points, 90.1) is None


def tiny_network(**arguments):
    return models.LambdaResNetSmall(
        stages=("L",), widths=(8,), strides=(1,), **arguments
    )


def test_measuring_and_the_page(tmp_path):
    networks = {
        network.key: network
        for network in (
            comparison.Network(family, family, size, top1, tiny_network)
            for family, size, top1 in (
                ("LambdaResNet", 8, 70.0),
                ("EfficientNet", 12, 75.0),
            )
        )
    }
    key, network = next(iter(networks.items()))
    found = comparison.measure(network, batch=2, repetitions=1)
    size = analyze(tiny_network(input_shape=(8, 8, 3))).total("parameters")
    assert found["parameters"] == size
    assert min(*found["inference"], *found["training"]) > 0
    slower = {**found, "training": [2 * s for s in found["training"]]}
    rounds = [
        {"batch": 2, "networks": dict(zip(networks, pair, strict=True))}
        for pair in ((found, slower), (found, slower))
    ]
    page = tmp_path / comparison_report.DOCUMENT
    page.write_text("<!-- measured:begin -->\n<!-- measured:end -->\n")
    comparison_report.write(networks, rounds, tmp_path)
    text = page.read_text()
    assert f"| {key} | " in text
    assert "| EfficientNet, 12 px (75.0) | no such accuracy |" in text
    assert (tmp_path / "comparison.png").exists()
