"""Version folders: `<destination>/<name>/<integer>`, complete or absent.

A server that watches `<destination>/<name>` loads every folder whose name is
an integer, the moment it appears. So a version is written into a folder of
another name, and renamed when it is complete. The lock of a model's folder ends
with its process, whatever happens to it: the next export removes what a killed
one left. In a store such as gs://, TensorFlow writes file by file.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import uuid
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from lambdanet_tf.arguments import UserError
from lambdanet_tf.arguments import users_input
from lambdanet_tf.files import locked
from lambdanet_tf.files import matching
from lambdanet_tf.files import read_text
from lambdanet_tf.files import writing

METADATA_FILE = "assets.extra/export.json"

# A local path, or the address of a folder in a store.
Folder = pathlib.Path | str

_LARGEST = 2**63 - 1  # What a server reads a version into.
_UNFINISHED = "unfinished-"


def list_versions(folder: str | os.PathLike) -> list[int]:
    """Returns the versions in the folder of a model, ascending."""
    names = map(os.path.basename, matching(os.fspath(folder), "*"))
    return sorted(int(name) for name in names if name.isdecimal())


def newest_export(folder: str | os.PathLike) -> Folder:
    """Returns the version folder that was written last.

    Args:
        folder: one, the folder of a model, or that of all models.

    Raises:
        ValueError: if there is none.
    """
    top = os.fspath(folder)
    found = [top]
    for place in (top, *matching(top, "*")):
        found += matching(place, "[0-9]*")
    files = [os.path.join(version, METADATA_FILE) for version in found]
    written = {
        tf.io.gfile.stat(file).mtime_nsec: version
        for file, version in zip(files, found, strict=True)
        if tf.io.gfile.exists(file)  # Keras writes none.
    }
    if not written:
        raise UserError(
            f"`folder` must be an export, or hold one. Received {top}, which "
            f"has no {METADATA_FILE}. Export a run with `python export.py`."
        )
    return _folder(written[max(written)])


@users_input()
def read_metadata(folder: str | os.PathLike) -> dict[str, Any]:
    """Reads `export.json`: labels, options, metadata and tolerance.

    Args:
        folder: the version folder of an export.

    Raises:
        ValueError: if it is not a version folder that this package wrote.
    """
    return json.loads(read_text(os.path.join(folder, METADATA_FILE)))


def write_file(folder: str, name: str, content: bytes) -> None:
    """Writes a file of a version."""
    path = os.path.join(folder, name)
    tf.io.gfile.makedirs(os.path.dirname(path))
    with tf.io.gfile.GFile(path, "wb") as stream:
        stream.write(content)


def write_version(
    destination: str | os.PathLike,
    name: str,
    version: int | None,
    write: Callable[[str], None],
) -> Folder:
    """Writes a version folder, complete or not at all on a local disk.

    A version that exists is never touched; without one given it is the one
    after the highest. One process at a time exports a model. `write` writes
    everything into the folder that it is given.
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII):
        raise UserError(
            "`name` must be made of letters, digits, '.', '_' and '-', and "
            f"begin with a letter or a digit. Received: name={name!r}."
        )
    place = os.path.join(destination, name)
    final = _free_folder(place, version)
    with writing(final):
        if "://" in place:
            write(final)
        else:
            with _unfinished(place) as new:
                write(new)
                final = _free_folder(place, version)
                os.rename(new, final)
    return _folder(final)


@contextlib.contextmanager
def _unfinished(place) -> Iterator[str]:
    """Yields a new folder in a model's folder; removes both if they are empty.

    What exports left that were killed is removed, and named.
    """
    os.makedirs(place, exist_ok=True)
    with contextlib.ExitStack() as stack:
        stack.callback(_remove_if_empty, place)
        stack.enter_context(locked(place))
        for folder in matching(place, f"{_UNFINISHED}*"):
            shutil.rmtree(folder)
            print(f"Removed {folder}, which a killed export left.")
        new = os.path.join(place, _UNFINISHED + uuid.uuid4().hex[:8])
        os.mkdir(new)
        stack.callback(shutil.rmtree, new, ignore_errors=True)
        yield new


def _remove_if_empty(folder):
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _free_folder(place, version):
    """Returns the path of a version that is not there."""
    taken = list_versions(place)
    if version is None:
        version = max(taken, default=0) + 1
    elif version in taken or not 1 <= version <= _LARGEST:
        raise UserError(
            f"`version` must be new, and from 1 to {_LARGEST}. Received: "
            f"version={version!r}; {place} holds {taken}."
        )
    return os.path.join(place, str(version))


def _folder(path):
    # `pathlib` would drop the second slash of an address.
    return path if "://" in path else pathlib.Path(path)
