"""Weights by name: files that both Kerases and any NumPy can read.

A file is an `.npz` archive of arrays, one per weight, keyed
`layer/[sublayer/...]weight`: the name of the layer in the model, the names of
the attributes that lead to the weight's owner, and the weight's own name.

    stage4_block3_conv1/kernel
    stage4_block3_lambda/query/kernel
    stage4_block3_lambda/query_norm/moving_mean
    stage4_block3_lambda/position_embedding/embeddings
    stage4_embedding/embeddings           (a layer that several layers share)
    predictions/bias

Kernels have Keras' layout, (height, width, inputs, outputs). Nothing depends
on the order of layers, which differs between the Kerases. The entry `format`
holds JSON: the version of the format and the name of the model.
"""

import io
import json
import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import users_input
from lambdanet_tf.files import write_whole

FORMAT = 1
HEAD = "predictions"  # The layer that depends on the number of classes.
RUN_WEIGHTS = "best.weights.npz"  # The file of a run folder.

_PYTORCH = (
    "it is a pickle of PyTorch, which can run any code and is not read here. "
    "Save the state dict by `safetensors.torch.save_file(state, "
    "'model.safetensors')` and give that, if it is of a network of timm."
)
_WHOLE_MODEL = (
    "it holds a whole model. Load that by `tf.keras.models.load_model`, after "
    "`import lambdanet_tf`, and save its weights by "
    "`lambdanet_tf.models.save_weights`."
)
_CHECKPOINT = (
    "it is part of a checkpoint of TensorFlow. Restore that by "
    "`tf.train.Checkpoint` into the model that it was saved from, and save its "
    "weights by `lambdanet_tf.models.save_weights`."
)
_SERVED = (
    "it is a converted model, whose weights have lost their names. Give the "
    "weights that it was converted from."
)
# What files of other formats are, by their endings, and what to do.
_FOREIGN = {
    ".weights.h5": "it is a file of Keras: load it into the model that it was "
    "saved from with Keras' own `model.load_weights`, and save that with "
    "`lambdanet_tf.models.save_weights`, which reads everywhere.",
    ".safetensors": "it is a file of another project: give it to the builder "
    "of its network, as in `LambdaResNet26T(weights=path)`, or convert it by "
    "`python -m lambdanet_tf.convert`.",
    **dict.fromkeys((".pth.tar", ".pth", ".pt", ".bin"), _PYTORCH),
    **dict.fromkeys((".keras", ".h5", ".hdf5", ".pb"), _WHOLE_MODEL),
    **dict.fromkeys((".ckpt", ".index", ".data-00000-of-00001"), _CHECKPOINT),
    **dict.fromkeys((".onnx", ".tflite"), _SERVED),
    ".npy": "it is one array. Weights are an '.npz' archive that "
    "`lambdanet_tf.models.save_weights` wrote.",
    **dict.fromkeys(
        (".pkl", ".pickle"),
        "it is a pickle, which can run any code and is not read here. Weights "
        "are an '.npz' archive that `lambdanet_tf.models.save_weights` wrote.",
    ),
}


def save_weights(model: tf.keras.Model, path: str | os.PathLike) -> None:
    """Writes all weights of a model, by name.

    Args:
        model: built.
        path: of the file; ends in `.npz`. Anything `tf.io.gfile` writes.

    Raises:
        ValueError: if the path ends otherwise, or two weights would have the
            same name.
    """
    path = os.fspath(path)
    if not path.endswith(".npz"):
        raise ValueError(f"`path` must end in '.npz'. Received: {path}.")
    write_whole(path, weights_as_bytes(model))


def weights_as_bytes(model: tf.keras.Model) -> bytes:
    """Returns what `save_weights` writes."""
    arrays = {k: np.asarray(w) for k, w in named_weights(model).items()}
    return arrays_as_bytes(arrays, model.name)


def arrays_as_bytes(arrays: dict[str, np.ndarray], name: str) -> bytes:
    """Returns the file of a model's weights; `name` is the model's."""
    header = json.dumps({"version": FORMAT, "model": name})
    buffer = io.BytesIO()
    np.savez(buffer, format=np.array(header), **arrays)
    return buffer.getvalue()


