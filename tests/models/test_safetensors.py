"""Files of the safetensors format: what is read, and what is refused."""

import json
import sys

import numpy as np
import pytest

from lambdanet_tf import models
from lambdanet_tf.models.pretrained import load_initial
from lambdanet_tf.models.timm.safetensors import read_safetensors
from lambdanet_tf.models.timm.safetensors import write_safetensors
from tests.support import timm_golden
from tests.support.timm_golden import TINY

pytestmark = pytest.mark.once


def entry(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def write(tmp_path, header, data=b"", length=None):
    """A file by hand: a header of any kind, and bytes behind it."""
    path = tmp_path / "file.safetensors"
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    length = len(text) if length is None else length
    path.write_bytes(length.to_bytes(8, "little") + text + data)
    return path


def test_every_dtype(tmp_path):
    header = {
        "__metadata__": {"format": "pt"},
        "float": entry("F32", [2, 1], 0, 8),
        "half": entry("F16", [2], 8, 12),
        "brain": entry("BF16", [2], 12, 16),
        "integer": entry("I64", [], 16, 24),
        "empty": entry("F32", [0, 3], 24, 24),
    }
    data = np.array([1.5, -2.25], "<f4").tobytes()
    data += np.array([0.5, 65504], "<f2").tobytes()
    data += bytes([0xC0, 0x3F, 0x80, 0xFF])  # 1.5 and -infinity
    data += (-(2**40)).to_bytes(8, "little", signed=True)
    arrays = read_safetensors(write(tmp_path, header, data))
    np.testing.assert_array_equal(arrays["float"], [[1.5], [-2.25]])
    np.testing.assert_array_equal(arrays["half"], [0.5, 65504])
    np.testing.assert_array_equal(arrays["brain"], [1.5, -np.inf])
    np.testing.assert_array_equal(arrays["integer"], -(2**40))
    assert arrays["empty"].shape == (0, 3)
    assert {name: array.dtype.name for name, array in arrays.items()} == {
        "float": "float32",
        "half": "float16",
        "brain": "float32",
        "integer": "int64",
        "empty": "float32",
    }


def test_what_is_written_is_read(tmp_path, rng):
    arrays = {
        "b": rng.normal(size=[3, 2, 1]).astype(np.float32),
        "a": np.array(7),
        "strided": rng.normal(size=[4, 5]).astype(np.float32)[::2, ::-1],
    }
    path = tmp_path / "file.safetensors"
    write_safetensors(path, arrays)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    content = path.read_bytes()
    assert int.from_bytes(content[:8], "little") % 8 == 0
    back = read_safetensors(path)
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == array.dtype
    with pytest.raises(ValueError, match="a of float16"):
        write_safetensors(path, {"a": np.zeros(3, np.float16)})
    assert path.read_bytes() == content


ONE = {"a": entry("F32", [2], 0, 8)}


@pytest.mark.parametrize(
    ("header", "data"),
    [
        (ONE, bytes(7)),
        (ONE, bytes(9)),
        ({"a": entry("F32", [2], 4, 12)}, bytes(12)),
        ({**ONE, "b": entry("F32", [2], 4, 12)}, bytes(12)),
        ({**ONE, "b": entry("F32", [2], 0, 8)}, bytes(8)),
        ({"a": entry("F32", [3], 0, 8)}, bytes(8)),
        ({"a": entry("F32", [2], 8, 0)}, bytes(8)),
        ({"a": entry("F32", [-2], 0, 8)}, bytes(8)),
        ({"a": entry("F32", [2**70], 0, 8)}, bytes(8)),
        ({"a": entry("F64", [1], 0, 8)}, bytes(8)),
        ({"a": entry("F8_E4M3", [8], 0, 8)}, bytes(8)),
        ({"a": {"dtype": "F32"}}, b""),
        ([ONE], bytes(8)),
        (b"{", b""),
        (b"\xff\xfe", b""),
        (b"[" * 100_000, b""),
    ],
)
def test_damaged_files(tmp_path, header, data):
    path = write(tmp_path, header, data)
    with pytest.raises(ValueError, match="safetensors|must be F32") as info:
        read_safetensors(path)
    assert str(path) in str(info.value)
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    ("size", "length", "message"),
    [
        *((size, None, "is no safetensors file") for size in (0, 7, 8, 20)),
        *((None, length, "header") for length in (10**6, 2**63, 2**64 - 1)),
    ],
)
def test_files_that_are_cut_and_headers_that_are_too_long(
    tmp_path, size, length, message
):
    path = write(tmp_path, ONE, bytes(8), length=length)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match=message):
        read_safetensors(path)


@pytest.mark.slow
def test_a_damaged_file_changes_no_weight(tmp_path):
    """Whole or nothing: cut anywhere, or with a wrong header."""
    network = models.ResNet(TINY, input_shape=(32, 32, 3), classes=7)
    path = tmp_path / "weights.safetensors"
    write_safetensors(path, timm_golden.state_dict(TINY, classes=7))
    whole = path.read_bytes()
    before = [np.asarray(weight) for weight in network.weights]
    for content in (
        whole[: len(whole) // 2],
        whole[:-1],
        whole + b" ",
        whole.replace(b'"F32"', b'"F16"', 1),
        whole.replace(b"head.fc.bias", b"head.fc.bIas", 1),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match="weights") as info:
            load_initial(network, TINY, path)
        assert "\n" not in str(info.value)
        for weight, array in zip(network.weights, before, strict=True):
            np.testing.assert_array_equal(np.asarray(weight), array)
    path.write_bytes(whole)
    load_initial(network, TINY, path)
    head = network.get_layer("predictions").bias
    assert np.any(np.asarray(head))


@pytest.mark.slow
def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    remedy = r'pip install "lambdanet-tf\[pretrained\]"'
    with pytest.raises(ImportError, match=remedy):
        models.LambdaResNet26T(weights="imagenet")  # Nothing is fetched.
    with pytest.raises(ImportError, match=remedy):
        read_safetensors(tmp_path / "any.safetensors")
