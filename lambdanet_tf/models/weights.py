"""Weights of models by name, and files that any NumPy can read.

A file is an `.npz` archive with one array per weight, under the names of
`named_weights`. Kernels have Keras' layout, (height, width, inputs, outputs).
Because NumPy does not support bfloat16, such weights become float32. The entry
`format` holds JSON: the version of the format and the name of the model.
"""

import io
import json
import os
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import users_input
from lambdanet_tf.files import write_whole
from lambdanet_tf.models.graph import layers_in
from lambdanet_tf.models.tables import fit_tables
from lambdanet_tf.models.tables import resize_table
from lambdanet_tf.models.weight_names import named_weights

FORMAT = 1
HEAD = "predictions"  # The layer that depends on the number of classes.
RUN_WEIGHTS = "best.weights.npz"  # The file of a run folder.


def set_weights(
    model: tf.keras.Model,
    arrays: dict[str, np.ndarray],
    origin: str,
    skip: str | Sequence[str] = (),
    skip_mismatch: bool = False,
) -> tuple[str, ...]:
    """Sets all weights of a model from arrays by name, or raises and sets none.

    Args:
        model: any Keras model that is built.
        arrays: arrays by the names of `named_weights`.
        origin: the origin of the arrays, for errors.
        skip: as in `load_weights`, and so is the return value.
        skip_mismatch: as in `load_weights`.

    Raises:
        ValueError: if a weight is missing, unexpected or of another shape.
    """
    ours = named_weights(model)
    skip = (skip,) if isinstance(skip, str) else tuple(skip)
    if not any(key.startswith(f"{HEAD}/") for key in ours):
        skip = (*skip, f"{HEAD}/")
    shapes = {
        key: tuple(weight.shape)
        for key, weight in ours.items()
        if not key.startswith(skip)
    }
    given = {
        k: np.shape(x) for k, x in arrays.items() if not k.startswith(skip)
    }
    left = []
    if skip_mismatch:
        both = [key for key in shapes if key in given]
        left = [key for key in both if shapes[key] != given[key]]
        for key in left:
            del shapes[key], given[key]
    if shapes != given:
        raise ValueError(
            f"`weights` must fit the model. {origin} does not fit "
            f"{model.name!r}. Weights: {_differences(shapes, given)}"
        )
    for key in shapes:
        ours[key].assign(arrays[key])
    finalize_states(model)
    return tuple(left)


def _differences(ours, theirs):
    """Describes how two dictionaries of shapes differ."""
    missing = [key for key in ours if key not in theirs]
    unexpected = [key for key in theirs if key not in ours]
    misshapen = [k for k in ours if k in theirs and ours[k] != theirs[k]]
    found = {
        "missing in the file": missing,
        "unexpected in the file": unexpected,
        "of another shape": [
            f"{key} is {theirs[key]} in the file and {ours[key]} in the model"
            for key in misshapen
        ],
    }
    text = " ".join(
        f"{len(names)} {what}: {', '.join(names[:3])}"
        f"{f' and {len(names) - 3} more' if len(names) > 3 else ''}."
        for what, names in found.items()
        if names
    )
    names = missing + unexpected + misshapen
    if all(name.startswith(f"{HEAD}/") for name in names):
        text += (
            " Only the classifier differs. To load all other weights, call "
            "`load_weights(model, path, skip_mismatch=True)`."
        )
    return text


def finalize_states(model: tf.keras.layers.Layer) -> None:
    """Updates what `Normalization` layers derive from their weights."""
    for layer in layers_in(model):
        if hasattr(layer, "finalize_state") and layer.weights:
            layer.finalize_state()


def copy_weights(
    layer: tf.keras.layers.Layer, copy: tf.keras.layers.Layer
) -> None:
    """Copies weights to a built copy of a layer, and what is frozen."""
    # First, because in Keras 2 the order of the weights depends on it.
    for own, new in zip(layers_in(layer), layers_in(copy), strict=True):
        if new.trainable != own.trainable:
            new.trainable = own.trainable
    weights = zip(layer.get_weights(), copy.weights, strict=True)
    # A table may be of a larger map than the one that the copy was built for.
    copy.set_weights([resize_table(x, new.shape) for x, new in weights])
    finalize_states(copy)