@users_input()
def load_weights(
    model: tf.keras.Model,
    path: str | os.PathLike,
    skip: str | Sequence[str] = (),
    skip_mismatch: bool = False,
) -> tuple[str, ...]:
    """Sets all weights of a model from a file, or none and raises.

    A model without a classifier leaves the file's classifier alone.

    Args:
        model: built.
        path: of an `.npz` file that `save_weights` wrote, or the folder of a
            run, which holds one.
        skip: beginnings of names, such as `"stage5"`: weights to leave alone,
            in the model and in the file.
        skip_mismatch: whether to leave alone what has another shape in the
            file, such as a classifier of other classes.

    Returns:
        The names of the weights that were left alone for their shape.

    Raises:
        ValueError: if weights are missing, unexpected or of another shape; no
            weight has then been changed.
    """
    skip = (skip,) if isinstance(skip, str) else tuple(skip)
    saved, origin = read_weights(path)
    return set_weights(model, saved, origin, skip, skip_mismatch)


def read_weights(
    path: str | os.PathLike,
) -> tuple[dict[str, np.ndarray], str]:
    """Reads the arrays of a file that `save_weights` wrote.

    Args:
        path: of the file, or the folder of a run, which holds one.

    Returns:
        dict of arrays by name, and where they are from, for messages.

    Raises:
        ValueError: if it is no such file.
    """
    path = _file(as_path(path))
    saved, model_name = _read(path)
    return saved, f"{path}, saved from {model_name!r},"


def set_weights(
    model: tf.keras.Model,
    arrays: dict[str, np.ndarray],
    origin: str,
    skip: Sequence[str] = (),
    skip_mismatch: bool = False,
) -> tuple[str, ...]:
    """Sets all weights of a model from arrays by name, or none and raises.

    Args:
        model: as for `load_weights`, and so are the rest.
        arrays: by the names of `named_weights`.
        origin: where they are from, for messages.
        skip: see there.
        skip_mismatch: see there.

    Returns:
        As `load_weights`.

    Raises:
        ValueError: as `load_weights`.
    """
    ours = named_weights(model)
    skip = tuple(skip)
    if not any(key.startswith(f"{HEAD}/") for key in ours):
        skip = (*skip, f"{HEAD}/")
    ours = {k: w for k, w in ours.items() if not k.startswith(skip)}
    arrays = {k: w for k, w in arrays.items() if not k.startswith(skip)}
    shapes = {k: tuple(w.shape) for k, w in ours.items()}
    mismatched = ()
    if skip_mismatch:
        mismatched = tuple(
            key
            for key, shape in shapes.items()
            if key in arrays and arrays[key].shape != shape
        )
        for key in mismatched:
            del shapes[key], arrays[key]
    check_fit(shapes, arrays, model.name, origin)
    for key in shapes:
        ours[key].assign(arrays[key])
    return mismatched


def as_path(weights: Any) -> str:
    """Returns a path as a text, or raises a ValueError."""
    if not isinstance(weights, str | os.PathLike):
        raise ValueError(
            "`weights` must be None, 'imagenet' or a path. Received: "
            f"{weights!r}."
        )
    return os.fspath(weights)


def _file(path):
    """The weights file that a path names; it may be a run folder."""
    folder = tf.io.gfile.isdir(path)
    for ending, advice in _FOREIGN.items():
        if path.lower().endswith(ending) and not folder:
            raise ValueError(f"`weights` cannot be {path}: {advice}")
    file = os.path.join(path, RUN_WEIGHTS) if folder else path
    if not tf.io.gfile.exists(file):
        raise ValueError(
            f"No such file: {file}. `weights` takes None, 'imagenet', an "
            "'.npz' file that `lambdanet_tf.models.save_weights` wrote, the "
            f"folder of a run, which holds {RUN_WEIGHTS}, or a '.safetensors' "
            "file of timm."
        )
    return file


def named_weights(model: tf.keras.Model) -> dict[str, Any]:
    """Returns the weights of a model by the names that files use.

    Args:
        model: a Keras model, built.

    Returns:
        dict from name to variable. A weight that several layers share is there
        once, under the name of the layer that owns it.

    Raises:
        ValueError: if two weights would have the same name.
    """
    paths = {}  # id of a layer with weights of its own: (layer, its paths)
    _walk(model, "", paths)
    named = {}
    for layer, names in paths.values():
        prefix = names[0] if len(names) == 1 else f"{layer.name}/"
        for weight in _own_weights(layer):
            key = prefix + _weight_name(weight)
            if key in named:
                raise ValueError(
                    f"Two weights of {model.name!r} are called {key}. Give "
                    "every layer a name of its own, and keep sublayers as "
                    "attributes, not in lists."
                )
            named[key] = weight
    return named


