"""Files and folders: written whole or not at all, and by one process.

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
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from lambdanet_tf.arguments import UserError
from lambdanet_tf.environment import install_command
from lambdanet_tf.environment import is_there
from lambdanet_tf.environment import require

try:
    import fcntl
except ImportError:  # On Windows nothing is locked.
    fcntl = None

LOCK_FILE = ".lock"
_NEEDED_BYTES = 16 * 2**20
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


@contextlib.contextmanager
def claim_folder(folder: str, above: Sequence[str] = ()) -> Iterator[None]:
    """Keeps other processes from claiming a folder, while it lasts.

    The folder is made if it is missing. Left empty, it is removed again, as are
    the folders above that were made for it. The claim ends with its process,
    whatever happens to it. On file systems that are not local, and on Windows,
    nothing is locked.

    Args:
        folder: to claim.
        above: folders that were made for it before, the innermost first.

    Raises:
        ValueError: if another process has claimed the folder.
        FileError: if a few megabytes cannot be written.
    """
    above = [*missing_folders(folder)[1:], *above]
    try:
        lock = _locked(folder)
    except OSError as error:
        raise _not_writable(folder, error) from error
    try:
        check_writable(folder)
        yield
    finally:
        if lock is not None:
            with contextlib.suppress(OSError):  # Somebody removed it.
                os.remove(os.path.join(folder, LOCK_FILE))
            _remove_empty([folder, *above])
            os.close(lock)


def check_writable(folder: str) -> None:
    """Writes and removes a few megabytes; leaves no new folder behind.

    Raises:
        FileError: naming the folder, if that fails.
    """
    missing = missing_folders(folder)
    probe = os.path.join(folder, f".probe-{uuid.uuid4().hex[:8]}")
    try:
        tf.io.gfile.makedirs(folder)
        try:
            with tf.io.gfile.GFile(probe, "wb") as stream:
                stream.write(b"\0" * _NEEDED_BYTES)
        finally:
            with contextlib.suppress(tf.errors.NotFoundError):
                tf.io.gfile.remove(probe)
    except (tf.errors.OpError, OSError) as error:
        raise _not_writable(folder, error) from error
    finally:
        _remove_empty(missing)


def _locked(folder):
    """Makes a folder and locks a file in it; None where that is not possible.

    The system removes the lock of a process that has died.
    """
    if fcntl is None or "://" in folder:
        return None
    file = os.path.join(folder, LOCK_FILE)
    while True:
        os.makedirs(folder, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # Another removed it.
            lock = os.open(file, os.O_CREAT | os.O_RDWR, 0o666)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(os.fstat(lock), os.stat(file)):
                    return lock
            except BlockingIOError:
                os.close(lock)
                raise UserError(
                    f"Another process writes to {folder}. Wait for its end, or "
                    "choose another folder."
                ) from None
            except OSError:  # A file system over a network without locks.
                return lock
            os.close(lock)


def missing_folders(path: str) -> list[str]:
    """Returns the folders that `makedirs` would make, the innermost first."""
    missing = []
    while path and not tf.io.gfile.exists(path):
        missing.append(path)
        path = os.path.dirname(path.rstrip("/"))
    return missing


def _remove_empty(folders):
    """Removes folders, the innermost first, until one is not empty."""
    with contextlib.suppress(OSError):
        for folder in folders:
            os.rmdir(folder)


def _not_writable(folder, error):
    return FileError(
        f"Cannot write to the folder {folder}: {reason(error)}. Choose another "
        "one with --run-dir or --runs-dir, or free some space."
    )


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
