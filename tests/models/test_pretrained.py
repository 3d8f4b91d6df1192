"""`weights=`: from the hub to the network, and every way that fails.

The hub is a server of this process on the loopback; nothing is downloaded.
"""

import dataclasses
import functools
import hashlib
import http.server
import shutil
import threading
import typing

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import records
from examples.golden_weights import write
from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.convert import main
from lambdanet_tf.models import fashion_mnist
from lambdanet_tf.models.timm.hub import PUBLISHED
from lambdanet_tf.models.timm.hub import Published
from lambdanet_tf.models.timm.safetensors import write_safetensors
from tests.support import networks
from tests.support import timm_golden
from tests.support.timm_golden import TINY

pytestmark = pytest.mark.once

NAME = "LambdaResNet26T"


class _Handler(http.server.SimpleHTTPRequestHandler):
    """A hub; `stated` has the headers by which it describes its files."""

    stated: typing.ClassVar = {}

    def do_HEAD(self):
        self.send_response(302)
        self.send_header("Location", "http://127.0.0.1:9/")
        for name, value in self.stated.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files of networks with the golden weights, by name."""
    folder = tmp_path_factory.mktemp("files")
    specs_of = {"tiny": TINY, NAME: specs.RESNETS[NAME]}
    return {n: write(folder / n, spec) for n, spec in specs_of.items()}


@pytest.fixture
def hub(files, tmp_path, monkeypatch):
    """The folder of a hub; Keras' cache is an empty one."""
    handler = functools.partial(_Handler, directory=tmp_path / "hub")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    (tmp_path / "keras").mkdir()
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setitem(specs.RESNETS, "tiny", TINY)
    folder = tmp_path / "hub" / "resolve" / "main"
    folder.mkdir(parents=True)
    for name, path in files.items():
        address = f"http://127.0.0.1:{server.server_port}/resolve/main/{name}"
        monkeypatch.setitem(PUBLISHED, name, Published(name, address))
        shutil.copy(path, folder / name)
    yield folder
    server.shutdown()
    thread.join()
    server.server_close()


def cached(tmp_path):
    return sorted(p.name for p in tmp_path.glob("keras/**/*") if p.is_file())


def build(name="tiny", **arguments):
    arguments = {"input_shape": (64, 64, 3), **arguments}
    if name == "tiny":
        return models.ResNet(TINY, **arguments)
    return models.build(name, **arguments)


def assert_golden(model, but=()):
    spec = TINY if model.name == "tiny" else specs.RESNETS[model.name]
    networks.assert_weights(model, timm_golden.weights(spec), but)


def assert_fetched():
    assert_golden(build(weights="imagenet"))


def refused(tmp_path, message, error=ValueError):
    """What is raised instead of published weights; nothing is kept of them."""
    with pytest.raises(error, match=message):
        build(weights="imagenet")
    assert cached(tmp_path) == []


@pytest.mark.slow
def test_the_lines_of_the_readme(hub, tmp_path):
    model = models.LambdaResNet26T(weights="imagenet")
    assert_golden(model)
    image = tf.keras.utils.array_to_img(networks.some_images(300, 200, 3))
    image.save(tmp_path / "cat.jpg")
    image = tf.keras.utils.load_img(
        tmp_path / "cat.jpg",
        target_size=(256, 256),
        interpolation="bicubic",
        keep_aspect_ratio=True,
    )
    scores = model.predict(np.array(image)[None], verbose=0)
    (best,) = models.decode_predictions(scores, top=3)
    assert [score for *_, score in best] == sorted(scores[0])[:-4:-1]
    assert best[0][0] == np.argmax(scores)
    # Fetched once.
    (hub / NAME).unlink()
    assert_golden(build(NAME, weights="imagenet"))
    assert cached(tmp_path) == [f"{NAME}.safetensors"]


@pytest.mark.slow
def test_parts_of_a_network(files, tmp_path):
    path = tmp_path / "tiny.safetensors"
    shutil.copy(files["tiny"], path)
    tiny = functools.partial(build, weights=path)
    assert_golden(tiny(classes=10), but=["predictions/"])
    assert_golden(tiny(include_top=False, input_shape=(None, None, 3)))
    assert_golden(tiny(endpoints=("c2", "c4"), input_shape=(64, 48, 3)))
    # A classifier that is not ImageNet's is not left out.
    write_safetensors(path, timm_golden.state_dict(TINY, classes=11))
    with pytest.raises(ValueError, match="Only the classifier differs"):
        tiny(classes=10)


