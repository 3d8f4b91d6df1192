"""timm's weights: the hub, its files, networks of them, and the command.

The hub is a server of this process on the loopback; nothing is downloaded.
"""

import dataclasses
import functools
import hashlib
import http.server
import json
import re
import shutil
import sys
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
from lambdanet_tf.models.timm.safetensors import read_safetensors
from lambdanet_tf.models.timm.safetensors import write_safetensors
from tests.support import networks
from tests.support import timm_golden
from tests.support.timm_golden import TINY

pytestmark = pytest.mark.once

NAME = "LambdaResNet26T"
NETWORKS = {"tiny": TINY, NAME: specs.RESNETS[NAME]}


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
    return {n: write(folder / n, spec) for n, spec in NETWORKS.items()}


@pytest.fixture
def hub(files, tmp_path, monkeypatch):
    """The folder of a hub; Keras' cache is an empty one."""
    handler = functools.partial(_Handler, directory=tmp_path / "hub")
    (tmp_path / "keras").mkdir()
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    monkeypatch.setitem(specs.RESNETS, "tiny", TINY)
    folder = tmp_path / "hub" / "resolve" / "main"
    folder.mkdir(parents=True)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        root = f"http://127.0.0.1:{server.server_port}/resolve/main"
        for name, path in files.items():
            published = Published(name, f"{root}/{name}")
            monkeypatch.setitem(PUBLISHED, name, published)
            shutil.copy(path, folder / name)
        threading.Thread(target=server.serve_forever).start()
        yield folder
        server.shutdown()


def cached(tmp_path):
    return sorted(p.name for p in tmp_path.glob("keras/**/*") if p.is_file())


def build(name="tiny", **arguments):
    arguments = {"input_shape": (64, 64, 3), **arguments}
    return models.ResNet(NETWORKS[name], **arguments)


def assert_golden(model, but=()):
    golden = timm_golden.weights(NETWORKS[model.name])
    networks.assert_weights(model, golden, but)


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
def test_hashes_are_checked(hub, files, tmp_path, monkeypatch, capsys):
    content, revision = files["tiny"].read_bytes(), "12ab" * 10
    changed = bytearray(content)
    changed[-1] ^= 1  # One bit of one weight: names and shapes are right.
    known, other = (hashlib.sha256(x).hexdigest() for x in (content, changed))
    path = hub.with_name(revision) / "tiny"
    path.parent.mkdir()

    def state(sha256):
        headers = {"X-Repo-Commit": revision, "X-Linked-Etag": f'"{sha256}"'}
        monkeypatch.setattr(_Handler, "stated", headers)

    # What the hub states, of the revision that it names; that is said.
    state(known)
    path.write_bytes(changed)
    refused(tmp_path, f"SHA-256 must be {known}", OSError)
    path.write_bytes(content)
    assert_golden(build(weights="imagenet"))
    said = capsys.readouterr().err
    assert f"/resolve/{revision}/tiny. Their SHA-256, {known}, is what" in said
    # What is known, whatever the hub states; also of what is in the cache.
    published = dataclasses.replace(PUBLISHED["tiny"], sha256=known)
    monkeypatch.setitem(PUBLISHED, "tiny", published)
    state(other)
    for file in (path, *tmp_path.glob("keras/**/*.safetensors")):
        file.write_bytes(changed)
    refused(tmp_path, f"must be {known}. Received: {other}", OSError)
    path.write_bytes(content)
    assert_golden(build(weights="imagenet"))


def test_weights_of_fashion_mnist_know_clothes():
    """The first test image of every class, in order."""
    content = tf.io.read_file(str(records.ROOT / "docs/fashion_mnist.png"))
    images = tf.stack(tf.split(tf.io.decode_png(content), 10, axis=1))
    model = models.LambdaResNetSmall28(weights="fashion_mnist")
    scores = model.predict(images, verbose=0)
    np.testing.assert_array_equal(np.argmax(scores, axis=-1), np.arange(10))


def small(name="LambdaResNetSmall28", **arguments):
    arguments = {"input_shape": (32, 32, 1), **arguments}
    return models.build(name, weights="fashion_mnist", **arguments)


def test_weights_of_fashion_mnist_are_of_one_network():
    expected = models.named_weights(small(dropout_rate=0.5))
    for model in (small(classes=3), small(endpoints=("c2", "c3"))):
        for key, weight in models.named_weights(model).items():
            if not key.startswith("predictions/"):
                np.testing.assert_array_equal(weight, expected[key], key)
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


