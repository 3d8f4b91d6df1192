"""Files: atomic writes on any file system of `tf.io.gfile`, and reads."""

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
except ImportError:  # Windows has no locks.
    fcntl = None


class FileError(UserError, OSError):
    """A file or folder cannot be written; the text says which, and why."""


@contextlib.contextmanager
def writing(path: str) -> Iterator[None]:
    """Turns a file system's error into a `FileError` that names the path."""
    try:
        yield
    except (tf.errors.OpError, OSError) as error:
        raise FileError(f"Cannot write {path}: {reason(error)}.") from error


@contextlib.contextmanager
def whole_file(path: str) -> Iterator[str]:
    """Yields a temporary path, and then renames that file to `path`.

    A reader never sees half a file. If the disk is full, the old file stays.

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
            tf.io.gfile.remove(temporary)  # It exists only after an error.


def write_whole(path: str, content: bytes) -> None:
    """Writes a file atomically.

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
    """Locks a local folder for this process.

    On Windows and on remote file systems, it does nothing.

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
                f"Another process writes to {folder}. Wait until it ends, or "
                "choose another folder."
            ) from None
        except OSError:  # A network file system may have no locks.
            pass
        yield
    finally:
        os.close(handle)


def matching(folder: str, pattern: str) -> list[str]:
    """Returns the sorted paths in a folder whose names match a pattern.

    A missing folder has none. (`tf.io.gfile.glob` would also interpret brackets
    in the path of the folder.)
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
    try:  # Windows' Notepad writes a byte order mark.
        return _read(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"Cannot read {path!r}: {error}.") from error


def read_arrays(path: str) -> dict[str, np.ndarray]:
    """Reads the arrays of an .npz file.

    Raises:
        UserError: if it is missing or damaged, or has anything but numbers.
    """
    content = io.BytesIO(_read(path))
    try:
        with zipfile.ZipFile(content):  # NumPy would try other formats.
            return dict(np.load(content))
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(
            f"{path} must be an .npz file of numbers that is not damaged. "
            f"Received: {reason(error)}."
        ) from error


def _read(path):
    check_file_system(path)
    try:
        with tf.io.gfile.GFile(path, "rb") as stream:
            return stream.read()
    except (tf.errors.OpError, OSError) as error:
        raise UserError(f"Cannot read {path!r}: {reason(error)}.") from error


def reason(error: Exception) -> str:
    """Returns the message of a file system's error, without its path."""
    text = str(getattr(error, "message", "") or error)
    return text.rpartition("; ")[2].rstrip(". ")


def check_file_system(path: str) -> None:
    """Raises a `UserError` unless TensorFlow supports the path's file system.

    For `gs://`, it imports a package that registers the file system.
    """
    scheme, found, _ = os.fspath(path).partition("://")
    if not found or scheme in tf.io.gfile.get_registered_schemes():
        return
    if scheme != "gs":
        raise UserError(f"Use a local or gs:// path. Received: {path!r}.")
    require("tensorflow_io_gcs_filesystem", extra="tpu")
