"""Benchmarks of exports: that they run and append, and what they compare."""

import pytest
import tensorflow as tf

from benchmarks import records
from benchmarks import views
from benchmarks.serving import convolutions
from benchmarks.serving import exports
from benchmarks.serving import formats
from benchmarks.serving import runtimes
from benchmarks.views import memory  # noqa: F401 - registers a view
from benchmarks.views import serving as served
from lambdanet_tf import models

pytestmark = pytest.mark.once


def test_times_of_runtimes_are_appended(tmp_path, monkeypatch):
    seconds = {"TensorFlow": [2.0] * 6, "ONNX Runtime": [1.0] * 6}
    found = {"difference": 0.0, "seconds": seconds}
    monkeypatch.setattr(runtimes, "export", lambda name, folder: None)
    monkeypatch.setattr(runtimes, "measure", lambda *_: found)
    for _ in range(2):  # what is known is not measured again
        runtimes.main(
            ["--only", "LLLL", "--batch", "8", "--results", str(tmp_path)]
        )
    (row,) = records.read("runtimes", tmp_path)
    assert row["case"] == {"network": "LLLL", "batch": 8}


@pytest.mark.slow
def test_times_of_convolutions_alone_are_appended(tmp_path, monkeypatch):
    network = ("LambdaResNetSmall28", {"classes": 10}, 28)
    monkeypatch.setitem(runtimes.NETWORKS, "tiny", network)
    monkeypatch.setattr(convolutions, "NETWORKS", ("tiny",))
    monkeypatch.setattr(convolutions, "SIZE", 28)
    arguments = ["--batch", "2", "--seconds", "0.1", "--results"]
    convolutions.main([*arguments, str(tmp_path)])
    (row,) = records.read("convolutions", tmp_path)
    model = models.build("LambdaResNetSmall28", input_shape=(28, 28, 3))
    convolution_layers = [
        layer
        for layer in model.layers
        if isinstance(layer, tf.keras.layers.Conv2D)
    ]
    # A lambda layer may have others of its own.
    assert row["convolutions"] >= len(convolution_layers)
    served.convolutions({"convolutions": [row]})


@pytest.mark.slow
def test_accuracy_and_size_of_files_are_appended(tmp_path):
    formats.main(["--epochs", "1", "--results", str(tmp_path)])
    (row,) = records.read("formats", tmp_path)
    assert {*row["accuracies"]} == {"Keras", *formats.FORMATS.values()}
    assert row["bytes"]["tflite_int8"] < row["bytes"]["tflite"] / 2
    row["case"]["epochs"] = formats.EPOCHS  # Of fewer none is shown.
    assert "TFLite, int8" in views.VIEWS["serving.md#formats"](
        {"formats": [row]}
    )


@pytest.mark.parametrize(
    ("number", "place"), [(5, 4), (19, 18), (20, 18), (100, 94)]
)
def test_a_percentile_is_of_what_was_measured(number, place):
    assert served.percentile_95(list(range(number))[::-1]) == place


@pytest.mark.slow
def test_times_of_exports_are_appended(tmp_path, monkeypatch):
    pytest.importorskip("grpc")
    make, shape = exports.NETWORKS[exports.DIGITS]
    tiny = {"stages": ["CL"], "widths": [8], "strides": [1], **shape}
    monkeypatch.setitem(exports.NETWORKS, exports.DIGITS, (make, tiny))
    monkeypatch.setattr(exports, "BATCHES", (1, 8))
    monkeypatch.setattr(exports, "CLIENTS", (1, 2))
    monkeypatch.setattr(exports, "LEAST", 2)
    arguments = ["--only", "digits", "--seconds", "0.05", "--results"]
    exports.main([*arguments, str(tmp_path)])
    found = {"exports": records.read("exports", tmp_path)}
    assert found["exports"]
    served.exports(found)
    served.exports_picture(found)
