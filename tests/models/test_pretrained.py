"""Published weights: a hub in a folder, its files, and networks."""

import dataclasses
import hashlib
import json
import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import records
from examples.golden_weights import write
from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.models.timm.hub import PUBLISHED
from lambdanet_tf.models.timm.hub import Published
from lambdanet_tf.models.timm.safetensors import read_safetensors
from tests.support import networks
from tests.support import timm_golden
from tests.support.timm_golden import TINY

pytestmark = pytest.mark.once

NAME = "LambdaResNet26T"
NETWORKS = {"tiny": TINY, NAME: specs.RESNETS[NAME]}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    return {n: write(folder / n, spec) for n, spec in NETWORKS.items()}


@pytest.fixture
def hub(files, tmp_path, monkeypatch):
    """The folder of a hub; Keras' cache is an empty one."""
    hub, cache = tmp_path / "hub", tmp_path / "keras"
    hub.mkdir()
    cache.mkdir()
    monkeypatch.setenv("KERAS_HOME", str(cache))
    monkeypatch.setitem(specs.RESNETS, "tiny", TINY)
    for name, path in files.items():
        shutil.copy(path, hub / name)
        published = Published(name, (hub / name).as_uri())
        monkeypatch.setitem(PUBLISHED, name, published)
    return hub


def cached(tmp_path):
    return sorted(p.name for p in tmp_path.glob("keras/**/*") if p.is_file())


def build(name="tiny", **arguments):
    return models.ResNet(NETWORKS[name], input_shape=(64, 64, 3), **arguments)


def assert_golden(model, but=()):
    golden = timm_golden.weights(NETWORKS[model.name])
    networks.assert_weights(model, golden, but)


@pytest.mark.slow
def test_the_lines_of_the_readme(hub, tmp_path):
    model = models.LambdaResNet26T(weights="imagenet")
    assert_golden(model)
    image = tf.keras.utils.array_to_img(networks.some_images(300, 200, 3))
    path = tmp_path / "cat.jpg"
    image.save(path)
    size = {"target_size": (256, 256), "keep_aspect_ratio": True}
    image = tf.keras.utils.load_img(path, interpolation="bicubic", **size)
    scores = model.predict(np.array(image)[None], verbose=0)
    (best,) = models.decode_predictions(scores, top=3)
    assert [score for *_, score in best] == sorted(scores[0])[:-4:-1]
    assert best[0][0] == np.argmax(scores)
    # Fetched once.
    (hub / NAME).unlink()
    assert_golden(build(NAME, weights="imagenet"))
    assert cached(tmp_path) == [f"{NAME}.safetensors"]


@pytest.mark.slow
def test_what_is_not_the_file_is_not_kept(hub, files, tmp_path, monkeypatch):
    """Of states that do not fit: `test_timm_networks.py`."""
    content = files["tiny"].read_bytes()
    hashed = dataclasses.replace(
        PUBLISHED["tiny"], sha256=hashlib.sha256(content).hexdigest()
    )
    for wrong, published, message in (
        (content[: len(content) // 2], PUBLISHED["tiny"], "not fully covered"),
        (b"<html>Please log in</html>", PUBLISHED["tiny"], "header too large"),
        # One bit of one weight: names and shapes are right, the hash is not.
        (content[:-1] + bytes([content[-1] ^ 1]), hashed, "pass the path of"),
    ):
        (hub / "tiny").write_bytes(wrong)
        monkeypatch.setitem(PUBLISHED, "tiny", published)
        message = f"weights of tiny could not be downloaded.*{message}"
        with pytest.raises(OSError, match=message):
            build(weights="imagenet")
        assert cached(tmp_path) == [] or published is hashed
    (hub / "tiny").unlink()
    with pytest.raises(OSError, match="pass the path of the file"):
        build(weights="imagenet")
    # The hub mends itself, and the next call finds the weights.
    (hub / "tiny").write_bytes(content)
    assert_golden(build(weights="imagenet"))


def test_weights_of_fashion_mnist_know_clothes():
    """The first test image of every class, in order."""
    content = tf.io.read_file(str(records.ROOT / "docs/fashion_mnist.png"))
    images = tf.stack(tf.split(tf.io.decode_png(content), 10, axis=1))
    model = models.LambdaResNetSmall28(weights="fashion_mnist")
    scores = model.predict(images, verbose=0)
    np.testing.assert_array_equal(np.argmax(scores, axis=-1), np.arange(10))


def test_weights_of_fashion_mnist_are_of_one_network():
    def small(name="LambdaResNetSmall28", **arguments):
        arguments = {"input_shape": (32, 32, 1), **arguments}
        return models.build(name, weights="fashion_mnist", **arguments)

    networks.assert_weights(small(endpoints=("c2", "c3")), small())
    networks.assert_weights(small(classes=3), small(), but=["predictions/"])
    with pytest.raises(ValueError, match="Received: LambdaMobileNetV2."):
        small("LambdaMobileNetV2")
    with pytest.raises(ValueError, match="of another shape: stage3_block2_lam"):
        small(scope=5)


def test_a_file_of_timm(tmp_path, monkeypatch):
    path = write(tmp_path / "theirs.safetensors", TINY, classes=7)
    assert build(weights=path, classes=7).output_shape == (None, 7)
    with pytest.raises(ValueError, match="Only the classifier differs"):
        build(weights=path, classes=3)
    # The published classifier is left out.
    path = write(tmp_path / "theirs.safetensors", TINY)
    assert_golden(build(weights=path, classes=3), but=["predictions/"])
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"lambdanet-tf\[pretrained\]"):
        models.LambdaResNet26T(weights="imagenet")  # Nothing is fetched.


def test_half_floats_and_damaged_files(tmp_path):
    path = tmp_path / "file.safetensors"

    def read(data, **entries):
        names = "dtype", "shape", "data_offsets"
        header = {
            k: dict(zip(names, x, strict=True)) for k, x in entries.items()
        }
        text = json.dumps(header).encode()
        path.write_bytes(len(text).to_bytes(8, "little") + text + data)
        return read_safetensors(path)

    halves = {"half": ("F16", [2], [0, 4]), "bf": ("BF16", [2], [4, 8])}
    half, brain = np.float16([0.5, 65504]), np.float32([1.5, -np.inf])
    data = half.tobytes() + bytes([0xC0, 0x3F, 0x80, 0xFF])
    arrays = read(data, **halves)
    np.testing.assert_array_equal(arrays["half"], half, strict=True)
    np.testing.assert_array_equal(arrays["bf"], brain, strict=True)
    with pytest.raises(ValueError, match="tensors is damaged, or not"):
        read(data[:-1], **halves)
    with pytest.raises(ValueError, match="dtypes F32.*is F64"):
        read(data, a=("F64", [1], [0, 8]))
