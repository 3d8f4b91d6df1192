"""Files of the safetensors format, with NumPy alone.

    8 bytes      length of the header, little-endian
    header       JSON: name -> dtype, shape, first and last byte of the data;
                 `__metadata__` -> texts
    data         the arrays, little-endian, without gaps

The format: https://github.com/huggingface/safetensors.
"""

import json
import math
import os
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from lambdanet_tf.files import write_whole

_MAX_HEADER = 100_000_000  # bytes, as in the reference implementation
_METADATA = "__metadata__"
_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8"}


def read_safetensors(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Reads all arrays of a file.

    Args:
        path: of the file. Anything `tf.io.gfile` reads.

    Returns:
        dict from name to array, in the order of the header. BF16, which NumPy
        lacks, becomes float32 of the same values.

    Raises:
        ValueError: if the file is damaged or holds another dtype than F32,
            F16, BF16 and I64.
    """
    path = os.fspath(path)
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read()
    try:
        header, data = _split(content)
        _check_layout(header, len(data))
        return {name: _array(data, entry) for name, entry in header.items()}
    except ValueError as error:
        raise ValueError(
            f"{path} is no safetensors file, or a damaged one: {error}."
        ) from error


def write_safetensors(
    path: str | os.PathLike, arrays: Mapping[str, np.ndarray]
) -> None:
    """Writes float32 and int64 arrays, whole or not at all.

    Args:
        path: of the file. Anything `tf.io.gfile` writes.
        arrays: by name.

    Raises:
        ValueError: if an array has another dtype.
    """
    header, chunks, begin = {_METADATA: {"format": "pt"}}, [], 0
    names = {"float32": "F32", "int64": "I64"}
    for name, array in arrays.items():
        if array.dtype.name not in names:
            raise ValueError(
                f"`arrays` must be float32 or int64. Received: {name} of "
                f"{array.dtype}."
            )
        dtype = names[array.dtype.name]
        chunks.append(array.astype(_DTYPES[dtype]).tobytes())
        end = begin + len(chunks[-1])
        header[name] = {
            "dtype": dtype,
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # The data begin at a multiple of 8.
    length = len(text).to_bytes(8, "little")
    write_whole(os.fspath(path), length + text + b"".join(chunks))


def _split(content):
    """The header as a dictionary without metadata, and the bytes behind it."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(len(content) - 8, _MAX_HEADER):
        raise ValueError(
            f"its {len(content)} bytes cannot hold a header of {length}"
        )
    try:
        header = json.loads(
            content[8 : 8 + length].decode(), object_pairs_hook=_unique
        )
    except RecursionError as error:
        raise ValueError("its header is nested too deeply") from error
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")
    header.pop(_METADATA, None)
    return header, memoryview(content)[8 + length :]


def _unique(pairs):
    names = [name for name, _ in pairs]
    if len(set(names)) < len(names):
        raise ValueError("its header has a name twice")
    return dict(pairs)


def _check_layout(header, size):
    """Raises a ValueError unless the entries fill `size` bytes, once each."""
    spans = []
    for name, entry in header.items():
        if not isinstance(entry, dict) or set(entry) != {
            "dtype",
            "shape",
            "data_offsets",
        }:
            raise ValueError(f"the entry of {name} is malformed")
        dtype, shape, offsets = (
            entry[key] for key in ("dtype", "shape", "data_offsets")
        )
        if dtype not in list(_DTYPES):
            raise ValueError(
                f"{name} is {dtype!r}; read are {', '.join(_DTYPES)}"
            )
        if not (_naturals(shape) and _naturals(offsets) and len(offsets) == 2):
            raise ValueError(f"the shape or place of {name} is malformed")
        begin, end = offsets
        if end - begin != math.prod(shape) * np.dtype(_DTYPES[dtype]).itemsize:
            raise ValueError(
                f"{name}, {dtype} of shape {tuple(shape)}, cannot lie in bytes "
                f"{begin} to {end}"
            )
        spans.append((begin, end, name))
    position = 0
    for begin, end, name in sorted(spans):
        if begin != position:
            raise ValueError(
                f"{name} begins at byte {begin} where {position} was expected"
            )
        position = end
    if position != size:
        raise ValueError(
            f"its header describes {position} bytes of data; there are {size}"
        )


def _naturals(numbers):
    return isinstance(numbers, list) and all(
        type(number) is int and number >= 0 for number in numbers
    )


def _array(data, entry):
    begin, end = entry["data_offsets"]
    array = np.frombuffer(data[begin:end], _DTYPES[entry["dtype"]])
    if entry["dtype"] == "BF16":  # The upper half of a float32.
        array = (array.astype("<u4") << 16).view("<f4")
    return array.reshape(entry["shape"])
