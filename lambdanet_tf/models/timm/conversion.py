"""Files of timm's networks to files of ours, and back, without a loss."""

import dataclasses
import os
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from lambdanet_tf import specs
from lambdanet_tf.arguments import did_you_mean
from lambdanet_tf.files import write_whole
from lambdanet_tf.models.timm import weight_names
from lambdanet_tf.models.timm.hub import PUBLISHED
from lambdanet_tf.models.timm.hub import read_published
from lambdanet_tf.models.timm.safetensors import read_safetensors
from lambdanet_tf.models.timm.safetensors import write_safetensors
from lambdanet_tf.models.timm.weight_names import TimmTensor
from lambdanet_tf.models.weights import arrays_as_bytes
from lambdanet_tf.models.weights import read_weights
from lambdanet_tf.models.weights import with_ending


def import_from_timm(
    source: str | os.PathLike,
    destination: str | os.PathLike,
    network: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> tuple[TimmTensor, ...]:
    """Converts weights of timm to a file that `load_weights` reads.

    Args:
        source: a `.safetensors` file, or the name of a network with published
            weights, timm's or ours, whose file is fetched into Keras' cache.
        destination: the `.npz` file to write.
        network: a name of `lambdanet_tf.specs.RESNETS`; None for the published
            network that has the weights of the source.
        changes: of attributes of the network's row, by name.

    Returns:
        What went where, for `table`.

    Raises:
        ValueError: if an argument is wrong, timm cannot express the network,
            or the weights are not all of its.
        OSError: if published weights cannot be fetched.
    """
    destination = with_ending("destination", destination, ".npz")
    source = os.fspath(source)
    if not source.endswith(".safetensors"):
        published = _published_name(source)
        network = network or published
        state, source = read_published(published)
    elif not tf.io.gfile.exists(source):
        raise ValueError(
            f"No such file: {source}. `source` takes a '.safetensors' file or "
            "the name of published weights."
        )
    else:
        state = read_safetensors(source)
    spec = _spec(network or _recognized(state, source), changes)
    tensors = weight_names.timm_tensors(spec)
    arrays = weight_names.from_timm(tensors, state, source)
    write_whole(destination, arrays_as_bytes(arrays, spec.name))
    return _with_shapes(tensors, state)


def export_to_timm(
    source: str | os.PathLike,
    destination: str | os.PathLike,
    network: str,
    changes: Mapping[str, Any] | None = None,
) -> tuple[TimmTensor, ...]:
    """Converts weights of ours to a state dict that timm reads.

    Args:
        source: an `.npz` file that `save_weights` wrote, or a run folder.
        destination: the `.safetensors` file to write.
        network: as for `import_from_timm`, and so are the rest.
        changes: see there.

    Returns:
        See there.

    Raises:
        ValueError: see there.
    """
    destination = with_ending("destination", destination, ".safetensors")
    arrays, origin = read_weights(source)
    tensors = weight_names.timm_tensors(_spec(network, changes))
    state = weight_names.to_timm(tensors, arrays, origin)
    write_safetensors(destination, state)
    return _with_shapes(tensors, state)


def table(tensors: Sequence[TimmTensor]) -> str:
    """Returns what went where as text, a line for each tensor of timm."""
    rows = [("timm", "shape", "lambdanet_tf")]
    for tensor in tensors:
        shape = "x".join(map(str, tensor.shape)) or "1"
        ours = ", ".join(tensor.names)
        if tensor.layout == "counter":
            ours = "(a counter: 0 in timm's file, not in ours)"
        if tensor.layout == "no_bias":
            ours = "(zeros: the network has no position bias)"
        rows.append((tensor.key, shape, ours))
    widths = [max(len(row[i]) for row in rows) for i in range(2)]
    lines = [f"{k:{widths[0]}}  {s:>{widths[1]}}  {o}" for k, s, o in rows]
    lines.insert(1, "-" * max(map(len, lines)))
    return "\n".join(lines)


def _published_name(source):
    """Our name of a network with published weights, from either name."""
    names = {}
    for name, published in PUBLISHED.items():
        model_name = published.timm_name.split(".")[0]
        for alias in (name, model_name, published.timm_name):
            names[alias] = name
    found = names.get(source.removeprefix("timm/"))
    if found is None:
        raise ValueError(
            "`source` must be a '.safetensors' file or one of "
            f"{', '.join(names)}. Received: {source}."
            f"{did_you_mean(source, names)}"
        )
    return found


def _recognized(state, source):
    """The published network whose names a state dict has."""
    for name in PUBLISHED:
        tensors = weight_names.timm_tensors(specs.RESNETS[name])
        if {tensor.key for tensor in tensors} == state.keys():
            return name
    raise ValueError(
        "`network` must be given for weights of other networks than "
        f"{', '.join(PUBLISHED)}. Received: network=None, {source}."
    )


def _spec(network, changes):
    if network not in specs.RESNETS:
        raise ValueError(
            f"`network` must be a residual network. Received: {network!r}."
            f"{did_you_mean(str(network), specs.RESNETS)} There are: "
            f"{', '.join(specs.RESNETS)}."
        )
    return specs.replace(specs.RESNETS[network], dict(changes or {}))


def _with_shapes(tensors, state):
    """The tensors with the sizes that they have in a state dict."""
    return tuple(
        dataclasses.replace(tensor, shape=np.shape(state[tensor.key]))
        for tensor in tensors
    )
