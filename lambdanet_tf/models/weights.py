"""Files of weights that both Kerases and any NumPy can read.

A file is an `.npz` archive of arrays, one per weight, by the names of
`named_weights`. Kernels have Keras' layout, (height, width, inputs, outputs).
Weights in bfloat16, which NumPy does not know, are float32 there.
The entry `format` holds JSON: the version of the format and the name of the
model.
"""

import io
import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import users_input
from lambdanet_tf.files import write_whole
from lambdanet_tf.models.sizes import fit_tables
from lambdanet_tf.models.weight_names import check_built
from lambdanet_tf.models.weight_names import named_weights
from lambdanet_tf.models.weight_names import set_weights

FORMAT = 1
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
        ValueError: if the path ends otherwise, the model is not built, or two
            weights would have the same name.

    Examples:
        >>> model = models.LambdaResNetSmall(classes=3)
        >>> save_weights(model, "weights.npz")
        >>> load_weights(model, "weights.npz")  # names left alone
        ()
    """
    path = with_ending("path", path, ".npz")
    write_whole(path, weights_as_bytes(model))


def with_ending(name: str, path: str | os.PathLike, ending: str) -> str:
    """Returns a path as a text, or raises a ValueError if it ends otherwise."""
    path = os.fspath(path)
    if not path.endswith(ending):
        raise ValueError(f"`{name}` must end in {ending!r}. Received: {path}.")
    return path


def weights_as_bytes(model: tf.keras.Model) -> bytes:
    """Returns what `save_weights` writes.

    Args:
        model: built.

    Returns:
        The content of an `.npz` file.

    Raises:
        ValueError: if the model is not built, or two weights have the same
            name.

    Examples:
        >>> len(weights_as_bytes(models.LambdaResNetSmall())) > 2_000_000
        True
    """
    check_built(model)
    arrays = {k: np.asarray(w) for k, w in named_weights(model).items()}
    return arrays_as_bytes(arrays, model.name)


def arrays_as_bytes(arrays: dict[str, np.ndarray], name: str) -> bytes:
    """Returns the file of a model's weights; `name` is the model's."""
    arrays = {key: _known_to_numpy(array) for key, array in arrays.items()}
    header = json.dumps({"version": FORMAT, "model": name})
    buffer = io.BytesIO()
    # The checker takes an array for `allow_pickle`, which no weight is called.
    np.savez(buffer, format=np.array(header), **arrays)  # pyright: ignore[reportArgumentType]
    return buffer.getvalue()


def _known_to_numpy(array):
    """An array of a type that files hold: bfloat16 becomes float32, exactly."""
    if array.dtype == "V2":  # bfloat16, of a file written as it was
        array = array.view(tf.bfloat16.as_numpy_dtype)
    is_bfloat16 = array.dtype == tf.bfloat16.as_numpy_dtype
    return array.astype(np.float32) if is_bfloat16 else array


@users_input()
def load_weights(
    model: tf.keras.Model,
    path: str | os.PathLike,
    skip: str | Sequence[str] = (),
    skip_mismatch: bool = False,
) -> tuple[str, ...]:
    """Sets all weights of a model from a file, or none and raises.

    A model without a classifier leaves the file's classifier alone. Tables of
    a global scope are fitted to the sizes of the model: cropped to a smaller
    map, exactly, and interpolated, with a warning, to a larger one.

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
        ValueError: if the model is not built, or weights are missing,
            unexpected or of another shape; no weight has then been changed.

    Examples:
        >>> models.save_weights(models.LambdaResNetSmall(), "weights.npz")
        >>> model = models.LambdaResNetSmall(classes=3)
        >>> load_weights(model, "weights.npz", skip_mismatch=True)
        ('predictions/kernel', 'predictions/bias')
    """
    saved, origin = read_weights(path)
    check_built(model)
    saved = fit_tables(model, saved)
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


def as_path(weights: Any) -> str:
    """Returns a path as a text, or raises a ValueError."""
    if not isinstance(weights, str | os.PathLike):
        raise ValueError(
            "`weights` must be None, 'imagenet', 'fashion_mnist' or a path. "
            f"Received: {weights!r}."
        )
    return os.fspath(weights)


def _file(path):
    """The weights file that a path names; it may be a run folder."""
    folder = tf.io.gfile.isdir(path)
    for ending, advice in _FOREIGN.items():
        if path.lower().endswith(ending) and not folder:
            raise ValueError(f"`weights` cannot be {path}: {advice}")
    return existing(os.path.join(path, RUN_WEIGHTS) if folder else path)


def existing(path: str) -> str:
    """Returns the path of a file, or raises a ValueError if there is none."""
    if not tf.io.gfile.exists(path):
        raise ValueError(
            f"No such file: {path}. `weights` takes None, 'imagenet', "
            "'fashion_mnist', an '.npz' file that "
            "`lambdanet_tf.models.save_weights` wrote, the folder of a run, "
            f"which holds {RUN_WEIGHTS}, or a '.safetensors' file of timm."
        )
    return path


def _read(path):
    """The arrays of a file by name, and the name of the model it is from."""
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content = io.BytesIO(file.read())
        with np.load(content, allow_pickle=False) as archive:
            arrays = {key: _known_to_numpy(x) for key, x in archive.items()}
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
