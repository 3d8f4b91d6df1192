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
import warnings

import h5py
import numpy as np
import tensorflow as tf

FORMAT = 1
HEAD = "predictions"  # The layer that depends on the number of classes.


def save_weights(model, path):
    """Writes all weights of a model, by name.

    Args:
        model: a Keras model, built.
        path: of the file; ends in `.npz`. Anything `tf.io.gfile` writes.

    Raises:
        ValueError: if the path ends otherwise, or two weights would have the
            same name.
    """
    path = str(path)
    if not path.endswith(".npz"):
        raise ValueError(f"`path` must end in '.npz'. Received: {path}.")
    arrays = {k: np.asarray(w) for k, w in named_weights(model).items()}
    header = json.dumps({"version": FORMAT, "model": model.name})
    buffer = io.BytesIO()
    np.savez(buffer, format=np.array(header), **arrays)
    partial = f"{path}.partial"
    with tf.io.gfile.GFile(partial, "wb") as file:
        file.write(buffer.getvalue())
    tf.io.gfile.rename(partial, path, overwrite=True)


def load_weights(model, path, skip=()):
    """Sets all weights of a model from a file, or none and raises.

    A model without a classifier leaves the file's classifier alone. To give a
    classifier another number of classes, skip its layer:
    `load_weights(LambdaResNet50(classes=10), path, skip=("predictions",))`.

    Args:
        model: a Keras model, built.
        path: of an `.npz` file that `save_weights` wrote, or of a
            `.weights.h5` file of the same Keras model.
        skip: beginnings of names, such as `"stage5"`: weights to leave alone,
            in the model and in the file.

    Raises:
        ValueError: if weights are missing, unexpected or of another shape; no
            weight has then been changed.
    """
    path = str(path)
    if not tf.io.gfile.exists(path):
        raise ValueError(f"`weights` must be a file. There is no {path}.")
    skip = (skip,) if isinstance(skip, str) else tuple(skip)
    if path.endswith(".weights.h5"):
        _load_keras_weights(model, path, skip)
        return
    saved, origin = _read(path)
    ours = named_weights(model)
    if not any(key.startswith(f"{HEAD}/") for key in ours):
        skip = (*skip, f"{HEAD}/")
    ours = {k: w for k, w in ours.items() if not k.startswith(skip)}
    saved = {k: w for k, w in saved.items() if not k.startswith(skip)}
    _check_fit(ours, saved, model.name, origin, path)
    for key, weight in ours.items():
        weight.assign(saved[key])


def named_weights(model):
    """The weights of a model by the names that files use.

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
    except Exception as error:
        raise ValueError(
            "`weights` must be a file that `save_weights` wrote, or a "
            f"'.weights.h5' file. {path} is neither: {error}."
        ) from error
    if version != FORMAT:
        raise ValueError(
            f"`weights` must be in version {FORMAT} of the format. {path} is "
            f"in version {version}: load it with the release that wrote it."
        )
    return arrays, origin


def _check_fit(ours, saved, name, origin, path):
    """Raises a ValueError that says how a file does not fit a model."""
    missing = [key for key in ours if key not in saved]
    unexpected = [key for key in saved if key not in ours]
    misshapen = [
        f"{key} is {saved[key].shape} in the file and {tuple(weight.shape)} in "
        "the model"
        for key, weight in ours.items()
        if key in saved and saved[key].shape != tuple(weight.shape)
    ]
    if not missing and not unexpected and not misshapen:
        return
    parts = [
        f"{len(found)} {what}: {_some(found)}."
        for what, found in (
            ("missing in the file", missing),
            ("unexpected in the file", unexpected),
            ("of another shape", misshapen),
        )
        if found
    ]
    head_only = all(
        key.startswith(f"{HEAD}/") for key in missing + unexpected + misshapen
    )
    if head_only:
        parts.append(
            "Only the classifier differs: to keep the rest, call "
            f'`load_weights(model, path, skip=("{HEAD}",))`.'
        )
    raise ValueError(
        f"`weights` must fit the model. {path}, saved from {origin!r}, does "
        f"not fit {name!r}. Weights {' '.join(parts)}"
    )


def _some(names, number=3):
    """The first few names, and how many more there are."""
    rest = f" and {len(names) - number} more" if len(names) > number else ""
    return ", ".join(names[:number]) + rest


def _load_keras_weights(model, path, skip):
    """Loads what `Model.save_weights` wrote, all of it or nothing."""
    if skip:
        raise ValueError(
            f"`skip` needs an '.npz' file. Received: {path}. Load it into the "
            "model that it was saved from, and save that with `save_weights`."
        )
    before = [np.array(weight) for weight in model.weights]
    try:
        _check_keras_count(model, path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The error says it.
            model.load_weights(path)
    except (ValueError, KeyError, OSError) as error:
        for weight, value in zip(model.weights, before, strict=True):
            weight.assign(value)
        reason = " ".join(str(error).split())[:300]  # Keras prints weights.
        raise ValueError(
            f"`weights` must fit the model. {path} does not fit "
            f"{model.name!r}: {reason}"
        ) from error


def _check_keras_count(model, path):
    """Keras itself takes a file of a larger model without a word."""
    names = []
    with h5py.File(path, "r") as file:
        file.visititems(
            lambda name, node: (
                names.append(name) if isinstance(node, h5py.Dataset) else None
            )
        )
    others = ("optimizer", "metrics")  # Of a compiled model.
    saved = [name for name in names if not name.startswith(others)]
    if len(saved) != len(model.weights):
        raise ValueError(
            f"the file holds {len(saved)} weights, the model "
            f"{len(model.weights)}"
        )
