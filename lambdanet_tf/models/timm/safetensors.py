"""Files of the safetensors format, by its library: the extra `pretrained`."""

import os
import types
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from lambdanet_tf.environment import require
from lambdanet_tf.files import write_whole

_READ = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8"}
_WRITTEN = ("float32", "int64")


def library(module: str = "safetensors") -> types.ModuleType:
    """Imports the library, or raises an ImportError that names the extra."""
    return require(module, extra="pretrained")


def read_safetensors(path: str | os.PathLike) -> dict[str, np.ndarray]:
    """Reads all arrays of a file.

    Args:
        path: of the file. Anything `tf.io.gfile` reads.

    Returns:
        dict from name to array. BF16, which NumPy lacks, becomes float32 of
        the same values.

    Raises:
        ImportError: if the library `safetensors` is not installed.
        ValueError: if the file is damaged or holds another dtype than F32,
            F16, BF16 and I64.
    """
    safetensors = library()
    path = os.fspath(path)
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read()
    try:
        entries = dict(safetensors.deserialize(content))
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{path} is no safetensors file, or a damaged one: {error}."
        ) from error
    return {k: _array(path, k, entry) for k, entry in entries.items()}


def _array(path, name, entry):
    if entry["dtype"] not in _READ:
        raise ValueError(
            f"`weights` must be {', '.join(_READ)}. {path} has {name} of "
            f"{entry['dtype']}."
        )
    array = np.frombuffer(entry["data"], _READ[entry["dtype"]])
    if entry["dtype"] == "BF16":  # The upper half of a float32.
        array = (array.astype("<u4") << 16).view("<f4")
    return array.reshape(entry["shape"])


def write_safetensors(
    path: str | os.PathLike, arrays: Mapping[str, np.ndarray]
) -> None:
    """Writes float32 and int64 arrays, whole or not at all.

    Args:
        path: of the file. Anything `tf.io.gfile` writes.
        arrays: by name.

    Raises:
        ImportError: if the library `safetensors` is not installed.
        ValueError: if an array has another dtype.
    """
    save = library("safetensors.numpy").save
    for name, array in arrays.items():
        if array.dtype.name not in _WRITTEN:
            raise ValueError(
                f"`arrays` must be float32 or int64. Received: {name} of "
                f"{array.dtype}."
            )
    # The library writes the memory of an array as it lies there.
    arrays = {k: np.array(a, order="C") for k, a in arrays.items()}
    content = save(arrays, metadata={"format": "pt"})
    write_whole(os.fspath(path), content)