def save_weights(model: tf.keras.Model, path: str | os.PathLike) -> None:
    """Writes all weights of a model, by name.

    Args:
        model: a built model.
        path: path of the `.npz` file, anywhere `tf.io.gfile` can write.

    Raises:
        ValueError: if the path does not end in `.npz`, if the model is not
            built, or if two weights would have the same name.
    """
    path = os.fspath(path)
    if not path.endswith(".npz"):
        raise ValueError(f"`path` must end in '.npz'. Received: {path}.")
    write_whole(path, weights_as_bytes(model))


def weights_as_bytes(model: tf.keras.Model) -> bytes:
    """Returns the content of the file that `save_weights` writes."""
    _check_built(model)
    arrays = {}
    for key, weight in named_weights(model).items():
        array = np.asarray(weight)
        if array.dtype == tf.bfloat16.as_numpy_dtype:
            array = array.astype(np.float32)
        arrays[key] = array
    header = json.dumps({"version": FORMAT, "model": model.name})
    buffer = io.BytesIO()
    # Pyright mistakes an array for `allow_pickle`.
    np.savez(buffer, format=np.array(header), **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


@users_input()
def load_weights(
    model: tf.keras.Model,
    path: str | os.PathLike,
    skip: str | Sequence[str] = (),
    skip_mismatch: bool = False,
) -> tuple[str, ...]:
    """Sets all weights of a model from a file, or raises and sets none.

    If the model has no classifier, that of the file is ignored. Tables of a
    global scope are fitted to the model: cropped for a smaller map, which is
    exact, and interpolated with a warning for a larger one.

    Args:
        model: a built model.
        path: an `.npz` file that `save_weights` wrote, or the folder of a run,
            which contains one.
        skip: one or more prefixes of names, such as `"stage5"`: weights to
            ignore, in the model and in the file.
        skip_mismatch: whether to ignore weights that have another shape in the
            file, such as a classifier for other classes.

    Returns:
        The names of the weights that were ignored because of their shape.

    Raises:
        ValueError: if the model is not built, or if weights are missing,
            unexpected or of another shape. No weight changes then.
    """
    arrays, origin = read_weights(path)
    _check_built(model)
    arrays = fit_tables(model, arrays)
    return set_weights(model, arrays, origin, skip, skip_mismatch)


def _check_built(model):
    """Raises a ValueError unless a model is built."""
    if not (isinstance(model, tf.keras.Model) and model.built):
        raise ValueError(
            "`model` must be a built `tf.keras` model: call it once first. "
            f"Received: {model!r}."
        )


def read_weights(
    path: str | os.PathLike,
) -> tuple[dict[str, np.ndarray], str]:
    """Reads the arrays of a file by name, and describes their origin."""
    path = os.fspath(path)
    if tf.io.gfile.isdir(path):
        path = os.path.join(path, RUN_WEIGHTS)
    if not tf.io.gfile.exists(path):
        raise ValueError(
            f"No such file: {path}. Weights are an '.npz' file from "
            "`lambdanet_tf.models.save_weights` or a run folder with "
            f"{RUN_WEIGHTS}. The `weights` of a network can also be None, "
            "'imagenet', 'fashion_mnist' or a '.safetensors' file of timm."
        )
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content = io.BytesIO(file.read())
        with np.load(content, allow_pickle=False) as archive:
            arrays = dict(archive)
        header = json.loads(str(arrays.pop("format")))
        version, origin = header["version"], header["model"]
    except Exception:  # NumPy's advice, to allow pickles, does not help.
        raise ValueError(
            "`weights` must be a file from `lambdanet_tf.models.save_weights`. "
            f"{path} is not, or is damaged. To read a file of Keras, use "
            "Keras' `model.load_weights`."
        ) from None
    if version != FORMAT:
        raise ValueError(
            f"`weights` must be in version {FORMAT} of the format. {path} has "
            f"version {version}: load it with the release that wrote it."
        )
    return arrays, f"{path}, saved from {origin!r},"
