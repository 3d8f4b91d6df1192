"""Files: written whole or not at all, on any file system of `tf.io.gfile`."""

import contextlib
import fnmatch
import io
import os
import uuid
import zipfile
import zlib
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import UserError
from lambdanet_tf.environment import require

try:
    import fcntl
except ImportError:  # On Windows nothing is locked.
    fcntl = None


class FileError(UserError, OSError):
    """A file or a folder cannot be written; the text says which, and why."""


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turns an error of a file system into a `FileError` that names a path."""
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        raise FileError(f"Cannot write {path}: {reason(error)}.") from error


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[str]:
    """Yields a temporary path; what was written there is renamed to `path`.

    A reader never meets half a file, and a full disk keeps the former one.

    Raises:
        FileError: if the file cannot be written.
    """
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}-{uuid.uuid4().hex[:8]}")
    try:
        with writing(path):
            yield temporary
            tf.io.gfile.rename(temporary, path, overwrite=True)
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


@contextlib.contextmanager
def locked(folder: str) -> Iterator[None]:
    """Locks a local folder for this process; the lock ends with the process.

    On Windows, and on file systems that are not local, nothing is locked.

    Raises:
        UserError: if another process has the lock.
    """
    if fcntl is None or "://" in folder:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"Another process writes to {folder}. Wait for its end, or "
                "choose another folder."
            ) from None
        except OSError:  # A file system over a network without locks.
            pass
        yield
    finally:
        os.close(handle)


def matching(folder: str, pattern: str) -> list[str]:
    """Returns the sorted paths in a folder whose names match a pattern.

    A folder that does not exist holds nothing. `tf.io.gfile.glob` would take
    brackets in the path of the folder for a pattern, too.
    """
    check_file_system(folder)
    if not tf.io.gfile.isdir(folder):
        return []
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(folder)]
    return sorted(
        os.path.join(folder, name) for name in fnmatch.filter(names, pattern)
    )


def read_text(path: str) -> str:
    """Reads a text file.

    Raises:
        UserError: if it cannot be read.
    """
    try:  # Notepad of Windows begins with a byte order mark.
        return _read(path).decode("utf-8-sig")
    except (tf.errors.OpError, OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read {path!r}: {reason(error)}.") from error


def read_arrays(path: str) -> dict[str, np.ndarray]:
    """Reads the arrays of an .npz file.

    Raises:
        UserError: if it is missing, damaged, or holds anything but numbers.
    """
    try:
        content = io.BytesIO(_read(path))
        with zipfile.ZipFile(content):  # Else NumPy tries other formats.
            return dict(np.load(content))
    except (
        *(tf.errors.OpError, OSError, ValueError, EOFError),
        *(zipfile.BadZipFile, zlib.error),
    ) as error:
        raise UserError(
            f"{path} must be a whole .npz file of numbers. Received: "
            f"{reason(error)}."
        ) from error


def _read(path):
    check_file_system(path)
    with tf.io.gfile.GFile(path, "rb") as stream:
        return stream.read()


def reason(error: Exception) -> str:
    """Returns what an error of a file system says, without full stop."""
    return str(getattr(error, "message", "") or error).rstrip(". ")


def check_file_system(path: str) -> None:
    """Raises a `UserError` unless TensorFlow knows the file system of a path.

    `gs://` comes with a package that registers it when it is imported.
    """
    scheme, found, _ = os.fspath(path).partition("://")
    if not found or scheme in tf.io.gfile.get_registered_schemes():
        return
    if scheme != "gs":
        raise UserError(f"TensorFlow knows no {scheme}:// paths: {path!r}.")
    require("tensorflow_io_gcs_filesystem", extra="tpu")
