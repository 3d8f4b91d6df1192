"""Files, written whole or not at all.

Paths are on any file system that `tf.io.gfile` knows.
"""

import contextlib
import fnmatch
import hashlib
import io
import os
import uuid
import zipfile
import zlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import UserError
from lambdanet_tf.environment import install_command
from lambdanet_tf.environment import is_there
from lambdanet_tf.environment import require

_GCS_PLUGIN = "tensorflow_io_gcs_filesystem"


class FileError(UserError, OSError):
    """A file or a folder cannot be written; the text says which, and why."""


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[str]:
    """Yields a temporary path; what was written there is renamed to `path`.

    So a reader never meets half a file, and a full disk keeps the former one.

    Raises:
        FileError: if the file cannot be written.
    """
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}-{uuid.uuid4().hex[:8]}")
    try:
        yield temporary
        tf.io.gfile.rename(temporary, path, overwrite=True)
    except (tf.errors.OpError, OSError) as error:
        raise FileError(f"Cannot write {path}: {reason(error)}.") from error
    finally:
        with contextlib.suppress(tf.errors.OpError, OSError):
            tf.io.gfile.remove(temporary)  # It is there after an error only.


def write_whole(path: str, content: bytes) -> None:
    """Writes a file whole or not at all.

    Raises:
        FileError: if the file cannot be written.
    """
    with (
        whole_file(path) as temporary,
        tf.io.gfile.GFile(temporary, "wb") as stream,
    ):
        stream.write(content)


def matching(folder: str, pattern: str) -> list[str]:
    """Returns the sorted paths of what is in a folder, by a pattern of names.

    `tf.io.gfile.glob` would take brackets in the folder's own path for a
    pattern, too.

    Args:
        folder: to list; one that is not there holds nothing.
        pattern: such as `"*.tfrecord"`.
    """
    if not tf.io.gfile.isdir(folder):
        return []
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(folder)]
    return sorted(
        os.path.join(folder, name) for name in fnmatch.filter(names, pattern)
    )


def sha256_of(path: str) -> str:
    """Returns the hash of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as stream:
        while part := stream.read(2**24):
            digest.update(part)
    return digest.hexdigest()


def read_text(path: str) -> str:
    """Reads a text file.

    Raises:
        ValueError: if it cannot be read.
    """
    check_file_system(path)
    try:
        with tf.io.gfile.GFile(path, "rb") as stream:
            # Notepad of Windows begins with a byte order mark.
            return stream.read().decode("utf-8-sig")
    except (tf.errors.OpError, OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read {path!r}: {reason(error)}.") from error


def read_arrays(path: str) -> dict[str, np.ndarray]:
    """Reads the arrays of an .npz file.

    Raises:
        ValueError: if it is missing, damaged, or holds no numbers.
    """
    try:
        with tf.io.gfile.GFile(path, "rb") as stream:
            content = io.BytesIO(stream.read())
        with zipfile.ZipFile(content):  # Else NumPy tries other formats.
            return dict(np.load(content))
    except (
        *(tf.errors.OpError, OSError, ValueError, EOFError),
        *(zipfile.BadZipFile, zlib.error),
    ) as error:
        text = reason(error)
        if "pickle" in text:  # NumPy tells how to run what is in it.
            text = "Objects in the place of numbers"
        raise UserError(
            f"{path} must be a whole .npz file of numbers. Received: {text}."
        ) from error


def reason(error: Exception) -> str:
    """Returns what an error of a file system says, without full stop."""
    return str(getattr(error, "message", "") or error).rstrip(". ")


def check_file_system(path: str) -> None:
    """Raises a ValueError unless TensorFlow knows the file system of a path."""
    scheme, found, _ = os.fspath(path).partition("://")
    if not found or scheme in tf.io.gfile.get_registered_schemes():
        return
    if scheme == "gs" and is_there(_GCS_PLUGIN):
        require(_GCS_PLUGIN, extra="tpu")  # Which registers it.
        return
    hint = ""
    if scheme == "gs":
        hint = (
            " Google Cloud Storage needs tensorflow-io-gcs-filesystem, for "
            "Python below 3.13: it comes with the extra `tpu`, "
            f"{install_command('tpu')}."
        )
    raise UserError(
        f"This TensorFlow cannot read or write {scheme}:// paths. Received: "
        f"{path!r}.{hint}"
    )
