"""The comparison of networks: accuracies, times at an accuracy, the page."""

import json

import pytest

from benchmarks import comparison
from benchmarks import comparison_report
from benchmarks import comparison_tpu
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


def tiny_networks():
    networks = (
        comparison.Network(family, family, size, top1, tiny_network)
        for family, size, top1 in (
            ("LambdaResNet", 8, 70.0),
            ("EfficientNet", 12, 75.0),
        )
    )
    return {network.key: network for network in networks}


def written_page(folder, networks, **files):
    """The text of a page that is written beside some stored results."""
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    page = folder / comparison_report.DOCUMENT
    page.write_text(
        "<!-- estimated:begin -->\n<!-- estimated:end -->\n"
        "<!-- measured:begin -->\n<!-- measured:end -->\n"
    )
    comparison_report.write(networks, folder)
    assert (folder / "comparison.png").exists()
    return page.read_text()


def test_measuring_and_the_page(tmp_path):
    networks = tiny_networks()
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
    text = written_page(tmp_path, networks, comparison=rounds)
    assert f"| {key} | " in text
    none = "no such accuracy"
    assert f"| EfficientNet, 12 px (75.0) | {none} | {none} |" in text


def test_estimates_and_the_page(tmp_path):
    networks = {
        key: comparison.NETWORKS[key]
        for key in (
            "LambdaResNet152, 224 px",  # 83.2 %
            "LambdaResNet350, 256 px",  # 84.4 %
            "EfficientNetB6, 528 px",  # 84.0 %, two thirds of the way
            "EfficientNetB7, 600 px",
        )
    }
    # The compiler counts -1 for what it cannot cost.
    seconds = dict(zip(networks, (0.032, 0.256, 0.256 - 3), strict=False))
    estimates = {
        f"{key} on v3": {
            "status": "ok",
            "images": 32,
            "optimal_seconds": s,
            "cycles": 940_000 * cycles,
        }
        for (key, s), cycles in zip(
            seconds.items(), (32, 32 * 2**0.5, 64), strict=True
        )
    }
    estimates["EfficientNetB7, 600 px on v3"] = {"status": "out of memory"}
    text = written_page(tmp_path, networks, comparison_tpu=estimates)
    # 32 images on each of 8 cores in 32 ms, by both figures.
    published = comparison_report.published_steps()["LambdaResNet152, 224 px"]
    ratio = 1 / published / 8000
    assert f"| {1 / published:,.0f} | 8,000 | 8,000 | {ratio:.2f} |" in text
    # Two thirds of the way from 32 to 256 ms, and to 45 ms.
    cycles = 64 / 32 / 2 ** (1 / 3)
    assert f"| EfficientNetB6, 528 px (84.0) | 2.00 | {cycles:.2f} |" in text
    assert "EfficientNetB7" not in text


def test_a_step_is_lowered_for_the_compiler():
    network = tiny_networks()["EfficientNet, 12 px"]
    text, facts = comparison_tpu.lower(network, 2)
    assert facts["images"] == 2
    assert facts["parameters"] == network.model().count_params()
    assert "tensor<2x12x12x" in text
    assert "tensor<?" not in text
