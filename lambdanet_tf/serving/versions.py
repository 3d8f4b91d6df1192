"""Version folders, `<destination>/<name>/<integer>`, written atomically.

A server that watches `<destination>/<name>` immediately loads every new folder
whose name is an integer. So we write a version into a folder of another name,
and rename it when it is complete. A process holds the lock of a model's folder
until it ends, so the next export can remove what a killed one left. In a store
such as gs://, TensorFlow writes file by file.
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

_LARGEST = 2**63 - 1  # A server reads a version as int64.
_UNFINISHED = "unfinished-"


def list_versions(folder: str | os.PathLike) -> list[int]:
    """Returns the sorted versions in the folder of a model."""
    names = map(os.path.basename, matching(os.fspath(folder), "*"))
    return sorted(int(name) for name in names if name.isdecimal())


def newest_export(folder: str | os.PathLike) -> Folder:
    """Returns the newest version folder.

    Args:
        folder: a version folder, the folder of a model, or that of all models.

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
        if tf.io.gfile.exists(file)  # Exports by Keras have none.
    }
    if not written:
        raise UserError(
            f"{top!r} is not an export, and contains none: it has no "
            f"{METADATA_FILE}. Export a run with `lambdanet export`."
        )
    return _folder(written[max(written)])


@users_input()
def read_metadata(folder: str | os.PathLike) -> dict[str, Any]:
    """Reads `export.json`: labels, options, metadata and tolerance.

    Args:
        folder: the version folder of an export.

    Raises:
        ValueError: if it is not an export of this package.
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
    """Writes a version folder, atomically on a local disk.

    It never changes an existing version; None stands for the next one. One
    process at a time can export a model. `write` is a function of the folder
    that writes all files.
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII):
        raise UserError(
            "`name` must consist of letters, digits, '.', '_' and '-', and "
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
    """Yields a new folder in a model's folder; removes both if empty.

    It also removes and prints the folders that killed exports left.
    """
    os.makedirs(place, exist_ok=True)
    with contextlib.ExitStack() as stack:
        stack.callback(_remove_if_empty, place)
        stack.enter_context(locked(place))
        for folder in matching(place, f"{_UNFINISHED}*"):
            shutil.rmtree(folder)
            print(f"Removed {folder}, left by an export that was killed.")
        new = os.path.join(place, _UNFINISHED + uuid.uuid4().hex[:8])
        os.mkdir(new)
        stack.callback(shutil.rmtree, new, ignore_errors=True)
        yield new


def _remove_if_empty(folder):
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _free_folder(place, version):
    """Returns the path of a new version."""
    taken = list_versions(place)
    if version is None:
        version = max(taken, default=0) + 1
    if version in taken or not 1 <= version <= _LARGEST:
        raise UserError(
            f"`version` must be new, and from 1 to {_LARGEST}. Received: "
            f"version={version!r}. {place} already has {taken}."
        )
    return os.path.join(place, str(version))


def _folder(path):
    # `pathlib` would drop the second slash of an address.
    return path if "://" in path else pathlib.Path(path)
