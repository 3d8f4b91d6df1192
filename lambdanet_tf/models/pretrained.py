"""Weights that a network begins with: published ones, or those of a file."""

import contextlib
import dataclasses
import hashlib
import os
import re
import sys
import urllib.error
import urllib.request
import warnings
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lambdanet_tf import specs
from lambdanet_tf.files import FileError
from lambdanet_tf.files import write_whole
from lambdanet_tf.models import timm_layout
from lambdanet_tf.models.safetensors import read_safetensors
from lambdanet_tf.models.weights import HEAD
from lambdanet_tf.models.weights import arrays_as_bytes
from lambdanet_tf.models.weights import named_weights
from lambdanet_tf.models.weights import read_weights
from lambdanet_tf.models.weights import set_weights

IMAGENET_CLASSES = 1000
_NEWEST = "main"  # The branch that the hub resolves to its newest revision.
_TIMEOUT = 20  # seconds


@dataclasses.dataclass(frozen=True)
class Published:
    """Where the weights of a network are published.

    Attributes:
        timm_name: what timm calls them.
        address: of the `.safetensors` file, with its revision.
        sha256: of the file, in hexadecimal; None where we do not know it.
    """

    timm_name: str
    address: str
    sha256: str | None = None


def _on_hub(timm_name, revision=_NEWEST, sha256=None):
    hub = "https://huggingface.co/timm"
    address = f"{hub}/{timm_name}/resolve/{revision}/model.safetensors"
    return Published(timm_name, address, sha256)


# By R. Wightman, under the Apache License 2.0. Hashes can be added here once
# somebody has read them from the hub; until then the hub's own are checked.
PUBLISHED = {
    "LambdaResNet26T": _on_hub("lambda_resnet26t.c1_in1k"),
    "LambdaResNet50TS": _on_hub(
        "lambda_resnet50ts.a1h_in1k",
        revision="d1104e080d2725a19db5ec2ec58f589c490d674b",
    ),
    "LambdaResNet26RPT256": _on_hub("lambda_resnet26rpt_256.c1_in1k"),
}


def load_initial(
    model: tf.keras.Model,
    spec: specs.ResNetSpec | specs.MobileNetSpec,
    weights: str | os.PathLike,
    skip: Sequence[str] = (),
) -> None:
    """Sets the weights that `weights=` of a builder names, or none and raises.

    ImageNet's classifier is left out of a network with another number of
    classes. Tables of a global scope are cropped to a smaller map, exactly,
    and interpolated, with a warning, to a larger one.

    Args:
        model: what the builder has built.
        spec: of the network.
        weights: "imagenet", a `.safetensors` file of timm, or what
            `load_weights` takes.
        skip: beginnings of the names of weights that the model lacks.

    Raises:
        ValueError: if there are no such weights, or they do not fit.
        OSError: if published weights cannot be fetched.
    """
    arrays, origin = read_initial(spec, weights)
    ours = named_weights(model)
    if _is_other_classifier(ours, arrays):
        skip = (*skip, f"{HEAD}/")
    if getattr(spec, "scope", 0) is None:
        arrays = _fit_tables(ours, arrays, model.name)
    set_weights(model, arrays, origin, skip)


def read_initial(spec, weights):
    """Reads what `weights=` names.

    Returns:
        Arrays by our names, and where they are from, for messages.

    Raises:
        ValueError: see `load_initial`.
        OSError: likewise.
    """
    if not isinstance(weights, str | os.PathLike):
        raise ValueError(
            "`weights` must be None, 'imagenet' or a path. Received: "
            f"{weights!r}."
        )
    weights = os.fspath(weights)
    if weights == "imagenet":
        return _published(spec)
    if not weights.endswith(".safetensors"):
        return read_weights(weights)
    if not tf.io.gfile.exists(weights):
        raise ValueError(
            "`weights` must be None, 'imagenet', or the path of an '.npz' "
            "file, a run folder or a '.safetensors' file. There is no "
            f"{weights}."
        )
    tensors = timm_layout.timm_tensors(spec)
    state = read_safetensors(weights)
    return timm_layout.from_timm(tensors, state, weights), weights


def fetch(name: str) -> str:
    """Returns the path of a network's published file, fetched if needed.

    It lies in Keras' cache, `~/.keras/models` or `$KERAS_HOME/models`. A file
    in the cache is not fetched again, but its hash is checked where we know
    it. What is fetched must have the hash that we know; otherwise the one that
    the hub states for the revision it sends, and a line on stderr says so.

    Args:
        name: of a network of `PUBLISHED`.

    Raises:
        OSError: if it cannot be fetched, or has another hash.
    """
    published = PUBLISHED[name]
    file = f"{published.timm_name}.safetensors"
    path = os.path.join(_cache(), file)
    if os.path.exists(path):
        if not published.sha256 or published.sha256 == _sha256(path):
            return path
        _remove(path)
    try:
        address, stated = _resolved(published.address)
        path = tf.keras.utils.get_file(
            file,
            address,
            cache_subdir="models",
            cache_dir=os.environ.get("KERAS_HOME"),
        )
    except Exception as error:  # Keras raises no narrower class.
        reason = " ".join(str(error).split())
        raise FileError(
            f"The weights of {name} cannot be fetched ({reason}): download "
            f"{published.address} by other means and give the path of the "
            "file, as in `weights='model.safetensors'`."
        ) from None
    found, expected = _sha256(path), published.sha256 or stated
    if expected not in (None, found):
        _remove(path)
        raise FileError(
            f"What {address} sent is not the weights of {name}, and has been "
            f"removed: its SHA-256 must be {expected}. Received: {found}. Try "
            "again, or download it by other means and give the path of the "
            "file."
        )
    if published.sha256 is None:
        compared = "is what the hub states" if stated else "is not stated there"
        print(
            f"The weights of {name} were fetched from {address}. Their "
            f"SHA-256, {found}, {compared}; this release of lambdanet_tf knows "
            "none to compare it with. Names and shapes are checked.",
            file=sys.stderr,
        )
    return path


