"""Files of the safetensors format: what is read, and what is refused."""

import json

import numpy as np
import pytest

from lambdanet_tf.models.safetensors import read_safetensors
from lambdanet_tf.models.safetensors import write_safetensors

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
    assert list(arrays) == ["float", "half", "brain", "integer", "empty"]
    np.testing.assert_array_equal(arrays["float"], [[1.5], [-2.25]])
    np.testing.assert_array_equal(arrays["half"], [0.5, 65504])
    np.testing.assert_array_equal(arrays["brain"], [1.5, -np.inf])
    np.testing.assert_array_equal(arrays["integer"], -(2**40))
    assert arrays["empty"].shape == (0, 3)
    dtypes = [array.dtype.name for array in arrays.values()]
    assert dtypes == ["float32", "float16", "float32", "int64", "float32"]


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
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
        assert back[name].dtype == array.dtype
    with pytest.raises(ValueError, match="a of float16"):
        write_safetensors(path, {"a": np.zeros(3, np.float16)})
    assert path.read_bytes() == content


ONE = {"a": entry("F32", [2], 0, 8)}


@pytest.mark.parametrize(
    ("header", "data", "message"),
    [
        (ONE, bytes(7), "describes 8 bytes of data; there are 7"),
        (ONE, bytes(9), "describes 8 bytes of data; there are 9"),
        ({"a": entry("F32", [2], 4, 12)}, bytes(12), "byte 4 where 0 was"),
        (
            {**ONE, "b": entry("F32", [2], 4, 12)},
            bytes(12),
            "b begins at byte 4 where 8 was expected",
        ),
        (
            {**ONE, "b": entry("F32", [2], 0, 8)},
            bytes(8),
            "b begins at byte 0 where 8 was expected",
        ),
        ({"a": entry("F32", [3], 0, 8)}, bytes(8), r"F32 of shape \(3,\)"),
        ({"a": entry("F32", [2], 8, 0)}, bytes(8), "bytes 8 to 0"),
        ({"a": entry("F32", [-2], 0, 8)}, bytes(8), "shape or place of a"),
        ({"a": entry("F32", [2.0], 0, 8)}, bytes(8), "shape or place of a"),
        ({"a": entry("F32", [True, 2], 0, 8)}, bytes(8), "shape or place"),
        ({"a": entry("F32", 2, 0, 8)}, bytes(8), "shape or place of a"),
        ({"a": entry("F32", [2**70], 0, 8)}, bytes(8), "cannot lie in bytes"),
        ({"a": entry("F64", [1], 0, 8)}, bytes(8), "a is 'F64'; read are F32"),
        ({"a": entry([], [1], 0, 8)}, bytes(8), r"a is \[\]; read are F32"),
        ({"a": {"dtype": "F32"}}, b"", "entry of a is malformed"),
        ({"a": 1}, b"", "entry of a is malformed"),
        ([ONE], bytes(8), "header is no JSON object"),
        (b'{"a": 1, "a": 1}', b"", "a name twice"),
        (b"{", b"", "Expecting"),
        (b"\xff\xfe", b"", "can't decode byte"),
        (b"[" * 100_000, b"", "nested too deeply"),
    ],
)
def test_damaged_files(tmp_path, header, data, message):
    path = write(tmp_path, header, data)
    with pytest.raises(ValueError, match="is no safetensors file") as info:
        read_safetensors(path)
    assert info.match(message)
    assert str(path) in str(info.value)


@pytest.mark.parametrize("length", [10**6, 2**63, 2**64 - 1])
def test_headers_that_are_too_long(tmp_path, length):
    path = write(tmp_path, ONE, bytes(8), length=length)
    with pytest.raises(ValueError, match=f"a header of {length}"):
        read_safetensors(path)


@pytest.mark.parametrize("size", [0, 7, 8, 20])
def test_the_beginning_of_a_file(tmp_path, size):
    path = write(tmp_path, ONE, bytes(8))
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(ValueError, match="is no safetensors file"):
        read_safetensors(path)


def test_files_of_the_reference_implementation(tmp_path, rng):
    reference = pytest.importorskip("safetensors.numpy", exc_type=ImportError)
    arrays = {
        "a": rng.normal(size=[3, 2]).astype(np.float32),
        "b": np.array(7),
        "c": rng.normal(size=[5]).astype(np.float16),
    }
    path = tmp_path / "file.safetensors"
    reference.save_file(arrays, path)
    ours = read_safetensors(path)
    del arrays["c"]
    write_safetensors(path, arrays)
    theirs = reference.load_file(path)
    assert set(theirs) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(ours[name], array)
        np.testing.assert_array_equal(theirs[name], array)
        assert theirs[name].dtype == array.dtype
