"""Files in the safetensors format, read by its library."""

import types

import numpy as np
import tensorflow as tf

from lambdanet_tf.environment import require

_DTYPES = {"F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8"}


def library() -> types.ModuleType:
    """Imports the library, or raises an ImportError that names the extra."""
    return require("safetensors", extra="pretrained")


def read_safetensors(path: str) -> dict[str, np.ndarray]:
    """Reads all arrays of a file; BF16, which NumPy lacks, becomes float32."""
    safetensors = library()
    with tf.io.gfile.GFile(path, "rb") as file:
        content = file.read()
    try:
        entries = dict(safetensors.deserialize(content))
    except safetensors.SafetensorError as error:
        raise ValueError(
            f"{path} is damaged, or not a safetensors file: {error}."
        ) from error
    return {name: _array(path, name, x) for name, x in entries.items()}


def _array(path, name, entry):
    if entry["dtype"] not in _DTYPES:
        raise ValueError(
            f"`weights` must have the dtypes {', '.join(_DTYPES)}. In {path}, "
            f"{name} is {entry['dtype']}."
        )
    array = np.frombuffer(entry["data"], _DTYPES[entry["dtype"]])
    if entry["dtype"] == "BF16":  # The upper half of a float32.
        array = (array.astype("<u4") << 16).view("<f4")
    return array.reshape(entry["shape"])