def _cache():
    """The folder that Keras puts files into."""
    home = os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")
    if os.path.exists(home) and not os.access(home, os.W_OK):
        home = os.path.join("/tmp", ".keras")
    return os.path.join(home, "models")


def _remove(path):
    """Removes a fetched file and what was converted from it."""
    for file in (path, _converted(path)):
        if os.path.exists(file):
            os.remove(file)


def _converted(path):
    return f"{path.removesuffix('.safetensors')}.npz"


def _sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """The hub states revision and hash where it redirects to the file."""

    def redirect_request(self, *_):
        return None


def _resolved(address):
    """The address with its revision, and the hash of what lies there.

    Either is as given, or None, if the server does not tell.

    Raises:
        OSError: if the server cannot be reached.
    """
    request = urllib.request.Request(address, method="HEAD")
    try:
        opener = urllib.request.build_opener(_NoRedirect)
        with opener.open(request, timeout=_TIMEOUT) as response:
            headers = response.headers
    except urllib.error.HTTPError as error:  # also a redirection
        headers = error.headers
        error.close()
    revision = headers.get("X-Repo-Commit", "")
    if re.fullmatch("[0-9a-f]{40}", revision):
        address = address.replace(
            f"/resolve/{_NEWEST}/", f"/resolve/{revision}/"
        )
    stated = headers.get("X-Linked-Etag", "").strip('"')
    return address, stated if re.fullmatch("[0-9a-f]{64}", stated) else None


def read_published(name: str) -> tuple[dict[str, np.ndarray], str]:
    """Reads the published file of a network, fetched if needed.

    What is not the network's is removed from Keras' cache.

    Args:
        name: of a network of `PUBLISHED`.

    Returns:
        Arrays by timm's names, and the path of the file.

    Raises:
        OSError: if it cannot be fetched, or has another hash.
        ValueError: if what was fetched is not the weights of the network.
    """
    path = fetch(name)
    try:
        state = read_safetensors(path)
        timm_layout.check_state(_published_tensors(name), state, path)
    except ValueError as error:
        _remove(path)
        raise ValueError(
            f"What {PUBLISHED[name].address} sent is not the weights of "
            f"{name}, and has been removed: {error} Try again, or "
            "download it by other means and give the path of the file."
        ) from None
    return state, path


def _published_tensors(name):
    """What a published file must hold, whatever a user's network changes."""
    row = specs.RESNETS[name]
    return timm_layout.timm_tensors(row, IMAGENET_CLASSES, 3, row.image_size)


def _published(spec):
    """The arrays of published weights, by way of the caches."""
    if spec.name not in PUBLISHED:
        raise ValueError(
            "`weights='imagenet'` is there for the networks "
            f"{', '.join(PUBLISHED)}. Received: {spec.name}. The paper's "
            "author published no weights."
        )
    timm_layout.check_expressible(spec)
    converted = _converted(fetch(spec.name))
    if tf.io.gfile.exists(converted):
        with contextlib.suppress(ValueError):  # Damaged: convert again.
            return read_weights(converted)
    state, path = read_published(spec.name)
    arrays = timm_layout.from_timm(_published_tensors(spec.name), state, path)
    write_whole(converted, arrays_as_bytes(arrays, spec.name))
    return arrays, path


def _is_other_classifier(ours, arrays):
    """Whether a file's classifier is ImageNet's, and the model's another."""
    key = f"{HEAD}/bias"
    return (
        key in ours
        and key in arrays
        and arrays[key].shape == (IMAGENET_CLASSES,)
        and tuple(ours[key].shape) != (IMAGENET_CLASSES,)
    )


def _fit_tables(ours, arrays, model_name):
    """The arrays, with tables for the maps that a model sees."""
    arrays, stretched = dict(arrays), False
    for name, weight in ours.items():
        table = arrays.get(name)
        if not name.endswith("/embeddings") or table is None:
            continue
        entries = tuple(weight.shape[:2])
        stretched |= any(
            want > have
            for want, have in zip(entries, table.shape, strict=False)
        )
        arrays[name] = resize_table(table, entries)
    if stretched:
        warnings.warn(
            f"The images of {model_name!r} are larger than those that its "
            "weights were trained on: the position embeddings are "
            "interpolated, linearly. Fine-tune them at this size.",
            stacklevel=2,
        )
    return arrays


def resize_table(table: np.ndarray, entries: Sequence[int]) -> np.ndarray:
    """Fits a table of relative positions to maps of another size.

    The center stays the center. On an axis with fewer entries the outer ones
    are cut off, which is exact: the others keep their meaning. On an axis with
    more, neighbors are interpolated linearly, the ends staying the ends.

    Args:
        table: `(*entries, ...)`.
        entries: odd number of relative positions for each of the first axes.

    Returns:
        The table with these numbers of entries.
    """
    for axis, wanted in enumerate(entries):
        have = table.shape[axis]
        if wanted <= have:
            first = (have - wanted) // 2
            rows = np.arange(first, first + wanted)
            table = np.take(table, rows, axis)
            continue
        places = np.linspace(0, have - 1, wanted)
        low = np.minimum(places.astype(int), have - 2)
        share = (places - low).reshape([-1] + [1] * (table.ndim - 1 - axis))
        below, above = np.take(table, low, axis), np.take(table, low + 1, axis)
        table = ((1 - share) * below + share * above).astype(table.dtype)
    return table
