"""`weights=`: from the hub to the network, and every way that fails.

The hub is a server of this process on the loopback; nothing is downloaded.
"""

import dataclasses
import functools
import hashlib
import http.server
import re
import threading
import traceback
import urllib.error

import numpy as np
import pytest
import tensorflow as tf

from benchmarks import records
from lambdanet_tf import models
from lambdanet_tf import specs
from lambdanet_tf.convert import main
from lambdanet_tf.environment import require
from lambdanet_tf.models import fashion_mnist
from lambdanet_tf.models import sizes
from lambdanet_tf.models.timm.hub import PUBLISHED
from lambdanet_tf.models.timm.hub import Published
from lambdanet_tf.models.timm.safetensors import write_safetensors
from lambdanet_tf.training import resolve
from tests.support import checks
from tests.support import networks
from tests.support import timm_golden
from tests.support.timm_golden import TINY

pytestmark = pytest.mark.once

NAME = "LambdaResNet26T"
GLOBAL = "LambdaResNet26RPT256"
SQUARE = (256, 256, 3)


class Hub(http.server.ThreadingHTTPServer):
    """A hub: `files` by path, each a status, a length and the bytes sent.

    Of these it has one, the `content` of the network `tiny`. `stated` has the
    headers by which it describes a file before it sends it.
    """

    def __init__(self, content):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files, self.requests, self.stated = {}, [], {}
        self.content = content
        self.serve(content)

    def serve(self, content, path="/tiny"):
        self.files[path] = 200, len(content), content

    def address(self, path):
        return f"http://127.0.0.1:{self.server_port}{path}"


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.path)
        status, length, content = self.server.files.get(
            self.path, (404, 0, b"")
        )
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(content)

    def do_HEAD(self):
        self.send_response(302)
        self.send_header("Location", "http://127.0.0.1:9/")
        for name, value in self.server.stated.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def hub(files, tmp_path, monkeypatch):
    """The hub, with Keras' cache in an empty folder."""
    server = Hub(files["tiny"].read_bytes())
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    (tmp_path / "keras").mkdir()
    monkeypatch.setenv("KERAS_HOME", str(tmp_path / "keras"))
    timm_names = {n: p.timm_name for n, p in PUBLISHED.items()}
    for name, timm_name in {**timm_names, "tiny": "tiny"}.items():
        moved = Published(timm_name, server.address(f"/{timm_name}"))
        monkeypatch.setitem(PUBLISHED, name, moved)
    monkeypatch.setitem(specs.RESNETS, "tiny", TINY)
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files of networks with the golden weights, by name."""
    folder = tmp_path_factory.mktemp("files")
    paths = {}
    for spec in (specs.RESNETS[NAME], specs.RESNETS[GLOBAL], TINY):
        paths[spec.name] = folder / f"{spec.name}.safetensors"
        state = timm_golden.state_dict(spec, image_size=spec.image_size)
        write_safetensors(paths[spec.name], state)
    return paths


def cached(tmp_path):
    return sorted(p.name for p in tmp_path.glob("keras/**/*") if p.is_file())


def build(name=NAME, **arguments):
    arguments = {
        "input_shape": (64, 64, 3),
        "kernel_initializer": "zeros",
        **arguments,
    }
    if name == "tiny":
        return models.ResNet(TINY, **arguments)
    return models.build(name, **arguments)


def assert_golden(model, but=()):
    spec = TINY if model.name == "tiny" else specs.RESNETS[model.name]
    networks.assert_weights(model, timm_golden.weights(spec), but)


def assert_fetched():
    assert_golden(build("tiny", weights="imagenet"))


def refused(tmp_path, message, error=ValueError):
    """What is raised instead of published weights; nothing is kept of them."""
    with pytest.raises(error, match=message) as info:
        build("tiny", weights="imagenet")
    assert cached(tmp_path) == []
    assert "\n" not in str(info.value)
    return info


def test_addresses():
    assert PUBLISHED.keys() == timm_golden.TIMM_NAMES.keys()
    for name, published in PUBLISHED.items():
        stem, _, tag = published.timm_name.partition(".")
        assert stem == timm_golden.TIMM_NAMES[name]
        assert tag in ("c1_in1k", "a1h_in1k")
        hub = f"https://huggingface.co/timm/{published.timm_name}/resolve/"
        assert re.fullmatch(
            f"{hub}(main|[0-9a-f]{{40}})/model.safetensors", published.address
        )
        sha256 = published.sha256
        assert sha256 is None or re.fullmatch("[0-9a-f]{64}", sha256)


@pytest.mark.slow
def test_the_lines_of_the_readme(hub, files, tmp_path):
    stem = PUBLISHED[NAME].timm_name
    hub.serve(files[NAME].read_bytes(), f"/{stem}")
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
    assert hub.requests == [f"/{stem}"]
    assert cached(tmp_path) == [f"{stem}.safetensors"]
    hub.files.clear()
    assert_golden(build(weights="imagenet"))
    assert len(hub.requests) == 1


@pytest.mark.slow
def test_parts_of_a_network(files):
    tiny = functools.partial(build, "tiny", weights=str(files["tiny"]))
    assert_golden(tiny(classes=10), but=["predictions/"])
    backbone = tiny(include_top=False, input_shape=(None, None, 3))
    assert_golden(backbone)
    endpoints = tiny(endpoints=("c2", "c4"), input_shape=(64, 48, 3))
    assert_golden(endpoints)
    expected = tf.keras.Model(
        backbone.input, backbone.get_layer("stage4_block1_act").output
    )
    images = networks.some_images(1, 64, 48, 3)
    checks.assert_close(endpoints(images)["c4"], expected(images), 1e-5)


@pytest.mark.slow
def test_a_classifier_that_is_not_imagenets_is_not_left_out(tmp_path):
    path = tmp_path / "eleven.safetensors"
    write_safetensors(path, timm_golden.state_dict(TINY, classes=11))
    model = build("tiny", weights=path, classes=11)
    assert tuple(model.output_shape) == (None, 11)
    for classes in (1000, 10):
        with pytest.raises(ValueError, match="Only the classifier differs"):
            build("tiny", weights=path, classes=classes)


@pytest.mark.slow
def test_preprocessing_is_the_rows(files):
    arguments = {"weights": files["tiny"], "classifier_activation": None}
    tiny = functools.partial(build, "tiny", **arguments)
    inside, outside = tiny(), tiny(include_preprocessing=False)
    images = networks.some_images(1, 64, 64, 3)
    deviation = np.array([0.229, 0.224, 0.225])
    mean = np.array([0.485, 0.456, 0.406])
    expected = outside((images / 255 - mean) / deviation)
    checks.assert_close(inside(images), expected, 1e-4)
    other = tiny(image_mean=(0, 0, 0), image_std=(1, 1, 1))
    checks.assert_close(other(images), outside(images), 1e-6)
    checks.assert_far(other(images), inside(images))


def tables(model):
    return {
        name.split("/")[0]: np.asarray(weight)
        for name, weight in models.named_weights(model).items()
        if name.endswith("/embeddings")
    }


@pytest.mark.slow
def test_tables_of_a_global_scope_fit_the_images(files):
    whole = tables(build(GLOBAL, weights=files[GLOBAL], input_shape=SQUARE))
    shapes = [table.shape for table in whole.values()]
    assert shapes == [(31, 31, 16, 1), (31, 31, 16, 1), (15, 15, 16, 1)]
    smaller = build(GLOBAL, weights=files[GLOBAL], input_shape=(128, 225, 3))
    for name, table in tables(smaller).items():
        rows, columns = (7, 15) if "5_block2" in name else (15, 29)
        assert table.shape == (rows, columns, 16, 1)
        top, left = (len(whole[name]) - np.array([rows, columns])) // 2
        expected = whole[name][top : top + rows, left : left + columns]
        np.testing.assert_array_equal(table, expected)
    with pytest.warns(UserWarning, match="embeddings are interpolated"):
        larger = build(GLOBAL, weights=files[GLOBAL], input_shape=(288, 128, 3))
    table = tables(larger)["stage4_block2_lambda"]
    assert table.shape == (35, 15, 16, 1)
    np.testing.assert_array_equal(
        table[[0, 17, 34]], whole["stage4_block2_lambda"][[0, 15, 30], 8:23]
    )


def test_interpolation_is_linear_from_end_to_end():
    rows, columns = np.arange(-3, 4), np.arange(-1, 2)
    table = (rows[:, None] + 10 * columns)[..., None].astype(np.float32)
    wide = sizes.resize_table(table, (13, 7))
    expected = np.linspace(-3, 3, 13)[:, None] + np.linspace(-10, 10, 7)
    np.testing.assert_allclose(wide[..., 0], expected, atol=1e-6)
    assert wide.dtype == np.float32
    point = sizes.resize_table(table[3:4, 1:2], (3, 3))
    np.testing.assert_array_equal(point, np.zeros((3, 3, 1)))
    np.testing.assert_array_equal(sizes.resize_table(table, (7, 3)), table)


@pytest.mark.slow
def test_what_is_not_the_file_is_not_kept(hub, files, tmp_path):
    """Of states that do not fit: `test_timm_networks.py`."""
    content = hub.content
    for wrong, message in (
        (content[: len(content) // 2], "file not fully covered"),
        (b"<html>Please log in</html>", "header too large"),
        (files[NAME].read_bytes(), "unexpected"),
    ):
        hub.serve(wrong)
        info = refused(tmp_path, "not the weights of")
        assert info.match(message)
        assert info.match(PUBLISHED["tiny"].address)
        path = tmp_path / "local.safetensors"
        path.write_bytes(wrong)
        with pytest.raises(ValueError, match=message):
            build("tiny", weights=path)
        assert path.exists()
    # The hub mends itself, and the next call finds the weights.
    hub.serve(content)
    assert_fetched()


def chain(error):
    while error is not None:
        yield error
        error = error.__context__


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["absent", "broken", "half"])
def test_a_hub_that_fails(kind, hub, tmp_path):
    whole = len(hub.content)
    hub.files["/tiny"] = {
        "absent": (404, 0, b""),
        "broken": (503, 0, b""),
        "half": (200, whole, hub.content[: whole // 2]),
    }[kind]
    # tf_keras takes half a file for a whole one: its length is checked here.
    errors = OSError, ValueError
    info = refused(tmp_path, "give the path of the file", errors)
    assert PUBLISHED["tiny"].address in str(info.value)
    refusals = [
        cause
        for cause in chain(info.value)
        if isinstance(cause, urllib.error.HTTPError)
    ]
    assert [refusal.closed for refusal in refusals] == [True] * (kind != "half")


@pytest.mark.slow
def test_a_hub_that_is_not_there(hub, tmp_path, monkeypatch):
    address = "http://127.0.0.1:9/model.safetensors"  # Nobody listens there.
    monkeypatch.setitem(PUBLISHED, "tiny", Published("tiny", address))
    info = refused(tmp_path, f"download {address} by other", OSError)
    shown = "".join(traceback.format_exception(info.value))
    assert shown.count("Traceback") == 1


@pytest.mark.slow
def test_the_command_fetches_by_name(hub, files, tmp_path, capsys):
    ours = tmp_path / "ours.npz"
    arguments = ["from-timm", "tiny", str(ours)]
    hub.serve(files[NAME].read_bytes())
    assert main(arguments) == 2
    assert "is not the weights of tiny" in capsys.readouterr().err
    assert cached(tmp_path) == []
    assert not ours.exists()
    hub.serve(hub.content)
    assert main(arguments) == 0
    assert_golden(build("tiny", weights=ours))


@pytest.mark.slow
def test_what_a_killed_download_left_is_not_kept(hub, tmp_path):
    left = tmp_path / "keras" / "models" / "tiny.safetensors"
    left.parent.mkdir()
    left.write_bytes(hub.content[:-1])
    refused(tmp_path, "has been removed")
    assert_fetched()


@pytest.mark.slow
def test_the_hash_that_is_known_is_checked(hub, tmp_path, monkeypatch, capsys):
    """Whatever the hub states, and of what lies in the cache, too."""
    content = hub.content
    known = hashlib.sha256(content).hexdigest()
    published = dataclasses.replace(PUBLISHED["tiny"], sha256=known)
    monkeypatch.setitem(PUBLISHED, "tiny", published)
    changed = bytearray(content)
    changed[-1] ^= 1  # One bit of one weight: names and shapes are right.
    other = hashlib.sha256(changed).hexdigest()
    hub.stated["X-Linked-Etag"] = f'"{other}"'
    hub.serve(bytes(changed))
    refused(tmp_path, f"must be {known}. Received: {other}", OSError)
    hub.serve(content)
    assert_fetched()
    for path in tmp_path.glob("keras/**/*.safetensors"):
        path.write_bytes(changed)
    assert_fetched()
    assert len(hub.requests) == 3
    assert "SHA-256" not in capsys.readouterr().err


@pytest.mark.slow
def test_where_no_hash_is_known_the_hubs_is_checked(
    hub, tmp_path, monkeypatch, capsys
):
    """Of the revision that it names; what was compared is said."""
    content, revision = hub.content, "12ab" * 10
    stated = hashlib.sha256(content).hexdigest()
    address = hub.address("/tiny/resolve/{}/model.safetensors")
    moved = Published("tiny", address.format("main"))
    monkeypatch.setitem(PUBLISHED, "tiny", moved)
    hub.stated |= {"X-Repo-Commit": revision, "X-Linked-Etag": f'"{stated}"'}
    path = f"/tiny/resolve/{revision}/model.safetensors"
    hub.serve(bytes(len(content)), path)
    refused(tmp_path, f"SHA-256 must be {stated}", OSError)
    hub.serve(content, path)
    assert_fetched()
    assert hub.requests == [path, path]
    said = capsys.readouterr().err
    assert f"{stated}, is what the hub states" in said
    assert address.format(revision) in said
    assert "knows none to compare it with" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("LambdaResNet50", {}, "for the networks LambdaResNet26T, .*Received"),
        ("MobileNetV2", {}, "for the networks .*Received: MobileNetV2"),
        ("tiny", {"padding": "same"}, "cannot express .*padding"),
        ("tiny", {"stages": ("C", "LC", "LL")}, "missing in the file"),
        ("tiny", {"input_shape": (64, 64, 1)}, "another shape: stem_conv1"),
        ("tiny", {"weights": "absent.safetensors"},
         "No such file: absent.safetensors"),
        ("tiny", {"weights": "imagnet"},
         "takes None, 'imagenet', 'fashion_mnist', an '.npz'"),
    ],
)  # fmt: skip
def test_networks_without_such_weights(name, arguments, message, hub):
    with pytest.raises(ValueError, match=message):
        build(name, **{"weights": "imagenet", **arguments})


@pytest.mark.slow
def test_files_that_are_not_of_this_way(files):
    with pytest.raises(ValueError, match="cannot express LambdaResNet50"):
        build("LambdaResNet50", weights=files["tiny"])
    with pytest.raises(ValueError, match="give it to the builder"):
        models.load_weights(build("tiny"), files["tiny"])


@pytest.mark.slow
def test_half_floats_are_widened(tmp_path):
    state = timm_golden.state_dict(TINY)
    halves = {
        key: array if array.dtype == np.int64 else array.astype(np.float16)
        for key, array in state.items()
    }
    path = tmp_path / "half.safetensors"
    library = require("safetensors.numpy", extra="pretrained")
    library.save_file(halves, path)
    golden, model = timm_golden.weights(TINY), build("tiny", weights=path)
    for key, weight in models.named_weights(model).items():
        expected = golden[key].astype(np.float16).astype(np.float32)
        np.testing.assert_array_equal(np.asarray(weight), expected)


def clothes():
    """The first test image of every class of Fashion-MNIST, in order."""
    content = tf.io.read_file(str(records.ROOT / "docs/fashion_mnist.png"))
    return tf.stack(tf.split(tf.io.decode_png(content), 10, axis=1))


def test_weights_of_fashion_mnist_know_clothes():
    model = models.LambdaResNetSmall28(weights="fashion_mnist")
    np.testing.assert_array_equal(
        np.argmax(model.predict(clothes(), verbose=0), axis=-1), np.arange(10)
    )
    path = records.RESULTS / "fashion_mnist.npz"
    (record,) = (
        record
        for record in records.latest("fashion_weights")
        if record["case"]["epochs"] == resolve("fashion_mnist").epochs
    )
    assert record["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()


def small(name="LambdaResNetSmall28", **arguments):
    shape = 32, 32, 1
    return build(name, weights="fashion_mnist", input_shape=shape, **arguments)


def test_weights_of_fashion_mnist_begin_another_task():
    expected = models.named_weights(small(dropout_rate=0.5))
    for model in (small(classes=3), small(endpoints=("c2", "c3"))):
        for key, weight in models.named_weights(model).items():
            if not key.startswith("predictions/"):
                np.testing.assert_array_equal(weight, expected[key], key)


@pytest.mark.parametrize(
    ("name", "changes", "received"),
    [
        ("LambdaResNetSmall", {}, "LambdaResNetSmall"),
        ("LambdaMobileNetV2", {}, "LambdaMobileNetV2"),
        (
            "LambdaResNetSmall28",
            {"scope": 5, "strides": (2, 1, 2)},
            "LambdaResNetSmall28, with other strides, scope",
        ),
    ],
)
def test_weights_of_fashion_mnist_are_of_one_network(name, changes, received):
    message = f"are those of LambdaResNetSmall28 as it is. Received: {received}"
    with pytest.raises(ValueError, match=re.escape(f"{message}.")):
        small(name, **changes)


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