@pytest.mark.slow
def test_what_is_not_the_file_is_not_kept(hub, files, tmp_path, capsys):
    """Of states that do not fit: `test_timm_networks.py`."""
    arguments = ["from-timm", "tiny", str(tmp_path / "ours.npz")]
    content = files["tiny"].read_bytes()
    for wrong, message in (
        (content[: len(content) // 2], "file not fully covered"),
        (b"<html>Please log in</html>", "header too large"),
        (files[NAME].read_bytes(), "unexpected"),
    ):
        (hub / "tiny").write_bytes(wrong)
        refused(tmp_path, f"not the weights of tiny.*{message}")
    assert main(arguments) == 2
    assert "is not the weights of tiny" in capsys.readouterr().err
    (hub / "tiny").unlink()
    refused(tmp_path, "give the path of the file", OSError)
    # The hub mends itself, and the next call finds the weights.
    (hub / "tiny").write_bytes(content)
    assert main(arguments) == 0
    assert_golden(build(weights=tmp_path / "ours.npz"))


@pytest.mark.slow
def test_the_hash_that_is_known_is_checked(hub, files, tmp_path, monkeypatch):
    """Whatever the hub states, and of what lies in the cache, too."""
    content = files["tiny"].read_bytes()
    known = hashlib.sha256(content).hexdigest()
    published = dataclasses.replace(PUBLISHED["tiny"], sha256=known)
    monkeypatch.setitem(PUBLISHED, "tiny", published)
    changed = bytearray(content)
    changed[-1] ^= 1  # One bit of one weight: names and shapes are right.
    other = hashlib.sha256(changed).hexdigest()
    monkeypatch.setattr(_Handler, "stated", {"X-Linked-Etag": f'"{other}"'})
    (hub / "tiny").write_bytes(changed)
    refused(tmp_path, f"must be {known}. Received: {other}", OSError)
    (hub / "tiny").write_bytes(content)
    assert_fetched()
    for path in tmp_path.glob("keras/**/*.safetensors"):
        path.write_bytes(changed)
    assert_fetched()


@pytest.mark.slow
def test_where_no_hash_is_known_the_hubs_is_checked(
    hub, files, tmp_path, monkeypatch, capsys
):
    """Of the revision that it names; what was compared is said."""
    content, revision = files["tiny"].read_bytes(), "12ab" * 10
    stated = hashlib.sha256(content).hexdigest()
    headers = {"X-Repo-Commit": revision, "X-Linked-Etag": f'"{stated}"'}
    monkeypatch.setattr(_Handler, "stated", headers)
    path = hub.with_name(revision) / "tiny"
    path.parent.mkdir()
    path.write_bytes(bytes(len(content)))
    refused(tmp_path, f"SHA-256 must be {stated}", OSError)
    path.write_bytes(content)
    assert_fetched()
    said = capsys.readouterr().err
    assert f"/resolve/{revision}/tiny. Their SHA-256, {stated}, is what" in said


def clothes():
    """The first test image of every class of Fashion-MNIST, in order."""
    content = tf.io.read_file(str(records.ROOT / "docs/fashion_mnist.png"))
    return tf.stack(tf.split(tf.io.decode_png(content), 10, axis=1))


def test_weights_of_fashion_mnist_know_clothes():
    model = models.LambdaResNetSmall28(weights="fashion_mnist")
    np.testing.assert_array_equal(
        np.argmax(model.predict(clothes(), verbose=0), axis=-1), np.arange(10)
    )


def small(name="LambdaResNetSmall28", **arguments):
    shape = 32, 32, 1
    return build(name, weights="fashion_mnist", input_shape=shape, **arguments)


def test_weights_of_fashion_mnist_begin_another_task():
    expected = models.named_weights(small(dropout_rate=0.5))
    for model in (small(classes=3), small(endpoints=("c2", "c3"))):
        for key, weight in models.named_weights(model).items():
            if not key.startswith("predictions/"):
                np.testing.assert_array_equal(weight, expected[key], key)


def test_weights_of_fashion_mnist_are_of_one_network():
    with pytest.raises(ValueError, match="Received: LambdaMobileNetV2."):
        small("LambdaMobileNetV2")
    with pytest.raises(ValueError, match="Small28, with other strides, scope"):
        small(scope=5, strides=(2, 1, 2))


def test_weights_of_fashion_mnist_are_one_file(tmp_path, monkeypatch):
    monkeypatch.setattr(fashion_mnist, "_CLONE", str(tmp_path / "absent"))
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    path = tmp_path / "models/fashion_mnist.npz"
    with pytest.raises(ValueError, match=f"put it into {path.parent}"):
        small()
    path.parent.mkdir()
    whole = (records.RESULTS / path.name).read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="is not the file of this release"):
        small()
    path.write_bytes(whole)
    assert small()
