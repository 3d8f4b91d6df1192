"""Version folders: `<destination>/<name>/<integer>`, complete or absent.

A server that watches `<destination>/<name>` loads every folder whose name is
an integer, the moment it appears. So a version is written into a folder of
another name, and renamed when it is complete. The lock of that folder ends
with its process, whatever happens to it: the next export removes what a killed
one left. In a store such as gs://, TensorFlow writes file by file.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import tempfile
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from lambdanet_tf.arguments import UserError
from lambdanet_tf.arguments import users_input
from lambdanet_tf.files import FileError
from lambdanet_tf.files import read_text

try:
    import fcntl
except ImportError:  # On Windows nothing is locked, and nothing removed.
    fcntl = None

METADATA_FILE = "assets.extra/export.json"

# A local path, or the address of a folder in a store.
Folder = pathlib.Path | str

_LARGEST = 2**63 - 1  # What a server reads a version into.
_UNFINISHED = "unfinished-"


def list_versions(folder: str | os.PathLike) -> list[int]:
    """Returns the versions in the folder of a model, ascending."""
    return sorted(int(name) for name in _names(folder) if name.isdecimal())


def newest_export(destination: str | os.PathLike) -> Folder:
    """Returns the version folder that was written last.

    Args:
        destination: the folder that holds `<name>/<version>`.

    Raises:
        ValueError: if there is none.

    Examples:
        >>> newest_export("exported").name
        '1'
    """
    written = {}
    for name in _names(destination):
        for version in list_versions(_join(destination, name)):
            folder = _join(destination, name, version)
            file = _join(folder, METADATA_FILE)  # Keras writes none.
            if tf.io.gfile.exists(file):
                written[tf.io.gfile.stat(file).mtime_nsec] = folder
    if not written:
        raise UserError(
            "`destination` must hold an exported model. Received "
            f"{os.fspath(destination)}, which holds none. Export one with "
            "`python export.py`."
        )
    return _folder(written[max(written)])


@users_input()
def read_metadata(folder: str | os.PathLike) -> dict[str, Any]:
    """Reads `export.json`: labels, options, metadata and tolerance.

    Args:
        folder: the version folder of an export.

    Raises:
        ValueError: if it is not a version folder that this package wrote.

    Examples:
        >>> read_metadata("exported/LambdaResNetSmall/1")["labels"]
        [...]
    """
    return json.loads(read_text(_join(folder, METADATA_FILE)))


def write_file(folder: str, name: str, content: bytes) -> None:
    """Writes a file of a version."""
    path = _join(folder, name)
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
    after the highest, also if another export has taken that meanwhile. `write`
    writes everything into the folder that it is given.
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, re.ASCII):
        raise UserError(
            "`name` must be made of letters, digits, '.', '_' and '-', and "
            f"begin with a letter or a digit. Received: name={name!r}."
        )
    place = _join(destination, name)
    final = _free_folder(place, version)
    try:
        if "://" in place:
            write(final)
        else:
            with _unfinished(place) as scratch:
                new = os.path.join(scratch, "version")
                os.mkdir(new)  # with the rights that the user's mask leaves
                write(new)
                final = _free_folder(place, version)
                os.rename(new, final)
    except (OSError, tf.errors.OpError) as error:
        raise FileError(f"Cannot write {final}: {error}.") from error
    return _folder(final)


@contextlib.contextmanager
def _unfinished(place) -> Iterator[str]:
    """Yields a new folder that is removed at the end, and by no other export.

    The folder around it is removed, too, if it is empty.
    """
    os.makedirs(place, exist_ok=True)
    with contextlib.ExitStack() as stack:
        stack.callback(_remove_if_empty, place)
        with _locked(place):
            _remove_killed(place)
            scratch = stack.enter_context(
                tempfile.TemporaryDirectory(prefix=_UNFINISHED, dir=place)
            )
            stack.enter_context(_locked(scratch))
        yield scratch


def _remove_if_empty(folder):
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _remove_killed(place):
    """Removes and names what exports left that were killed."""
    for name in os.listdir(place) if fcntl else ():
        if name.startswith(_UNFINISHED):
            folder = os.path.join(place, name)
            with contextlib.suppress(BlockingIOError), _locked(folder, False):
                shutil.rmtree(folder)
                print(f"Removed {folder}, which a killed export left.")


@contextlib.contextmanager
def _locked(folder, wait=True):
    """Locks a folder for this process; the system unlocks it with its end."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        os.close(handle)


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
    return _join(place, version)


def _names(folder):
    """Returns the names of the folders in a folder; none if it is missing."""
    if not tf.io.gfile.isdir(folder):
        return []
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(folder)]
    return [name for name in names if tf.io.gfile.isdir(_join(folder, name))]


def _join(folder, *names):
    return os.path.join(os.fspath(folder), *map(str, names))


def _folder(path):
    # `pathlib` would drop the second slash of an address.
    return path if "://" in path else pathlib.Path(path)