@pytest.fixture
def theirs(tmp_path, monkeypatch):
    """A file of timm's layout, of seven classes."""
    monkeypatch.setitem(specs.RESNETS, "tiny", TINY)
    path = tmp_path / "theirs.safetensors"
    write_safetensors(path, timm_golden.state_dict(TINY, classes=7))
    return path


def test_there_and_back_by_the_command(theirs, tmp_path, capsys):
    ours, back = tmp_path / "ours.npz", tmp_path / "back.safetensors"
    assert main(f"from-timm {theirs} {ours} --model tiny".split()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"Wrote {ours}"
    rows = {line.split()[0]: line.split(None, 2)[1:] for line in lines[2:-1]}
    assert rows.keys() == read_safetensors(theirs).keys()
    parts = ("query", "key", "value")
    kernels = [f"stage4_block1_lambda/{part}/kernel" for part in parts]
    row = rows["stages.2.0.self_attn.qkv.weight"]
    assert row == ["20x16x1x1", ", ".join(kernels)]
    assert "counter" in rows["stem.conv1.bn.num_batches_tracked"][1]

    model = build(input_shape=(32, 32, 3), classes=7)
    models.load_weights(model, ours)
    shown = " ".join(f"{text}," for _, text in rows.values())
    for name in models.named_weights(model):
        assert shown.count(f"{name},") == 1, name

    assert main(f"to-timm {ours} {back} --model tiny".split()) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == lines[:-1]
    assert back.read_bytes() == theirs.read_bytes()


@pytest.mark.slow
def test_what_is_refused_writes_nothing(theirs, tmp_path, capsys, monkeypatch):
    weights = tmp_path / "weights.npz"
    models.save_weights(build(), weights)
    before = sorted(tmp_path.iterdir())
    new, out = f"{tmp_path}/new.npz", f"{tmp_path}/new.safetensors"
    for command, message in (
        (f"from-timm lambda_resnet26 {new}", "one of .*Did you mean"),
        (f"from-timm {theirs} {new}", "--model must be given .*el=None"),
        (f"from-timm {theirs} {new} --model Tiny", "Did you mean 'tiny'"),
        (f"from-timm {theirs} {out} --model tiny", "`destination` must end"),
        (f"to-timm {weights} {out} --model LambdaResNet26T", "missing in the"),
    ):
        assert main(command.split()) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("python -m lambdanet_tf.convert: ")
        assert re.search(message, captured.err)
        assert sorted(tmp_path.iterdir()) == before
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(ImportError, match=r"lambdanet-tf\[pretrained\]"):
        models.LambdaResNet26T(weights="imagenet")  # Nothing is fetched.


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def by_hand(tmp_path, header, data):
    """A file of a header, and bytes behind it."""
    path = tmp_path / "file.safetensors"
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def test_half_floats_and_damaged_files(tmp_path):
    header = {"half": entry("F16", [2], 0, 4), "bf": entry("BF16", [2], 4, 8)}
    half, brain = np.float16([0.5, 65504]), np.float32([1.5, -np.inf])
    data = half.tobytes() + bytes([0xC0, 0x3F, 0x80, 0xFF])
    arrays = read_safetensors(by_hand(tmp_path, header, data))
    np.testing.assert_array_equal(arrays["half"], half, strict=True)
    np.testing.assert_array_equal(arrays["bf"], brain, strict=True)
    for changed, content, message in (
        (header, data[:-1], "file.safetensors is no safetensors file"),
        ({"a": entry("F64", [1], 0, 8)}, data, "must be F32.*of F64"),
    ):
        path = by_hand(tmp_path, changed, content)
        with pytest.raises(ValueError, match=message):
            read_safetensors(path)


def test_what_is_written_is_read(tmp_path, rng):
    arrays = {
        "a": np.array(7),
        "strided": rng.normal(size=[4, 5]).astype(np.float32)[::2, ::-1],
    }
    path = tmp_path / "file.safetensors"
    write_safetensors(path, arrays)
    content, back = path.read_bytes(), read_safetensors(path)
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array, strict=True)
    with pytest.raises(ValueError, match="a of float16"):
        write_safetensors(path, {"a": np.zeros(3, np.float16)})
    assert path.read_bytes() == content
