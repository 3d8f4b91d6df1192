"""The published weights of timm's networks, fetched once and checked."""

import dataclasses
import os
import re
import sys
import urllib.error
import urllib.request

import numpy as np
import tensorflow as tf

from lambdanet_tf import specs
from lambdanet_tf.files import FileError
from lambdanet_tf.files import sha256_of
from lambdanet_tf.models.timm import weight_names
from lambdanet_tf.models.timm.safetensors import library
from lambdanet_tf.models.timm.safetensors import read_safetensors

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
    path = os.path.join(cache_folder(), file)
    if os.path.exists(path):
        if not published.sha256 or published.sha256 == sha256_of(path):
            return path
        os.remove(path)
    try:
        address, stated = _resolved(published.address)
        path = tf.keras.utils.get_file(
            file,
            address,
            cache_subdir="models",
            cache_dir=os.environ.get("KERAS_HOME"),
        )
    except Exception as error:  # Keras raises no narrower class.
        if isinstance(error.__context__, urllib.error.HTTPError):
            error.__context__.close()  # Keras leaves its socket open.
        reason = " ".join(str(error).split())
        raise FileError(
            f"The weights of {name} cannot be fetched ({reason}): download "
            f"{published.address} by other means and give the path of the "
            "file, as in `weights='model.safetensors'`."
        ) from None
    found, expected = sha256_of(path), published.sha256 or stated
    if expected not in (None, found):
        why = f"its SHA-256 must be {expected}. Received: {found}."
        raise FileError(_removed(path, address, name, why))
    if published.sha256 is None:
        compared = "is what the hub states" if stated else "is not stated there"
        print(
            f"The weights of {name} were fetched from {address}. Their "
            f"SHA-256, {found}, {compared}; this release of lambdanet_tf knows "
            "none to compare it with. Names and shapes are checked.",
            file=sys.stderr,
        )
    return path


def cache_folder() -> str:
    """Returns the folder that Keras puts files into."""
    home = os.environ.get("KERAS_HOME") or os.path.expanduser("~/.keras")
    if os.path.exists(home) and not os.access(home, os.W_OK):
        home = os.path.join("/tmp", ".keras")
    return os.path.join(home, "models")


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
        ImportError: if the library `safetensors` is not installed.
        OSError: if it cannot be fetched, or has another hash.
        ValueError: if what was fetched is not the weights of the network.
    """
    library()  # Before anything is fetched.
    path = fetch(name)
    row = specs.RESNETS[name]  # Whatever a user's network changes.
    tensors = weight_names.timm_tensors(
        row, IMAGENET_CLASSES, 3, row.image_size
    )
    try:
        state = read_safetensors(path)
        weight_names.check_state(tensors, state, path)
    except ValueError as error:
        address = PUBLISHED[name].address
        raise ValueError(_removed(path, address, name, error)) from None
    return state, path


def _removed(path, address, name, why):
    """Removes what was fetched; returns what is wrong with it."""
    os.remove(path)
    return (
        f"What {address} sent is not the weights of {name}, and has been "
        f"removed: {why} Try again, or download it by other means and give the "
        "path of the file."
    )