def _walk(layer, prefix, paths):
    """Collects a layer and its sublayers, with all the ways to each."""
    _, ways = paths.setdefault(id(layer), (layer, []))
    if prefix not in ways:
        ways.append(prefix)
    for name, sublayer in _sublayers(layer):
        _walk(sublayer, f"{prefix}{name}/", paths)


def _sublayers(layer):
    """Name and layer of every direct sublayer that has weights."""
    if isinstance(layer, tf.keras.Model):
        pairs = [(sublayer.name, sublayer) for sublayer in layer.layers]
    else:
        pairs = [
            (name, value)
            for name, value in vars(layer).items()
            if isinstance(value, tf.keras.layers.Layer)
            and not name.startswith("_")
        ]
    return [(name, sublayer) for name, sublayer in pairs if sublayer.weights]


def _own_weights(layer):
    """The weights of a layer that none of its sublayers has."""
    theirs = {
        id(weight)
        for _, sublayer in _sublayers(layer)
        for weight in sublayer.weights
    }
    return [weight for weight in layer.weights if id(weight) not in theirs]


def _weight_name(weight):
    """`kernel` of `scope/kernel:0`, as a weight is called in tf_keras."""
    name = weight.name.split("/")[-1].split(":")[0]
    return name.removeprefix("depthwise_")  # tf_keras' name of that kernel.


def _read(path):
    """The arrays of a file by name, and the name of the model it is from."""
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content = io.BytesIO(file.read())
        with np.load(content, allow_pickle=False) as archive:
            arrays = dict(archive)
        header = json.loads(str(arrays.pop("format")))
        version, origin = header["version"], header["model"]
    except Exception:  # Advice of NumPy's, such as to allow pickles, is none.
        raise ValueError(
            "`weights` must be a file that `lambdanet_tf.models.save_weights` "
            f"wrote. {path} is none, or a damaged one."
        ) from None
    if version != FORMAT:
        raise ValueError(
            f"`weights` must be in version {FORMAT} of the format. {path} is "
            f"in version {version}: load it with the release that wrote it."
        )
    return arrays, origin


def check_fit(
    shapes: Mapping[str, Sequence[int | None] | None],
    arrays: Mapping[str, np.ndarray],
    name: str,
    origin: str,
) -> None:
    """Raises a ValueError that says how arrays do not fit a model.

    Args:
        shapes: of the weights, by name; None where any size or shape fits.
        arrays: by name.
        name: of the model, for messages.
        origin: where the arrays are from, likewise.
    """
    missing = [key for key in shapes if key not in arrays]
    unexpected = [key for key in arrays if key not in shapes]
    misshapen = [
        f"{key} is {arrays[key].shape} in the file and {tuple(shape)} in the "
        "model"
        for key, shape in shapes.items()
        if key in arrays and not _fits(arrays[key].shape, shape)
    ]
    not_numbers = [
        key for key in arrays if not np.issubdtype(arrays[key].dtype, np.number)
    ]
    if not (missing or unexpected or misshapen or not_numbers):
        return
    parts = [
        f"{len(found)} {what}: {_some(found)}."
        for what, found in (
            ("missing in the file", missing),
            ("unexpected in the file", unexpected),
            ("of another shape", misshapen),
            ("that are no numbers", not_numbers),
        )
        if found
    ]
    head_only = not not_numbers and all(
        key.startswith(f"{HEAD}/") for key in missing + unexpected + misshapen
    )
    if head_only:
        parts.append(
            "Only the classifier differs: to keep the rest, call "
            "`load_weights(model, path, skip_mismatch=True)`."
        )
    raise ValueError(
        f"`weights` must fit the model. {origin} does not fit {name!r}. "
        f"Weights {' '.join(parts)}"
    )


def _fits(shape, expected):
    """Whether a shape is the expected one, None for any size or any shape."""
    return expected is None or (
        len(shape) == len(expected)
        and all(b in (None, a) for a, b in zip(shape, expected, strict=True))
    )


def _some(names, number=3):
    """The first few names, and how many more there are."""
    rest = f" and {len(names) - number} more" if len(names) > number else ""
    return ", ".join(names[:number]) + rest
